"""Who may call what, generated from the declarations, which are held against CONTRACT first."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import product

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
    ROOT,
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
        (*LISTS, "queue:scheduler-id:a-scheduler", f"queue:create-task:{one}:{POOL}")
        for one in ABOVE[: ABOVE.index(priority) + 1]
    ]


# The contract: of each method that needs scopes, the alternatives
CONTRACT = {
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
        *((f"queue:create-task:{one}:{POOL}",) for one in ABOVE[:3]),
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
        (f"declare{kind}", "lowest"): [tuple(f"queue:declare-{path}#{one}" for one in properties)]
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
    """Each set of scopes that is enough, and from which nothing can be left out."""
    match expression:
        case str():
            return [(expression,)]
        case AnyOf(parts):
            return [one for part in parts for one in alternatives(part)]
        case AllOf(parts):
            return [sum(choice, ()) for choice in product(*map(alternatives, parts))]
    raise AssertionError(expression)


def declared(name: str, priority: str) -> list[tuple[str, ...]]:
    scopes = DECLARED[name].scopes
    assert scopes is not None
    return alternatives(render(scopes, scene(name, priority).fields))


GUARDED = [
    (name, priority)
    for name, endpoint in DECLARED.items()
    if endpoint.scopes is not None
    for priority in (ABOVE if name in CREATING else ("lowest",))
]
OPEN = [name for name, endpoint in DECLARED.items() if endpoint.scopes is None]
ENOUGH = [
    pytest.param(name, priority, scopes, id=f"{name}-{priority}-{number}")
    for name, priority in GUARDED
    if priority in ("highest", "medium", "lowest")  # all seven are held against each other below
    for number, scopes in enumerate(declared(name, priority))
]
each_way = pytest.mark.parametrize(("name", "priority", "scopes"), ENOUGH)

TESTED = Credentials("tested/client", "the-access-token-of-the-tested-client")
ISSUER = Credentials("issuing/client", "the-access-token-of-the-issuing-client")


def holding(*scopes: str, issuer: Iterable[str] = (), **settings: object) -> Queue:
    """A server that knows a client with exactly these scopes."""
    return Queue(
        Client(TESTED.client_id, TESTED.access_token, scopes),
        Client(ISSUER.client_id, ISSUER.access_token, tuple(issuer)),
        **settings,
    )


def with_one_changed(scopes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Almost enough: each scope in turn missing, longer, shorter, or written otherwise."""
    yield from with_one_missing(scopes)
    for number, scope in enumerate(scopes):
        before, after = scopes[:number], scopes[number + 1 :]
        for wrong in (scope + "x", scope[:-1], f"{scope}/*", scope.swapcase(), f" {scope}", f"x{scope}"):
            yield (*before, wrong, *after)


