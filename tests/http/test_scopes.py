"""Scopes: each endpoint declares what CONTRACT says, and asks for what it declares.

tests/domain/test_scopes.py shows how an expression is evaluated, and tests/domain/test_authentication.py how
credentials are checked. These tests show that each endpoint asks for the scopes of the thing that it changes.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.scopes import OPEN_READS, AllOf, AnyOf, Expression, Params, covers, expanded
from tests.http.calls import (
    DECLARED,
    GROUP_ID,
    NAME,
    PREFIXES,
    PROVISIONER,
    TASK_ID,
    TESTED,
    TODAY,
    WORKER_TYPE,
    Queue,
    example_call,
    holding,
    refused,
    succeeded,
)

POOL = f"{PROVISIONER}/{WORKER_TYPE}"
WORKER = "group/alice"
GROUP = f"a-scheduler/{GROUP_ID}"
RUN = f"{TASK_ID}/0"
CREATING = ("createTask", "defineTask")
ABOVE = ("highest", "very-high", "high", "medium", "low", "very-low", "lowest")
LISTS = (
    *("some:scope:*", "another scope", "queue:route:index.a.b", "queue:route:tc-treeherder.v2"),
    "queue:create-task:project:a/project",
)
# The contract: the scopes that each method needs. "|" separates alternatives
_CONTRACT = f"""
scheduleTask: queue:schedule-task:{GROUP}/{TASK_ID}
 | queue:schedule-task-in-project:a/project | queue:schedule-task + assume:scheduler-id:{GROUP}
rerunTask: queue:rerun-task:{GROUP}/{TASK_ID}
 | queue:rerun-task-in-project:a/project | queue:rerun-task + assume:scheduler-id:{GROUP}
cancelTask: queue:cancel-task:{GROUP}/{TASK_ID}
 | queue:cancel-task-in-project:a/project | queue:cancel-task + assume:scheduler-id:{GROUP}
sealTaskGroup: queue:seal-task-group:{GROUP}
cancelTaskGroup: queue:cancel-task-group:{GROUP}
changeTaskPriority: queue:change-task-priority:{TASK_ID} | queue:change-task-priority-in-queue:{POOL}
 | queue:raise-task-priority:{TASK_ID} | queue:create-task:highest:{POOL}
 | queue:create-task:very-high:{POOL} | queue:create-task:high:{POOL}
changeTaskGroupPriority: queue:change-task-group-priority:{GROUP} | queue:raise-task-group-priority:{GROUP_ID}
pollTaskUrls: queue:poll-task-urls:{POOL} | queue:poll-task-urls + assume:worker-type:{POOL}
claimTask: queue:claim-task:{POOL} + queue:worker-id:{WORKER}
 | queue:claim-task + assume:worker-type:{POOL} + assume:worker-id:{WORKER}
claimWork: queue:claim-work:{POOL} + queue:worker-id:{WORKER}
reclaimTask: queue:claim-task:{RUN} | queue:reclaim-task:{RUN} | queue:claim-task + assume:worker-id:{WORKER}
reportCompleted reportFailed reportException: queue:claim-task:{RUN} | queue:resolve-task:{RUN}
 | queue:resolve-task + assume:worker-id:{WORKER}
createArtifact completeArtifact finishArtifact: queue:claim-task:{RUN} | queue:create-artifact:{RUN}
 | queue:create-artifact:{NAME} + assume:worker-id:{WORKER}
