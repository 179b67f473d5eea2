"""Scopes: the declarations against CONTRACT, and each endpoint against its declaration.

How an expression is evaluated is shown in tests/domain/test_scopes.py, how credentials are checked in
tests/domain/test_authentication.py: here, that each endpoint asks for the scopes of what the call is about.
"""

import re
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
    holding,
    refused,
    scene,
    succeeded,
)

POOL = f"{PROVISIONER}/{WORKER_TYPE}"
WORKER = "group/alice"
GROUP = f"a-scheduler/{GROUP_ID}"
RUN = f"{TASK_ID}/0"
LISTS = (
    *("some:scope:*", "another scope", "queue:route:index.a.b", "queue:route:tc-treeherder.v2"),
    "queue:create-task:project:a/project",
)
CREATING = ("createTask", "defineTask")
DECLARED_PROPERTIES = ("description", "expires", "stability")
ABOVE = ("highest", "very-high", "high", "medium", "low", "very-low", "lowest")


RESOLVING = [
    (f"queue:claim-task:{RUN}",),
    (f"queue:resolve-task:{RUN}",),
    ("queue:resolve-task", f"assume:worker-id:{WORKER}"),
]


def creating(priority: str) -> list[tuple[str, ...]]:
    return [
        (*LISTS, "queue:scheduler-id:a-scheduler", f"queue:create-task:{higher}:{POOL}")
        for higher in ABOVE[: ABOVE.index(priority) + 1]
    ]


