"""What the queue says of itself to an operator: ``/inspect/v1``."""

from datetime import timedelta
from typing import Any, get_args

import pytest

from legacy_queue.domain.explanation import WAIT_SITUATIONS, WaitSituation
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.times import format_time
from legacy_queue.http.schemas import SCHEMAS
from tests.http.calls import (
    NOW,
    PROVISIONER,
    TESTED,
    WORKER,
    WORKER_TYPE,
    Queue,
    holding,
    refused,
    succeeded,
)

ALICE = "/".join(WORKER.values())
POOL_NAME = f"{PROVISIONER}/{WORKER_TYPE}"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True)


def inspected(queue: Queue, target: str) -> Any:
    return succeeded(queue.send("GET", f"/inspect/v1/{target}")).get_json()


@pytest.mark.parametrize("target", ["task/VLdaX5vAQ0iW8JIr3sGQZw", "tasks", "pools", "messages/a/b"])
def test_it_needs_a_scope_of_its_own(target: str) -> None:
    queue = holding("queue:control", "queue:migration")
    for credentials in (None, TESTED):
        answer = queue.send("GET", f"/inspect/v1/{target}", credentials=credentials)
        refused(answer, 403, "InsufficientScopes", "queue:inspect")


def test_every_situation_has_a_meaning_and_is_in_the_schema() -> None:
    wait = SCHEMAS["inspect-task-response"]["properties"]["waitsFor"]["items"]
    assert [*get_args(WaitSituation)] == [*WAIT_SITUATIONS] == wait["properties"]["situation"]["enum"]


@pytest.mark.parametrize("control", [True, False])
def test_the_story_of_a_task_has_with_control_its_requests_and_the_moves_of_the_clock(control: bool) -> None:
    queue = Queue(control=control)
    task_id = queue.create()
    queue.create()
    if control:
        succeeded(queue.send("POST", "/control/v1/clock", b'{"advance": "5m"}'))
    queue.claim(task_id)
    queue.claim(task_id, workerId="another")
    story = inspected(queue, f"task/{task_id}")["story"]
    told = [moment["what"].partition(" claimed by")[0] for moment in story if moment["kind"] != "event"]
    assert [moment["what"] for moment in story if moment["kind"] == "event"] == [
        f"{exchange} published" for exchange in ("task-defined", "task-pending", "task-running")
    ]
    life = [f"defined for {POOL_NAME}, with priority lowest", "run 0 is pending (scheduled)"]
    if not control:
        assert told == [*life, "run 0 is running:"]
        return
    assert [*map(str, told[:-1])] == [
        "createTask by root: 200",
        *life,
        "the clock was moved by 5m",
        f"claimTask of run 0 by {ALICE}: 200",
        "run 0 is running:",
    ]
    assert told[-1].startswith("claimTask of run 0 by group/another: 409 RequestConflict, ")
    [move] = [moment for moment in story if moment["kind"] == "clock"]
    assert (move["time"], move["movedTo"]) == (format_time(NOW), format_time(NOW + 5 * MINUTE))


def test_tasks_are_listed_by_state_and_by_worker_type(queue: Queue) -> None:
    pending, running, canceled = queue.create(), queue.running(), queue.canceled()
    other = queue.create(workerType="another")
    for query, wanted in (
        ("", [pending, running, other]),
        ("?state=all", [pending, running, canceled, other]),
        ("?state=exception", [canceled]),
        (f"?taskQueueId={PROVISIONER}%2Fanother&state=all", [other]),
    ):
        listed = [status["taskId"] for status in inspected(queue, f"tasks{query}")["tasks"]]
        assert listed == wanted[::-1], "the newest first"


def test_pools_have_their_tasks_and_messages_by_priority_and_their_callers(queue: Queue) -> None:
    queue.create(workerType="another", priority="high")
    queue.clock.advance(MINUTE)
    claimed = queue.running()
    queue.poll_urls()
    queue.poll_urls(workerType="zzz")
    another, pool, idle = inspected(queue, "pools")["pools"]
    assert [another["taskQueueId"], pool["taskQueueId"]] == [f"{PROVISIONER}/another", POOL_NAME]
    assert (idle["taskQueueId"], idle["pendingTasks"]) == (f"{PROVISIONER}/zzz", 0)
    assert [entry["priority"] for entry in pool["priorities"]] == [*PRIORITIES]
    high = {"priority": "high", "pendingTasks": 1, "claimedTasks": 0, "oldest": format_time(NOW)}
    assert another["priorities"][2] == high
    assert [message["priority"] for message in another["messages"]] == ["high"]
    assert (another["callers"], pool["claimedTasks"], pool["policy"]) == ([], 1, "optional")
    assert pool["callers"] == [
        {
            "caller": ALICE,
            "method": "pollTaskUrls",
            "last": format_time(NOW + MINUTE),
            "recentTasks": [{"taskId": claimed, "runId": 0}],
        }
    ]
    assert [(it["caller"], it["method"]) for it in idle["callers"]] == [("root", "pollTaskUrls")]


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
    other = Queue(clock=queue.clock, storage=queue.server.storage)
    target = queue.poll_target()
    queue.clock.advance(MINUTE)
    succeeded(queue.send("GET", target, credentials=None))
    assert callers(queue) == {"root": format_time(NOW + MINUTE)}, "it has no other name yet"
    queue.running()
    queue.clock.advance(MINUTE)
    succeeded(other.send("GET", target, credentials=None))
    other.server.services.workers.note_counted()
    other.server.services.workers.flush()
    assert callers(queue) == {ALICE: format_time(NOW + 2 * MINUTE)}
    succeeded(queue.claim(queue.create(), workerId="another"))
    seen = callers(queue)
    assert {*seen} == {"root", f"{WORKER['workerGroup']}/another", ALICE}
    assert [*seen][-1] == ALICE, "who asked last comes first"