def with_one_missing(scopes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for number in range(len(scopes)):
        yield scopes[:number] + scopes[number + 1 :]


@pytest.mark.parametrize(("name", "priority"), GUARDED)
def test_an_endpoint_is_declared_with_other_scopes_than_the_contract_says(name: str, priority: str) -> None:
    assert {frozenset(one) for one in declared(name, priority)} == {
        frozenset(one) for one in CONTRACT[name, priority]
    }


def test_an_endpoint_needs_no_scopes_that_should() -> None:
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


@each_way
def test_the_exact_scopes_are_not_enough(name: str, priority: str, scopes: tuple[str, ...]) -> None:
    succeeded(play(holding(*scopes), name, TESTED, priority=priority))


@pytest.mark.parametrize("scopes", CONTRACT["createTask", "lowest"])
@pytest.mark.parametrize("written", ["starred", "prefixes", "more", "everything", "doubled"])
def test_wider_scopes_are_enough(scopes: tuple[str, ...], written: str) -> None:
    """What is held is compared in one place: one endpoint shows it, that of the most scopes."""
    wider = {
        "starred": [f"{scope.removesuffix('*')}*" for scope in scopes],
        "prefixes": [f"{scope[: len(scope) // 2]}*" for scope in scopes],
        "more": ["unrelated", *reversed(scopes), "another:*"],
        "everything": ["*"],
        "doubled": [*scopes, *scopes],
    }[written]
    succeeded(play(holding(*wider), "createTask", TESTED))


@each_way
def test_almost_the_scopes_are_enough(name: str, priority: str, scopes: tuple[str, ...]) -> None:
    """Scopes are compared in one place: createTask, which asks for most, shows those written otherwise."""
    changed = with_one_changed if (name, priority) == ("createTask", "lowest") else with_one_missing
    tested = {f"tested/{number}": almost for number, almost in enumerate(changed(scopes))}
    queue = Queue(*(Client(client_id, TESTED.access_token, held) for client_id, held in tested.items()))
    one = scene(name, priority)
    one.prepare(queue)
    for client_id in tested:
        answer = queue.call(name, one.body, Credentials(client_id, TESTED.access_token), **one.params)
        refused(answer, 403, "InsufficientScopes", client_id, name, "lacks")


@pytest.mark.parametrize("scopes", CONTRACT["createTask", "lowest"])
def test_scopes_reached_through_a_role_are_enough(scopes: tuple[str, ...]) -> None:
    queue = holding("assume:worker:one", roles={"worker:*": scopes})
    succeeded(play(queue, "createTask", TESTED))


@each_way
def test_a_refused_call_does_not_say_which_scopes_are_missing(
    name: str, priority: str, scopes: tuple[str, ...]
) -> None:
    answer = play(holding(), name, TESTED, priority=priority)
    refused(answer, 403, "InsufficientScopes", *(f"`{scope}`" for scope in scopes))


@pytest.mark.parametrize("name", dict(GUARDED))
def test_a_request_without_credentials_may_not_call_what_needs_scopes(name: str) -> None:
    answer = play(Queue(), name, None)
    refused(answer, 403, "InsufficientScopes", "without credentials", "queue:")


@pytest.mark.parametrize("name", [name for name in dict(GUARDED) if DECLARED[name].method != "GET"])
def test_a_change_without_credentials_is_refused_before_its_body_is_parsed(name: str) -> None:
    one = scene(name)
    refused(Queue().call(name, "no object", None, **one.params), 403, "InsufficientScopes", "queue:")


@pytest.mark.parametrize("name", OPEN)
def test_an_endpoint_without_scopes_answers_anybody(name: str) -> None:
    queue, one = holding(), scene(name)
    one.prepare(queue)
    for credentials in (None, TESTED, TESTED.narrowed()):
        succeeded(queue.call(name, one.body, credentials, **one.params))


@pytest.mark.parametrize("scopes", CONTRACT["createTask", "lowest"])
def test_a_narrowed_request_may_what_it_is_narrowed_to_and_nothing_else(scopes: tuple[str, ...]) -> None:
    queue, one = holding("*"), scene("createTask")
    for almost in with_one_changed(scopes):
        answer = queue.call("createTask", one.body, TESTED.narrowed(*almost), **one.params)
        refused(answer, 403, "InsufficientScopes")
    succeeded(queue.call("createTask", one.body, TESTED.narrowed(*scopes), **one.params))


@pytest.mark.parametrize("scopes", CONTRACT["createTask", "lowest"])
def test_no_request_is_widened_by_authorized_scopes(scopes: tuple[str, ...]) -> None:
    answer = play(holding(*scopes[:-1]), "createTask", TESTED.narrowed(*scopes))
    refused(answer, 401, "AuthenticationFailed")


@pytest.mark.parametrize("scopes", CONTRACT["createTask", "lowest"])
@pytest.mark.parametrize("name_given", [None, "some/name"])
def test_temporary_credentials_with_the_scopes_are_enough(
    scopes: tuple[str, ...], name_given: str | None
) -> None:
    queue = holding(issuer=[*scopes, "auth:create-client:some/*"])
    succeeded(play(queue, "createTask", temporary(ISSUER, scopes, name_given)))


@pytest.mark.parametrize("scopes", CONTRACT["createTask", "lowest"])
def test_temporary_credentials_may_no_more_than_they_say(scopes: tuple[str, ...]) -> None:
    queue, one = holding(issuer=["*"]), scene("createTask")
    for almost in with_one_changed(scopes):
        answer = queue.call("createTask", one.body, temporary(ISSUER, almost), **one.params)
        refused(answer, 403, "InsufficientScopes", "issuing/client")


def forged(client_id: str, made: Credentials, scopes: str = "[]") -> Credentials:
    """Temporary credentials under another name, or with other scopes written in."""
    certificate = (made.certificate or "").replace('"scopes":[]', f'"scopes":{scopes}')
    return Credentials(client_id, made.access_token, certificate)


# why a caller's credentials are worth nothing
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
def test_credentials_that_are_worth_nothing_are_refused_where_scopes_are_needed(why: str) -> None:
    answer = play(holding(issuer=["*"]), "createTask", WORTHLESS[why])
    refused(answer, 401, "AuthenticationFailed", "check the credentials")


@pytest.mark.parametrize("name", dict(GUARDED))
def test_failed_credentials_are_refused_by_every_endpoint_that_needs_scopes(name: str) -> None:
    answer = play(holding(), name, WORTHLESS["another key"])
    refused(answer, 401, "AuthenticationFailed", "check the credentials")


@pytest.mark.parametrize("why", WORTHLESS)
def test_credentials_that_are_worth_nothing_are_overlooked_where_no_scopes_are_needed(why: str) -> None:
    succeeded(play(holding(issuer=["*"]), "ping", WORTHLESS[why]))


@pytest.mark.parametrize("name", OPEN)
def test_failed_credentials_are_overlooked_by_every_endpoint_without_scopes(name: str) -> None:
    """As the original did."""
    queue, one = holding(), scene(name)
    one.prepare(queue)
    with capture_logs() as logs:
        succeeded(queue.call(name, one.body, WORTHLESS["no such client"], **one.params))
    ignored = {"event": "authentication-ignored", "log_level": "info", "endpoint": name}
    told = [{name: value for name, value in one.items() if name != "request_id"} for one in logs]
    assert {**ignored, "client_id": "nobody", "reason": "no such client"} in told


NOBODY = ("queue:claim-task", "queue:reclaim-task", "queue:resolve-task", f"queue:create-artifact:{NAME}")
BEFORE = {
    "pending": Queue.create,
    "unscheduled": Queue.define,
    "canceled before a claim": Queue.canceled,
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", dict(GUARDED))
def test_the_scope_of_a_worker_without_a_name_is_good_for_nothing(name: str, before: str) -> None:
    queue = holding(*NOBODY, "assume:worker-id:/")
    BEFORE[before](queue, TASK_ID)
    state, one = queue.call("status", taskId=TASK_ID).get_json(), scene(name)
    answer = queue.call(name, one.body, TESTED, **one.params)
    if answer.status_code != 404:  # an unscheduled task has no run
        codes = {"InsufficientScopes"} | ({"InputError"} if before == "unscheduled" else set())
        assert answer.get_json()["code"] in codes
    assert queue.call("status", taskId=TASK_ID).get_json() == state


@pytest.mark.parametrize(
    ("name", "legacy"), [(name, scopes) for name in CREATING for scopes in CONTRACT[name, "lowest"][-2:]]
)
@pytest.mark.parametrize("priority", ABOVE[:-1])
def test_the_legacy_scopes_create_a_task_above_the_lowest_priority(
    name: str, legacy: tuple[str, ...], priority: str
) -> None:
    answer = play(holding(*legacy), name, TESTED, priority=priority)
    refused(answer, 403, "InsufficientScopes", f"queue:create-task:{priority}:")


@pytest.mark.parametrize("held", ABOVE)
@pytest.mark.parametrize("wanted", ABOVE)
@pytest.mark.parametrize("name", CREATING)
def test_a_scope_for_one_priority_is_good_for_a_higher_one(name: str, held: str, wanted: str) -> None:
    queue = holding(*LISTS, "queue:scheduler-id:*", f"queue:create-task:{held}:{POOL}")
    answer = play(queue, name, TESTED, priority=wanted)
    assert answer.status_code == (200 if ABOVE.index(held) <= ABOVE.index(wanted) else 403)


def test_a_refused_call_changes_the_task() -> None:
    for name, priority in GUARDED:
        queue = holding()
        one = scene(name, priority)
        one.prepare(queue)
        before = queue.call("status", taskId=TASK_ID).get_json().get("status", "no such task")
        assert queue.call(name, one.body, TESTED, **one.params).status_code == 403
        after = queue.call("status", taskId=TASK_ID).get_json().get("status", "no such task")
        assert after == before


def test_what_defines_a_task_alone_creates_one_that_is_pending() -> None:
    queue = holding(*LISTS, f"queue:define-task:{POOL}")
    refused(play(queue, "createTask", TESTED), 403, "InsufficientScopes", f"`queue:create-task:{POOL}`")


def test_the_root_client_is_refused_by_anything() -> None:
    for name in DECLARED:
        succeeded(play(Queue(), name, ROOT))
