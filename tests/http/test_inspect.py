"""What the queue says of itself to an operator: ``/inspect/v1``."""

from datetime import timedelta
from typing import Any, get_args

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.explanation import WAIT_SITUATIONS, WaitSituation
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.times import format_time
from legacy_queue.http.schemas import SCHEMAS
from tests.http.calls import (
    NOW,
    POOL,
    PROVISIONER,
    ROOT_URL,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    refused,
    succeeded,
)

POOL_NAME = f"{PROVISIONER}/{WORKER_TYPE}"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True)


def inspected(queue: Queue, target: str) -> Any:
    return succeeded(queue.send("GET", f"/inspect/v1/{target}")).get_json()


@pytest.mark.parametrize("target", ["task/VLdaX5vAQ0iW8JIr3sGQZw", "tasks", "pools", "messages/a/b"])
def test_it_needs_a_scope_of_its_own(target: str) -> None:
    scopes = ("queue:control", "queue:migration")
    others = Credentials("others", "the-access-token-of-another-client")
    queue = Queue(Client(others.client_id, others.access_token, scopes))
    refused(queue.send("GET", f"/inspect/v1/{target}", credentials=None), 403, "InsufficientScopes")
    answer = queue.send("GET", f"/inspect/v1/{target}", credentials=others)
    refused(answer, 403, "InsufficientScopes", "queue:inspect")


def test_every_situation_has_a_meaning_and_is_in_the_schema() -> None:
    wait = SCHEMAS["inspect-task-response"]["properties"]["waitsFor"]["items"]
    assert [*get_args(WaitSituation)] == [*WAIT_SITUATIONS] == wait["properties"]["situation"]["enum"]


def test_an_unknown_task_is_not_found(queue: Queue) -> None:
    refused(queue.send("GET", "/inspect/v1/task/VLdaX5vAQ0iW8JIr3sGQZw"), 404, "ResourceNotFound")


@pytest.mark.parametrize("control", [True, False])
def test_the_story_of_a_task_has_its_runs_and_with_control_its_requests(control: bool) -> None:
    queue = Queue(control=control)
    task_id = queue.create(priority="high")
    queue.clock.advance(MINUTE)
    queue.claim(task_id)
    queue.clock.advance(MINUTE)
    queue.claim(task_id, workerId="another")
    queue.clock.advance(MINUTE)
    body = {"reason": "malformed-payload"}
    succeeded(queue.call("reportException", body, taskId=task_id, runId=0))
    until = format_time(NOW + MINUTE + queue.settings.claim_timeout)
    by = "/".join(WORKER.values())
    story = [
        (0, "createTask by root: 200"),
        (0, f"defined for {POOL_NAME}, with priority high"),
        (0, "run 0 is pending (scheduled)"),
        (1, f"claimTask of run 0 by {by}: 200"),
        (1, f"run 0 is running: claimed by {by}, taken until {until}"),
        (2, f"claimTask of run 0 by {WORKER['workerGroup']}/another: 409 RequestConflict, "),
        (3, "reportException of run 0 by root: 200"),
        (3, "run 0 is exception (malformed-payload)"),
    ]
    wanted = [entry for entry in story if control or (": 200" not in entry[1] and ": 409" not in entry[1])]
    told = [it for it in inspected(queue, f"task/{task_id}")["story"] if it["kind"] != "event"]
    times = [moment["time"] for moment in told]
    assert times == sorted(times)
    for moment, (at, words) in zip(told, wanted, strict=True):
        assert moment["what"].startswith(words)
        if " by root: " not in words and "claimTask" not in words:  # these have the time of their begin
            assert moment["time"] == format_time(NOW + at * MINUTE)


def test_the_story_has_the_events_of_the_task_and_with_control_the_moves_of_the_clock() -> None:
    queue = Queue(control=True)
    task_id = queue.create()
    queue.create()
    begin = format_time(queue.clock.now())
    succeeded(queue.send("POST", "/control/v1/clock", b'{"advance": "5m"}'))
    queue.claim(task_id)
    told = inspected(queue, f"task/{task_id}")["story"]
    events = [(it["time"], it["what"]) for it in told if it["kind"] == "event"]
    later = format_time(queue.clock.now() + 5 * MINUTE)
    assert events == [
        (begin, "task-defined published"),
        (begin, "task-pending published"),
        (later, "task-running published"),
    ]
    move = {
        "time": begin,
        "what": "the clock was moved by 5m",
        "kind": "clock",
        "movedTo": later,
        "frozen": False,
    }
    assert [it for it in told if it["kind"] == "clock"] == [move]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", ["pending", "running", "another"]),
        ("?state=all", ["pending", "running", "canceled", "another"]),
        ("?state=pending", ["pending", "another"]),
        ("?state=exception", ["canceled"]),
        (f"?taskQueueId={PROVISIONER}%2Fanother&state=all", ["another"]),
        ("?state=failed", []),
    ],
)
def test_tasks_are_listed_by_state_and_by_worker_type(queue: Queue, query: str, wanted: list[str]) -> None:
    tasks = {
        queue.create(): "pending",
        queue.running(): "running",
        queue.canceled(): "canceled",
        queue.create(workerType="another"): "another",
    }
    listed = [status["taskId"] for status in inspected(queue, f"tasks{query}")["tasks"]]
    assert [tasks[task_id] for task_id in listed] == wanted[::-1]  # the newest first