getArtifact getLatestArtifact artifact latestArtifact: queue:get-artifact:{NAME}
listArtifacts artifactInfo: queue:list-artifacts:{TASK_ID}:0
listLatestArtifacts latestArtifactInfo: queue:list-artifacts:{TASK_ID}
task tasks: queue:get-task:{TASK_ID}
status statuses: queue:status:{TASK_ID}
listTaskGroup getTaskGroup: queue:list-task-group:{GROUP_ID}
listDependentTasks: queue:list-dependent-tasks:{TASK_ID}
pendingTasks: queue:pending-count:{POOL}
taskQueueCounts taskQueueCountsBatch: queue:pending-count:{POOL} + queue:claimed-count:{POOL}
listPendingTasks: queue:pending-list:{POOL}
listClaimedTasks: queue:claimed-list:{POOL}
listTaskQueues: queue:list-task-queues
getTaskQueue: queue:get-task-queue:{POOL}
listProvisioners: queue:list-provisioners
getProvisioner: queue:get-provisioner:{PROVISIONER}
listWorkerTypes: queue:list-worker-types:{PROVISIONER}
getWorkerType: queue:get-worker-type:{POOL}
listWorkers: queue:list-workers:{POOL}
getWorker: queue:get-worker:{POOL}/{WORKER}
declareProvisioner: queue:declare-provisioner:{PROVISIONER}#actions
 + queue:declare-provisioner:{PROVISIONER}#description + queue:declare-provisioner:{PROVISIONER}#expires
 + queue:declare-provisioner:{PROVISIONER}#stability
declareWorkerType: queue:declare-worker-type:{POOL}#description + queue:declare-worker-type:{POOL}#expires
 + queue:declare-worker-type:{POOL}#stability
