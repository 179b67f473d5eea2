"""Scopes: the declarations against CONTRACT, and each endpoint against its declaration.

How scopes and credentials are checked is decided in one place, so one endpoint shows all of that: createTask,
which asks for the most scopes.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.scopes import AllOf, AnyOf, Expression, render
from tests.http.calls import (
    DECLARED,
    GROUP_ID,
    NAME,
    NOW,
    PROVISIONER,
    TASK_ID,
    WORKER_TYPE,
    Credentials,
    Queue,
    play,
    refused,
    scene,
    succeeded,
    temporary,
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
    ("reportCompleted", "lowest"): RESOLVING,
    ("reportFailed", "lowest"): RESOLVING,
    ("reportException", "lowest"): RESOLVING,
}


def alternatives(expression: Expression) -> list[tuple[str, ...]]:
    """Each set of scopes that suffices, and from which nothing can be left out."""
    match expression:
        case str():
            return [(expression,)]
        case AnyOf(parts):
            return [scopes for part in parts for scopes in alternatives(part)]
        case AllOf(parts):
            return [sum(choice, ()) for choice in product(*map(alternatives, parts))]
    raise AssertionError(expression)


def declared(name: str, priority: str) -> set[frozenset[str]]:
    scopes = DECLARED[name].scopes
    assert scopes is not None
    return set(map(frozenset, alternatives(render(scopes, scene(name, priority).fields))))


GUARDED = [name for name, endpoint in DECLARED.items() if endpoint.scopes is not None]
OPEN = [name for name, endpoint in DECLARED.items() if endpoint.scopes is None]
OF_RUN_HOLDERS = [name for name in GUARDED if f"assume:worker-id:{WORKER}" in CONTRACT[name, "lowest"][-1]]
LONGEST = CONTRACT["createTask", "lowest"][-1]

TESTED = Credentials("tested/client", "the-access-token-of-the-tested-client")
ISSUER = Credentials("issuing/client", "the-access-token-of-the-issuing-client")


def holding(*scopes: str, issuer: Iterable[str] = (), **settings: Any) -> Queue:
    """A server that knows a client with exactly these scopes."""
    return Queue(
        Client(TESTED.client_id, TESTED.access_token, scopes),
        Client(ISSUER.client_id, ISSUER.access_token, tuple(issuer)),
        **settings,
    )


def with_one_changed(scopes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Almost sufficient: each scope in turn missing, longer, shorter, or written otherwise."""
    yield from with_one_missing(scopes)
    for number, scope in enumerate(scopes):
        before, after = scopes[:number], scopes[number + 1 :]
        for wrong in (scope + "x", scope[:-1], f"{scope}/*", scope.swapcase(), f" {scope}", f"x{scope}"):
            yield (*before, wrong, *after)