def test_pools_have_their_tasks_and_messages_by_priority_and_their_callers(queue: Queue) -> None:
    queue.create(workerType="another", priority="high")
    queue.clock.advance(MINUTE)
    claimed = queue.running()
    queue.clock.advance(MINUTE)
    succeeded(queue.call("pollTaskUrls", **POOL))
    queue.create(workerType="another", priority="high")
    succeeded(queue.call("pollTaskUrls", **POOL | {"workerType": "zzz"}))
    another, pool, idle = inspected(queue, "pools")["pools"]
    assert [another["taskQueueId"], pool["taskQueueId"]] == [f"{PROVISIONER}/another", POOL_NAME]
    assert (idle["taskQueueId"], idle["pendingTasks"]) == (f"{PROVISIONER}/zzz", 0)
    assert [entry["priority"] for entry in pool["priorities"]] == [*PRIORITIES]
    assert (another["pendingTasks"], another["claimedTasks"], another["callers"]) == (2, 0, [])
    high = {"priority": "high", "pendingTasks": 2, "claimedTasks": 0, "oldest": format_time(NOW)}
    assert another["priorities"][2] == high
    assert [message["priority"] for message in another["messages"]] == ["high", "high"]
    assert (pool["pendingTasks"], pool["claimedTasks"], pool["policy"]) == (0, 1, "optional")
    (worker,) = pool["callers"]
    assert worker == {
        "caller": "/".join(WORKER.values()),
        "method": "pollTaskUrls",
        "last": format_time(NOW + 2 * MINUTE),
        "recentTasks": [{"taskId": claimed, "runId": 0}],
    }
    (client,) = idle["callers"]
    assert (client["caller"], client["method"]) == ("root", "pollTaskUrls")


def test_a_page_of_pools_says_how_many_there_are(queue: Queue) -> None:
    for worker_type in ("one", "two", "three"):
        queue.create(workerType=worker_type)
    answer = inspected(queue, "pools?limit=2")
    assert (len(answer["pools"]), answer["total"]) == (2, 3)
    answer = inspected(queue, f"pools?limit=2&continuationToken={answer['continuationToken']}")
    assert (len(answer["pools"]), answer["total"]) == (1, 3)


def callers(queue: Queue) -> dict[str, str]:
    """When each caller asked last for work."""
    (pool,) = inspected(queue, "pools")["pools"]
    return {caller["caller"]: caller["last"] for caller in pool["callers"]}


def test_a_poll_is_a_sign_of_life_of_its_worker_and_in_all_processes() -> None:
    queue = Queue()
    storage = queue.server.storage
    other = Queue(clock=queue.clock, storage=storage)
    target = succeeded(queue.call("pollTaskUrls", **POOL)).get_json()["queues"][0]["signedPollUrl"]
    target = target.removeprefix(ROOT_URL)
    queue.clock.advance(MINUTE)
    succeeded(queue.send("GET", target, credentials=None))
    assert callers(queue) == {"root": format_time(NOW + MINUTE)}, "it has no other name yet"
    queue.running()
    queue.clock.advance(MINUTE)
    succeeded(other.send("GET", target, credentials=None))
    other.server.services.workers.note_counted()
    other.server.services.workers.flush()
    worker = "/".join(WORKER.values())
    assert callers(queue) == {worker: format_time(NOW + 2 * MINUTE)}
    succeeded(queue.claim(queue.create(), workerId="another"))
    assert callers(queue) == dict.fromkeys(
        ("root", f"{WORKER['workerGroup']}/another"), format_time(NOW + 2 * MINUTE)
    ) | {worker: format_time(NOW + MINUTE)}
    assert [*callers(queue)][-1] == worker, "who asked last comes first"
