"""A transition whose step fails, whose answer is lost, or that loses a race: what it leaves.

The simulated world plays these at each call; here each is once, for its outcome.
"""

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import Changed
from tests.services.harness import MINUTE, FaultAt, Harness, failing, task_body


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.mark.parametrize("error", [ServiceUnavailable("storage is away"), ValueError("a defect")], ids=repr)
def test_a_call_succeeds_though_a_step_after_its_write_fails_and_a_timer_takes_it(
    harness: Harness, error: Exception
) -> None:
    task_id, server = slugid(), harness.replica(FaultAt(0, of="put", before=failing(error)))
    assert server.tasks.create(task_id, task_body()).state == "pending"
    assert harness.messages() == []
    harness.run_timers(MINUTE)
    assert harness.receive_one().task_id == task_id


def test_a_repeated_report_offers_the_pending_retry_again(harness: Harness) -> None:
    task_id = harness.claimed()
    first = harness.shut_down(task_id)
    assert harness.shut_down(task_id) == first
    assert [run_id for run_id, _ in harness.offered_runs()] == [1, 1]


def test_a_completion_that_was_rerun_at_once_has_all_its_effects(harness: Harness) -> None:
    """The answer of its write was lost."""
    task_id = harness.claimed()
    waiting = harness.create(dependencies=[task_id])

    def rerun() -> None:
        harness.services.tasks.rerun(task_id)
        raise Changed

    server = harness.replica(FaultAt(0, of="replace", after=rerun))
    harness.complete(task_id, services=server)
    harness.run_timers(services=server)
    assert harness.states(waiting) == ["pending"]
    assert ("task-completed", task_id, 0) in harness.events()


# while the broker is away


def test_a_task_that_another_process_changes_meanwhile_is_marked_unpublished(harness: Harness) -> None:
    task_id = harness.create()
    harness.broker.capacity = 0
    change = lambda: harness.services.tasks.change_priority(task_id, "lowest", "high")  # noqa: E731
    server = harness.replica(FaultAt(1, of="replace", before=change))  # 0 is the claim
    harness.claim(harness.receive_one(), services=server)
    assert (harness.task(task_id).priority, harness.task(task_id).is_unpublished) == ("high", True)


def test_a_repeated_report_is_published_when_the_broker_is_back(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.complete(task_id)
    harness.run_timers()
    harness.broker.capacity = 0
    harness.complete(task_id)
    harness.events()
    harness.broker.capacity = None
    harness.run_timers(MINUTE)
    assert ("task-completed", task_id, 0) in harness.events()


def test_a_repeated_create_of_a_resolved_task_publishes_its_group_when_the_broker_is_back(
    harness: Harness,
) -> None:
    task_id, body = slugid(), task_body(taskGroupId=slugid())
    harness.services.tasks.create(task_id, body)
    harness.run(task_id)
    harness.run_timers()
    harness.events()
    harness.broker.capacity = 0
    assert harness.services.tasks.create(task_id, body).state == "completed"
    with pytest.raises(RequestConflict):
        harness.services.tasks.create(task_id, {**body, "payload": {}})
    harness.broker.capacity = None
    harness.run_timers()
    assert harness.events()[-1] == ("task-group-resolved", body["taskGroupId"], None)