# The contract: of each method that needs scopes, the alternatives
CONTRACT: dict[tuple[str, str], list[tuple[str, ...]]] = {
    ("createTask", "lowest"): [
        *creating("lowest"),
        (*LISTS, f"queue:create-task:{POOL}"),
        (
            *LISTS,
            f"queue:define-task:{POOL}",
            f"queue:task-group-id:{GROUP}",
            f"queue:schedule-task:{GROUP}/{TASK_ID}",
        ),
    ],
    ("defineTask", "lowest"): [
        *creating("lowest"),
        (*LISTS, f"queue:create-task:{POOL}"),
        (*LISTS, f"queue:define-task:{POOL}"),
    ],
    **{(name, priority): creating(priority) for name in CREATING for priority in ABOVE[:-1]},
    **{
        (f"{verb}Task", "lowest"): [
            (f"queue:{verb}-task:{GROUP}/{TASK_ID}",),
            (f"queue:{verb}-task-in-project:a/project",),
            (f"queue:{verb}-task", f"assume:scheduler-id:{GROUP}"),
        ]
        for verb in ("schedule", "rerun", "cancel")
    },
    ("sealTaskGroup", "lowest"): [(f"queue:seal-task-group:{GROUP}",)],
    ("cancelTaskGroup", "lowest"): [(f"queue:cancel-task-group:{GROUP}",)],
    ("changeTaskPriority", "lowest"): [
        (f"queue:change-task-priority:{TASK_ID}",),
        (f"queue:change-task-priority-in-queue:{POOL}",),
        (f"queue:raise-task-priority:{TASK_ID}",),
        *((f"queue:create-task:{higher}:{POOL}",) for higher in ABOVE[:3]),
    ],
    ("changeTaskGroupPriority", "lowest"): [
        (f"queue:change-task-group-priority:{GROUP}",),
        (f"queue:raise-task-group-priority:{GROUP_ID}",),
    ],
    ("pollTaskUrls", "lowest"): [
        (f"queue:poll-task-urls:{POOL}",),
        ("queue:poll-task-urls", f"assume:worker-type:{POOL}"),
    ],
    ("claimTask", "lowest"): [
        (f"queue:claim-task:{POOL}", f"queue:worker-id:{WORKER}"),
        ("queue:claim-task", f"assume:worker-type:{POOL}", f"assume:worker-id:{WORKER}"),
    ],
    ("claimWork", "lowest"): [(f"queue:claim-work:{POOL}", f"queue:worker-id:{WORKER}")],
    **{
        (name, "lowest"): [(f"queue:pending-count:{POOL}", f"queue:claimed-count:{POOL}")]
        for name in ("taskQueueCounts", "taskQueueCountsBatch")
    },
    ("listPendingTasks", "lowest"): [(f"queue:pending-list:{POOL}",)],
    ("listClaimedTasks", "lowest"): [(f"queue:claimed-list:{POOL}",)],
    ("listTaskQueues", "lowest"): [("queue:list-task-queues",)],
    ("getTaskQueue", "lowest"): [(f"queue:get-task-queue:{POOL}",)],
    **{
        (f"declare{kind}", "lowest"): [tuple(f"queue:declare-{path}#{name}" for name in properties)]
        for kind, path, properties in [
            ("Provisioner", f"provisioner:{PROVISIONER}", ("actions", *DECLARED_PROPERTIES)),
            ("WorkerType", f"worker-type:{POOL}", DECLARED_PROPERTIES),
            ("Worker", f"worker:{POOL}/{WORKER}", ("expires",)),
        ]
    },
    ("quarantineWorker", "lowest"): [(f"queue:quarantine-worker:{POOL}/{WORKER}",)],
    ("reclaimTask", "lowest"): [
        (f"queue:claim-task:{RUN}",),
        (f"queue:reclaim-task:{RUN}",),
        ("queue:claim-task", f"assume:worker-id:{WORKER}"),
    ],
    **{
        (f"{verb}Artifact", "lowest"): [
            (f"queue:claim-task:{RUN}",),
            (f"queue:create-artifact:{RUN}",),
            (f"queue:create-artifact:{NAME}", f"assume:worker-id:{WORKER}"),
        ]
        for verb in ("create", "complete", "finish")
    },
    **{
        (name, "lowest"): [(f"queue:get-artifact:{NAME}",)]
        for name in ("getArtifact", "getLatestArtifact", "artifact", "latestArtifact")
    },
    **{
        (name, "lowest"): [(scope,)]
        for names, scope in [
            (("task", "tasks"), f"queue:get-task:{TASK_ID}"),
            (("status", "statuses"), f"queue:status:{TASK_ID}"),
            (("listTaskGroup", "getTaskGroup"), f"queue:list-task-group:{GROUP_ID}"),
            (("listDependentTasks",), f"queue:list-dependent-tasks:{TASK_ID}"),
            (("listArtifacts", "artifactInfo"), f"queue:list-artifacts:{TASK_ID}:0"),
            (("listLatestArtifacts", "latestArtifactInfo"), f"queue:list-artifacts:{TASK_ID}"),
            (("pendingTasks",), f"queue:pending-count:{POOL}"),
            (("listProvisioners",), "queue:list-provisioners"),
            (("getProvisioner",), f"queue:get-provisioner:{PROVISIONER}"),
            (("listWorkerTypes",), f"queue:list-worker-types:{PROVISIONER}"),
            (("getWorkerType",), f"queue:get-worker-type:{POOL}"),
            (("listWorkers",), f"queue:list-workers:{POOL}"),
            (("getWorker",), f"queue:get-worker:{POOL}/{WORKER}"),
        ]
        for name in names
    },
    ("reportCompleted", "lowest"): RESOLVING,
    ("reportFailed", "lowest"): RESOLVING,
    ("reportException", "lowest"): RESOLVING,
}


def alternatives(expression: Expression, fields: Params) -> list[tuple[str, ...]]:
    """Each set of scopes that suffices, and from which nothing can be left out."""
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
# what needed no scope in 2018, and what later clients ask for in place of that
OPEN = {
    *("task", "status", "listTaskGroup", "listDependentTasks", "pendingTasks"),
    *("tasks", "statuses", "getTaskGroup"),
    *("artifactInfo", "latestArtifactInfo", "listArtifacts", "listLatestArtifacts"),
    *("listProvisioners", "listWorkerTypes", "listWorkers", "getProvisioner", "getWorkerType", "getWorker"),
}