declareWorker: queue:declare-worker:{POOL}/{WORKER}#expires
quarantineWorker: queue:quarantine-worker:{POOL}/{WORKER}
"""


def creating(name: str, priority: str) -> Iterator[tuple[str, ...]]:
    for higher in ABOVE[: ABOVE.index(priority) + 1]:
        yield (*LISTS, "queue:scheduler-id:a-scheduler", f"queue:create-task:{higher}:{POOL}")
    if priority == "lowest":
        yield (*LISTS, f"queue:create-task:{POOL}")
        of_group = (f"queue:task-group-id:{GROUP}", f"queue:schedule-task:{GROUP}/{TASK_ID}")
        yield (*LISTS, f"queue:define-task:{POOL}", *(of_group if name == "createTask" else ()))


CONTRACT: dict[str, list[tuple[str, ...]]] = {name: [*creating(name, "lowest")] for name in CREATING} | {
    name: [tuple(scopes.split(" + ")) for scopes in said.split(" | ")]
    for names, _, said in (line.partition(": ") for line in _CONTRACT.replace("\n ", " ").split("\n"))
    for name in names.split()
}


def alternatives(expression: Expression, fields: Params) -> list[tuple[str, ...]]:
    """Each set of scopes that is sufficient, and from which no scope can be left out."""
    match expression:
        case str():
            return [(re.sub("<([a-zA-Z]+)>", lambda name: fields[name[1]], expression),)]
        case AnyOf(parts):
            return [scopes for part in expanded(parts, fields) for scopes in alternatives(*part)]
        case AllOf(parts):
            choices = product(*(alternatives(*part) for part in expanded(parts, fields)))
            return [sum(choice, ()) for choice in choices]
    raise AssertionError(expression)


GUARDED = [name for name, endpoint in DECLARED.items() if endpoint.scopes is not None]
# the calls that needed no scope in 2018, and the calls of later clients that replace them
OPEN = {
    *("task", "status", "listTaskGroup", "listDependentTasks", "pendingTasks"),
    *("tasks", "statuses", "getTaskGroup"),
    *("artifactInfo", "latestArtifactInfo", "listArtifacts", "listLatestArtifacts"),
    *("listProvisioners", "listWorkerTypes", "listWorkers", "getProvisioner", "getWorkerType", "getWorker"),
}


def sufficient_scopes(name: str) -> list[tuple[str, ...]]:
    """The alternatives in the contract.

    If the contract does not have the endpoint, those that it declares.
    """
    scopes = DECLARED[name].scopes
    assert scopes is not None
    return CONTRACT.get(name) or alternatives(scopes, example_call(name).fields)


@pytest.mark.parametrize("name", CONTRACT)
def test_each_endpoint_declares_the_scopes_of_the_contract(name: str) -> None:
    scopes = DECLARED[name].scopes
    assert scopes is not None
    for priority in ABOVE if name in CREATING else ("lowest",):
        declared = alternatives(scopes, example_call(name, priority).fields)
        wanted = [*creating(name, priority)] if name in CREATING else CONTRACT[name]
        assert {*map(frozenset, declared)} == {*map(frozenset, wanted)}


def test_only_the_endpoints_of_the_contract_need_no_scopes_or_are_open_by_default() -> None:
    assert {*DECLARED} - {*GUARDED} == {"ping", "lbheartbeat", "heartbeat", "version"}
    assert {name for name in GUARDED if covers(OPEN_READS, sufficient_scopes(name)[0][:1])} - {
        "taskQueueCounts",
        "taskQueueCountsBatch",
    } == OPEN


@pytest.mark.parametrize("name", GUARDED)
def test_a_caller_needs_every_scope_of_one_alternative(name: str) -> None:
    """A caller without credentials is refused before its body is parsed.

    Each answer is checked against the served schema, in the shape of 2018 and in today's.
    """
    choices = sufficient_scopes(name)
    fewer = [tuple({*scopes} - {scope}) for scopes in choices for scope in scopes]
    clients = [Client(f"lacks/{number}", TESTED.access_token, held) for number, held in enumerate(fewer)]
    client = Client(TESTED.client_id, TESTED.access_token, choices[-1])
    queue, example = Queue(*clients, client, anonymous_scopes=()), example_call(name)
    example.prepare(queue)
    before = queue.call("status", taskId=TASK_ID).get_json().get("status")
    for client in clients:
        credentials = replace(TESTED, client_id=client.client_id)
        answer = queue.call(name, example.body, credentials, **example.params)
        refused(answer, 403, "InsufficientScopes", client.client_id, name, "lacks")
    body = "no object" if DECLARED[name].method != "GET" else example.body
    answer = queue.call(name, body, None, **example.params)
    refused(answer, 403, "InsufficientScopes", "without credentials", "queue:")
    answer = queue.call(name, body, replace(TESTED, access_token="another"), **example.params)
    refused(answer, 401, "AuthenticationFailed", "check the credentials")
    assert queue.call("status", taskId=TASK_ID).get_json().get("status") == before
    for prefix in PREFIXES if DECLARED[name].method == "GET" else [TODAY]:
        succeeded(queue.call(name, example.body, TESTED, prefix, **example.params))


@pytest.mark.parametrize("name", ["ping", "status", "listArtifacts"])
def test_everybody_can_call_an_endpoint_without_scopes_and_by_default_an_open_read(name: str) -> None:
    """Invalid credentials are ignored, like by the original queue. The log says so."""
    queue, example = holding(), example_call(name)
    example.prepare(queue)
    for credentials in (None, TESTED, TESTED.narrowed()):
        succeeded(queue.call(name, example.body, credentials, **example.params))
    with capture_logs() as logs:
        succeeded(queue.call(name, example.body, replace(TESTED, client_id="nobody"), **example.params))
    [line] = [line for line in logs if line["event"] == "authentication-ignored"]
    assert (line["log_level"], line["endpoint"]) == ("info", name)
    assert (line["client_id"], line["reason"]) == ("nobody", "no such client")


def test_without_credentials_a_body_is_parsed_only_if_the_anonymous_role_might_allow_the_call(
    queue: Queue,
) -> None:
    refused(queue.call("createTask", "no object", None, taskId=TASK_ID), 403, "InsufficientScopes")
    refused(queue.call("statuses", "no object", None), 400, "InputValidationError")


def test_a_caller_has_its_own_scopes_and_those_of_the_anonymous_role() -> None:
    counts = [f"queue:{what}-count:{POOL}" for what in ("pending", "claimed")]
    queue = holding(counts[0], anonymous_scopes=(counts[1],))
    for name in ("taskQueueCounts", "taskQueueCountsBatch"):
        example = example_call(name)
        succeeded(queue.call(name, example.body, TESTED, **example.params))
        answer = queue.call(name, example.body, None, **example.params)
        refused(answer, 403, "InsufficientScopes", "queue:pending-count:")


def test_a_call_about_several_queues_needs_the_scopes_of_each() -> None:
    counts = [f"queue:{what}-count:a/{name}" for what in ("pending", "claimed") for name in "bc"]
    queue = holding(*counts, anonymous_scopes=())
    succeeded(queue.call("taskQueueCountsBatch", {"taskQueueIds": ["a/b", "a/c"]}, TESTED))
    answer = queue.call("taskQueueCountsBatch", {"taskQueueIds": ["a/b", "a/d"]}, TESTED)
    refused(answer, 403, "InsufficientScopes", "`queue:pending-count:a/d`", "`queue:claimed-count:a/d`")


@pytest.mark.parametrize(
    "name", ["private/a", "public", "publicity/a", "Public/a", "/public/a", "x/../public/a"]
)
def test_only_artifacts_whose_names_begin_with_public_slash_need_no_scope(queue: Queue, name: str) -> None:
    queue.running(TASK_ID)
    for each in (name, "public/a"):
        succeeded(queue.artifact(TASK_ID, each, "reference"))
    for get in ("getArtifact", "getLatestArtifact", "artifact", "latestArtifact"):
        asked = {"taskId": TASK_ID, "runId": "0", "name": "public/a"}
        succeeded(queue.call(get, None, None, **asked))
        answer = queue.call(get, None, None, **{**asked, "name": name})
        refused(answer, 403, "InsufficientScopes", f"`queue:get-artifact:{name}`")


def test_if_the_anonymous_role_has_no_scopes_public_artifacts_need_a_scope_too() -> None:
    queue = Queue(anonymous_scopes=())
    answer = queue.call("getArtifact", None, None, taskId=TASK_ID, runId="0", name="public/a")
    refused(answer, 403, "InsufficientScopes", "`queue:get-artifact:public/a`")


def test_a_worker_scope_without_names_allows_nothing() -> None:
    verbs = ("queue:claim-task", "queue:reclaim-task", "queue:resolve-task", f"queue:create-artifact:{NAME}")
    queue = holding(*verbs, "assume:worker-id:/")
    queue.create(TASK_ID)
    for name in ("reclaimTask", "reportCompleted", "createArtifact"):
        answer = queue.call(name, example_call(name).body, TESTED, **example_call(name).params)
        refused(answer, 403, "InsufficientScopes")


# --- changed priorities


def member(queue: Queue, priority: str) -> str:
    return queue.create(taskGroupId=GROUP_ID, schedulerId="a-scheduler", priority=priority)


@pytest.mark.parametrize(
    ("scope", "raised", "lowered"),
    [
        (f"queue:raise-task-priority:{TASK_ID}", 200, 403),
        (f"queue:lower-task-priority:{TASK_ID}", 403, 200),
        (f"queue:create-task:high:{POOL}", 200, 200),
        (f"queue:create-task:medium:{POOL}", 403, 200),
        (f"queue:create-task:low:{POOL}", 403, 403),  # this scope does not cover the task's present priority
    ],
)
def test_each_scope_allows_raising_or_lowering_a_priority_or_both(
    scope: str, raised: int, lowered: int
) -> None:
    for new, status in (("high", raised), ("low", lowered)):
        queue = holding(scope)
        queue.create(TASK_ID, priority="medium")
        answer = queue.call("changeTaskPriority", {"newPriority": new}, TESTED, taskId=TASK_ID)
        assert answer.status_code == status


def test_a_change_of_a_groups_priority_changes_only_the_tasks_that_the_scopes_allow() -> None:
    may_raise, may_lower = (f"queue:{verb}-task-group-priority:{GROUP_ID}" for verb in ("raise", "lower"))
    new = {"newPriority": "medium"}
    queue = holding(may_raise)
    low, high = member(queue, "low"), member(queue, "high")
    assert queue.ask("changeTaskGroupPriority", new, TESTED, taskGroupId=GROUP_ID) == {
        "taskGroupId": GROUP_ID,
        "schedulerId": "a-scheduler",
        "newPriority": "medium",
        "tasksAffected": 1,
        "taskIds": [low],
    }
    assert queue.definition(high)["priority"] == "high"
    both = holding(may_raise, may_lower)
    members = [member(both, "low"), member(both, "high")]
    changed = both.ask("changeTaskGroupPriority", new, TESTED, taskGroupId=GROUP_ID)
    assert changed["tasksAffected"] == len(members)
