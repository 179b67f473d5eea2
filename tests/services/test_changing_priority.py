"""A changed priority: in which queue the messages of the task are, also after failures and races."""

from contextlib import suppress

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES, WorkQueue
from legacy_queue.ports.queue import QueueNotFound
from tests.services.harness import (
    ALICE,
    BOB,
    PROVISIONER,
    WORKER_TYPE,
    CallRecorder,
    Harness,
    Message,
    task_body,
)

QUEUES = {priority: WorkQueue(PROVISIONER, WORKER_TYPE, priority) for priority in PRIORITIES}


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


def test_claim_work_claims_a_raised_task_first(harness: Harness) -> None:
    harness.create(priority="medium")
    task_id = harness.create()
    change(harness, task_id)
    assert claim_work(harness) == [task_id]


def test_a_process_that_remembers_the_old_priority_does_not_claim_with_the_old_message() -> None:
    harness = Harness()
    other = harness.replica(caches_tasks=True)
    task_id = slugid()
    other.tasks.create(task_id, task_body(priority="highest"))
    change(harness, task_id, "low", "highest")
    (message,) = harness.receive(queue=QUEUES["highest"])
    assert other.claims.claim_polled(QUEUES["highest"], message.received, ALICE) is None
    assert runs_in(harness) == {"low": [0, 0]}
    (message, _) = harness.receive(queue=QUEUES["low"])
    other.claims.claim_polled(QUEUES["low"], message.received, ALICE)
    change(harness, task_id, "high", "low")
    assert other.claims.claim_polled(QUEUES["low"], message.received, BOB) is None


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