@pytest.mark.parametrize("name", GUARDED)
def test_the_declared_scopes_are_those_of_the_contract(name: str) -> None:
    scopes = DECLARED[name].scopes
    assert scopes is not None
    for priority in ABOVE if name in CREATING else ("lowest",):
        declared = alternatives(scopes, scene(name, priority).fields)
        assert {*map(frozenset, declared)} == {*map(frozenset, CONTRACT[name, priority])}


def test_the_endpoints_without_scopes_and_those_open_by_default_are_those_of_the_contract() -> None:
    assert {*DECLARED} - {*GUARDED} == {"ping", "lbheartbeat", "heartbeat", "version"}
    assert {name for name in GUARDED if covers(OPEN_READS, CONTRACT[name, "lowest"][0][:1])} - {
        "taskQueueCounts",
        "taskQueueCountsBatch",
    } == OPEN


@pytest.mark.parametrize("name", GUARDED)
def test_an_endpoint_needs_each_scope_of_an_alternative(name: str) -> None:
    """Without credentials a caller is refused before its body is parsed. Each answer is held against the
    served schema, those of 2018 and today's.
    """
    choices = CONTRACT[name, "lowest"]
    fewer = [tuple({*scopes} - {scope}) for scopes in choices for scope in scopes]
    clients = [Client(f"lacks/{number}", TESTED.access_token, held) for number, held in enumerate(fewer)]
    sufficing = Client(TESTED.client_id, TESTED.access_token, choices[-1])
    queue, example = Queue(*clients, sufficing, anonymous_scopes=()), scene(name)
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
def test_an_endpoint_without_scopes_answers_any_caller_and_by_default_an_open_read(name: str) -> None:
    """It ignores invalid credentials, as the original queue did, and the log says so."""
    queue, example = holding(), scene(name)
    example.prepare(queue)
    for credentials in (None, TESTED, TESTED.narrowed()):
        succeeded(queue.call(name, example.body, credentials, **example.params))
    with capture_logs() as logs:
        succeeded(queue.call(name, example.body, replace(TESTED, client_id="nobody"), **example.params))
    [line] = [line for line in logs if line["event"] == "authentication-ignored"]
    assert (line["log_level"], line["endpoint"]) == ("info", name)
    assert (line["client_id"], line["reason"]) == ("nobody", "no such client")


def test_a_caller_has_its_own_scopes_and_those_of_the_anonymous_role() -> None:
    counts = [f"queue:{what}-count:{POOL}" for what in ("pending", "claimed")]
    queue = holding(counts[0], anonymous_scopes=(counts[1],))
    for name in ("taskQueueCounts", "taskQueueCountsBatch"):
        example = scene(name)
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


def test_public_artifacts_need_a_scope_too_once_the_anonymous_role_has_none() -> None:
    queue = Queue(anonymous_scopes=())
    queue.running(TASK_ID)
    succeeded(queue.artifact(TASK_ID, "public/a"))
    answer = queue.call("getArtifact", None, None, taskId=TASK_ID, runId="0", name="public/a")
    refused(answer, 403, "InsufficientScopes", "`queue:get-artifact:public/a`")


@pytest.mark.parametrize("name", ["reclaimTask", "reportCompleted", "createArtifact"])
def test_the_scope_of_a_worker_without_a_name_allows_nothing(name: str) -> None:
    verbs = ("queue:claim-task", "queue:reclaim-task", "queue:resolve-task", f"queue:create-artifact:{NAME}")
    queue = holding(*verbs, "assume:worker-id:/")
    queue.create(TASK_ID)
    example = scene(name)
    answer = queue.call(name, example.body, TESTED, **example.params)
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
        (f"queue:create-task:low:{POOL}", 403, 403),  # it has no right to the task as it is
    ],
)
def test_a_scope_allows_to_raise_or_to_lower_a_priority(scope: str, raised: int, lowered: int) -> None:
    for new, status in (("high", raised), ("low", lowered)):
        queue = holding(scope)
        queue.create(TASK_ID, priority="medium")
        answer = queue.call("changeTaskPriority", {"newPriority": new}, TESTED, taskId=TASK_ID)
        assert answer.status_code == status


def test_only_the_tasks_whose_change_the_scopes_allow_are_changed() -> None:
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
