"""A changed priority: in which queue the messages of the task are, also after failures and races."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES, WorkQueue
from legacy_queue.ports.queue import QueueNotFound
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    MINUTE,
    PROVISIONER,
    WORKER_TYPE,
    CallRecorder,
    Crash,
    FaultAt,
    Harness,
    Message,
    failing,
    task_body,
)
from tests.services.interleaving import every_order, pausing, run

QUEUES = {priority: WorkQueue(PROVISIONER, WORKER_TYPE, priority) for priority in PRIORITIES}
CHANGED = "task-priority-changed"


@pytest.fixture
def harness() -> Harness:
    return Harness()


def change(harness: Harness, task_id: str, new: str = "high", old: str = "lowest") -> None:
    harness.services.tasks.change_priority(task_id, old, new)


def runs_in(harness: Harness) -> dict[str, list[int]]:
    """The runs of the messages in each queue that has any."""
    runs = {}
    for priority, queue in QUEUES.items():
        with suppress(QueueNotFound):
            runs[priority] = [Message.read(message).run_id for message in harness.messages(queue)]
    return {priority: run_ids for priority, run_ids in runs.items() if run_ids}


def claim_work(harness: Harness) -> list[str]:
    answer = harness.services.claim_work.claim(PROVISIONER, WORKER_TYPE, ALICE, 1, lambda: False)
    return [claim["status"]["taskId"] for claim in answer["tasks"]]


def claim_all(harness: Harness) -> list[str]:
    """Claim with every visible message, as claimWork does; the tasks that are claimed."""
    claimed = []
    for queue in QUEUES.values():
        for message in harness.receive(queue=queue):
            claim = harness.services.claims.claim_polled(queue, message.received, ALICE)
            claimed += [message.task_id] if claim else []
    return claimed


def test_claim_work_claims_a_raised_task_first(harness: Harness) -> None:
    harness.create(priority="medium")
    task_id = harness.create()
    change(harness, task_id)
    assert claim_work(harness) == [task_id]


def test_a_task_whose_change_of_priority_crashed_before_the_write_can_be_claimed() -> None:
    harness = Harness()
    task_id = harness.create(priority="highest")
    dying = harness.replica(FaultAt(0, of="replace", after=failing(Crash())))
    with suppress(Crash):
        dying.tasks.change_priority(task_id, "highest", "low")
    harness.lose_timers()
    assert runs_in(harness) == {"highest": [0]}
    assert [*claim_all(harness), *claim_all(harness)] == [task_id]


def test_a_process_that_remembers_the_old_priority_does_not_claim_with_the_old_message() -> None:
    harness = Harness()
    other = harness.replica(caches_tasks=True)
    task_id = slugid()
    other.tasks.create(task_id, task_body(priority="highest"))
    change(harness, task_id, "low", "highest")
    (message,) = harness.receive(queue=QUEUES["highest"])
    assert other.claims.claim_polled(QUEUES["highest"], message.received, ALICE) is None
    assert runs_in(harness) == {"low": [0, 0]}


def test_a_process_that_remembers_the_old_priority_claims_with_the_new_message() -> None:
    harness = Harness()
    other = harness.replica(caches_tasks=True)
    task_id = slugid()
    other.tasks.create(task_id, task_body())
    change(harness, task_id)
    (message,) = harness.receive(queue=QUEUES["high"])
    assert other.claims.claim_polled(QUEUES["high"], message.received, ALICE)


def test_a_retry_is_offered_with_the_new_priority(harness: Harness) -> None:
    task_id = harness.claimed()
    change(harness, task_id)
    harness.shut_down(task_id)
    (message,) = harness.receive(queue=QUEUES["high"])
    assert harness.claim(message, BOB)["runId"] == 1


def test_a_change_from_an_outdated_priority_is_a_conflict(harness: Harness) -> None:
    task_id = harness.create()
    change(harness, task_id, "highest")
    with pytest.raises(RequestConflict, match="changed from lowest to highest"):
        change(harness, task_id, "high")


def test_a_change_costs_as_much_as_another_transition(harness: Harness) -> None:
    task_id, calls = harness.create(), CallRecorder()
    harness.replica(calls).tasks.change_priority(task_id, "lowest", "high")
    assert calls.names == ["load", "timer.put", "replace", "broker.publish", "put"]


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("error", [Crash(), ServiceUnavailable("storage is away")])
@pytest.mark.parametrize("is_after", [False, True])
def test_the_run_is_claimed_once_after_a_failure_at_any_step(
    is_running: bool, error: BaseException, is_after: bool
) -> None:
    """Each storage call fails once, before or after it; claimWork deletes messages in the wrong queue."""

    def play(call: int) -> bool:
        harness = Harness()
        task_id = harness.claimed() if is_running else harness.create()
        fail = failing(error)
        fault = FaultAt(call, after=fail) if is_after else FaultAt(call, before=fail)
        with suppress(Crash, ServiceUnavailable):
            harness.replica(fault).tasks.change_priority(task_id, "lowest", "high")
        harness.run_timers(MINUTE, harness.replica())
        if is_running:
            harness.clock.advance(CLAIM_TIMEOUT)
        assert claim_all(harness) == [task_id]
        run = harness.task(task_id).runs[-1]
        assert (run.run_id, run.state) == (int(is_running), "running")
        assert claim_all(harness) == []
        return fault.happened

    call = 0
    while play(call):
        call += 1
    assert call >= 5


def _pausing(name: str, call: Callable[[], Any]) -> Any:
    """Pause at the calls that can conflict: those of the task and of its messages."""
    return pausing(name, call) if name in ("load", "replace", "put", "hide", "remove") else call()


def test_a_task_claimed_and_changed_concurrently_runs_once_and_holds_a_message_of_the_new_priority() -> None:
    old, new = "highest", "low"

    def scene(choose: Callable[[int], int]) -> None:
        harness = Harness()
        task_id = harness.create(priority=old)
        (message,) = harness.receive(queue=QUEUES[old])
        first, second = harness.replica(_pausing), harness.replica(_pausing)
        run(
            [
                lambda: first.claims.claim_polled(QUEUES[old], message.received, ALICE),
                lambda: second.tasks.change_priority(task_id, old, new),
            ],
            choose,
        )
        task = harness.task(task_id)
        assert task.priority == new
        if task.state == "pending":
            assert 0 in runs_in(harness)[new]
            assert claim_all(harness) == [task_id]
            task = harness.task(task_id)
        assert task.held
        (held,) = (message for message in harness.messages(QUEUES[new]) if message.lease == task.held)
        assert Message.read(held).run_id == 1
        assert len(task.runs) == 1

    assert every_order(scene) > 10


def test_two_concurrent_changes_end_with_one_priority_and_its_message() -> None:
    def scene(choose: Callable[[int], int]) -> None:
        harness = Harness()
        task_id = harness.create()
        first, second = harness.replica(_pausing), harness.replica(_pausing)
        results = run(
            [
                lambda: first.tasks.change_priority(task_id, "lowest", "high"),
                lambda: second.tasks.change_priority(task_id, "lowest", "low"),
            ],
            choose,
        )
        assert sum(isinstance(result, RequestConflict) for result in results) <= 1
        assert 0 in runs_in(harness)[harness.task(task_id).priority]

    assert every_order(scene) > 10