def with_one_missing(scopes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for number in range(len(scopes)):
        yield scopes[:number] + scopes[number + 1 :]


@pytest.mark.parametrize("name", GUARDED)
def test_the_declared_scopes_are_those_of_the_contract(name: str) -> None:
    for priority in ABOVE if name in CREATING else ("lowest",):
        assert declared(name, priority) == set(map(frozenset, CONTRACT[name, priority]))


def test_the_endpoints_without_scopes_are_those_of_the_contract() -> None:
    of_tasks = [
        "ping",
        "lbheartbeat",
        "heartbeat",
        "version",
        "task",
        "status",
        "listTaskGroup",
        "listDependentTasks",
        "pendingTasks",
    ]
    of_groups = ["statuses", "tasks", "getTaskGroup"]
    of_artifacts = ["artifactInfo", "latestArtifactInfo", "listArtifacts", "listLatestArtifacts"]
    of_workers = [
        name for kind in ("Provisioner", "WorkerType", "Worker") for name in (f"list{kind}s", f"get{kind}")
    ]
    assert {*of_tasks, *of_groups, *of_artifacts, *of_workers} == {*OPEN}


@pytest.mark.parametrize("name", GUARDED)
def test_each_alternative_suffices_but_not_with_a_scope_missing(name: str) -> None:
    for scopes in CONTRACT[name, "lowest"]:
        tested = {f"tested/{number}": fewer for number, fewer in enumerate(with_one_missing(scopes))}
        clients = {**tested, "tested/all": scopes}
        queue = Queue(*(Client(client_id, TESTED.access_token, held) for client_id, held in clients.items()))
        example = scene(name)
        example.prepare(queue)
        before = queue.call("status", taskId=TASK_ID).get_json().get("status")
        for client_id in tested:
            caller = Credentials(client_id, TESTED.access_token)
            answer = queue.call(name, example.body, caller, **example.params)
            refused(answer, 403, "InsufficientScopes", client_id, name, "lacks")
        assert queue.call("status", taskId=TASK_ID).get_json().get("status") == before
        caller = Credentials("tested/all", TESTED.access_token)
        succeeded(queue.call(name, example.body, caller, **example.params))


def test_a_refusal_names_the_scopes_of_each_alternative() -> None:
    answer = play(holding(), "createTask", TESTED)
    scopes = [f"`{scope}`" for scopes in CONTRACT["createTask", "lowest"] for scope in scopes]
    refused(answer, 403, "InsufficientScopes", *scopes)


@pytest.mark.parametrize("name", GUARDED)
def test_a_caller_without_valid_credentials_is_refused_where_scopes_are_needed(name: str) -> None:
    queue, example = holding(), scene(name)
    example.prepare(queue)
    answer = queue.call(name, example.body, None, **example.params)
    refused(answer, 403, "InsufficientScopes", "without credentials", "queue:")
    if DECLARED[name].method != "GET":  # a stranger's body is not parsed
        answer = queue.call(name, "no object", None, **example.params)
        refused(answer, 403, "InsufficientScopes", "queue:")
    answer = queue.call(name, example.body, WORTHLESS["another key"], **example.params)
    refused(answer, 401, "AuthenticationFailed", "check the credentials")


@pytest.mark.parametrize("name", OPEN)
def test_an_endpoint_without_scopes_answers_any_caller(name: str) -> None:
    """It ignores invalid credentials, as the original queue did, and the log says so."""
    queue, example = holding(), scene(name)
    example.prepare(queue)
    for credentials in (None, TESTED, TESTED.narrowed()):
        succeeded(queue.call(name, example.body, credentials, **example.params))
    with capture_logs() as logs:
        succeeded(queue.call(name, example.body, WORTHLESS["no such client"], **example.params))
    [line] = [line for line in logs if line["event"] == "authentication-ignored"]
    assert (line["log_level"], line["endpoint"]) == ("info", name)
    assert (line["client_id"], line["reason"]) == ("nobody", "no such client")


def test_a_scope_with_any_change_is_not_sufficient() -> None:
    tested = {f"tested/{number}": almost for number, almost in enumerate(with_one_changed(LONGEST))}
    queue = Queue(*(Client(client_id, TESTED.access_token, held) for client_id, held in tested.items()))
    example = scene("createTask")
    for client_id in tested:
        caller = Credentials(client_id, TESTED.access_token)
        answer = queue.call("createTask", example.body, caller, **example.params)
        refused(answer, 403, "InsufficientScopes", client_id)


@pytest.mark.parametrize(
    "scopes",
    [
        [f"{scope.removesuffix('*')}*" for scope in LONGEST],
        [f"{scope[: len(scope) // 2]}*" for scope in LONGEST],
        ["unrelated", *reversed(LONGEST), "another:*"],
        ["*"],
        [*LONGEST, *LONGEST],
    ],
    ids=["starred", "prefixes", "more", "everything", "doubled"],
)
def test_wider_scopes_suffice(scopes: list[str]) -> None:
    succeeded(play(holding(*scopes), "createTask", TESTED))


def test_a_narrowed_request_may_do_only_what_it_is_narrowed_to() -> None:
    queue, example = holding("*"), scene("createTask")
    for almost in with_one_changed(LONGEST):
        answer = queue.call("createTask", example.body, TESTED.narrowed(*almost), **example.params)
        refused(answer, 403, "InsufficientScopes")
    succeeded(queue.call("createTask", example.body, TESTED.narrowed(*LONGEST), **example.params))


def forged(client_id: str, made: Credentials, scopes: str = "[]") -> Credentials:
    """Temporary credentials under another name, or with other scopes written in."""
    certificate = (made.certificate or "").replace('"scopes":[]', f'"scopes":{scopes}')
    return Credentials(client_id, made.access_token, certificate)


# credentials that are not valid, by the reason
DRIFT = timedelta(minutes=5, seconds=2)
WORTHLESS = {
    "another key": Credentials(ISSUER.client_id, TESTED.access_token),
    "no such client": Credentials("nobody", TESTED.access_token),
    "ended": temporary(ISSUER, ["*"], expiry=NOW - DRIFT),
    "not begun": temporary(ISSUER, ["*"], start=NOW + DRIFT),
    "no such issuer": temporary(Credentials("nobody", "x" * 30), ["*"]),
    "signed by another issuer": temporary(Credentials(ISSUER.client_id, TESTED.access_token), ["*"]),
    "an issuer who holds less": temporary(TESTED, ["some:scope"]),
    "a name that is not the issuer's to give": temporary(TESTED, [], "root"),
    "another's name": forged("root", temporary(ISSUER, ["*"])),
    "a name without its issuer": forged("root", temporary(ISSUER, [])),
    "other scopes written in": forged(ISSUER.client_id, temporary(ISSUER, []), '["*"]'),
}


@pytest.mark.parametrize("why", WORTHLESS)
def test_invalid_credentials_are_refused_where_scopes_are_needed_and_ignored_elsewhere(why: str) -> None:
    queue = holding(issuer=["*"])
    answer = play(queue, "createTask", WORTHLESS[why])
    refused(answer, 401, "AuthenticationFailed", "check the credentials")
    succeeded(play(queue, "ping", WORTHLESS[why]))


BEFORE = {
    "pending": Queue.create,
    "unscheduled": Queue.define,
    "canceled before a claim": Queue.canceled,
}


@pytest.mark.parametrize(
    ("name", "before"),
    [*product(OF_RUN_HOLDERS, ["pending"]), *product(["reportCompleted"], [*BEFORE][1:])],
)
def test_the_scope_of_a_worker_without_a_name_allows_nothing(name: str, before: str) -> None:
    verbs = ("queue:claim-task", "queue:reclaim-task", "queue:resolve-task", f"queue:create-artifact:{NAME}")
    queue = holding(*verbs, "assume:worker-id:/")
    BEFORE[before](queue, TASK_ID)
    state, example = queue.call("status", taskId=TASK_ID).get_json(), scene(name)
    answer = queue.call(name, example.body, TESTED, **example.params)
    if answer.status_code != 404:  # an unscheduled task has no run
        codes = {"InsufficientScopes"} | ({"InputError"} if before == "unscheduled" else set())
        assert answer.get_json()["code"] in codes
    assert queue.call("status", taskId=TASK_ID).get_json() == state


@pytest.mark.parametrize(
    ("name", "legacy"), [(name, scopes) for name in CREATING for scopes in CONTRACT[name, "lowest"][-2:]]
)
def test_the_legacy_scopes_create_no_task_above_the_lowest_priority(
    name: str, legacy: tuple[str, ...]
) -> None:
    answer = play(holding(*legacy), name, TESTED, priority="very-low")
    refused(answer, 403, "InsufficientScopes", "queue:create-task:very-low:")


@pytest.mark.parametrize("held", ABOVE)
def test_the_scope_for_a_priority_creates_tasks_of_that_priority_and_of_lower_ones(held: str) -> None:
    queue = holding(*LISTS, "queue:scheduler-id:*", f"queue:create-task:{held}:{POOL}")
    for wanted in ABOVE:
        answer = play(queue, "defineTask", TESTED, priority=wanted)
        # all have the same taskId: the first is created, each other is a conflict with it
        assert (answer.status_code != 403) is (ABOVE.index(held) <= ABOVE.index(wanted))


def test_the_scopes_of_define_task_alone_create_no_task() -> None:
    queue = holding(*LISTS, f"queue:define-task:{POOL}")
    refused(play(queue, "createTask", TESTED), 403, "InsufficientScopes", f"`queue:create-task:{POOL}`")
