"""A task group has one scheduler, can be sealed, and is resolved when its last active task is resolved."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from tests.domain.sample_tasks import MINUTE, SECOND, task_body
from tests.services.fake_ports import Crash, FaultAt
from tests.services.harness import Harness, Logs

GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"
RESOLVED = ("task-group-resolved", GROUP, None)


def resolutions(harness: Harness) -> int:
    harness.do_work()
    return harness.events().count(RESOLVED)


def active(harness: Harness, group: str = GROUP) -> int:
    rows = harness.storage.groups.all_active("", 999)[0]
    return sum(row.task_group_id == group for row in rows)


def body(**changes: Any) -> dict[str, Any]:
    return task_body(**{"taskGroupId": GROUP, "schedulerId": "scheduler", **changes})


def member(harness: Harness, task_id: str = "", **changes: Any) -> str:
    task_id = task_id or slugid()
    harness.services.tasks.create(task_id, body(**changes))
    return task_id


def test_the_sweeper_removes_an_old_activation_of_a_task_that_runs_again(harness: Harness) -> None:
    task_id = member(harness)
    harness.run(task_id)
    for _ in range(2):
        harness.services.tasks.rerun(task_id)
    harness.kill_process()  # it did not remove the first activation from the group
    assert active(harness) == 2
    harness.sweep(11 * MINUTE)
    (left,) = harness.storage.groups.all_active("", 9)[0]
    assert (left.activation, active(harness)) == (1, 1)
    harness.run(task_id)
    assert resolutions(harness) == 1


def test_a_create_task_that_stops_for_too_long_before_its_write_writes_nothing(harness: Harness) -> None:
    task_id = slugid()
    slow = harness.replica(FaultAt(0, of="join", after=lambda: harness.do_work(16 * SECOND)))
    with pytest.raises(ServiceUnavailable):
        slow.tasks.create(task_id, body())
    assert harness.storage.tasks.load(task_id) is None
    member(harness, task_id)
    assert harness.storage.groups.members(GROUP, "", 10) == [task_id]


def test_a_task_that_was_resolved_while_its_create_stood_still_is_not_active_in_its_group(
    harness: Harness,
) -> None:
    def meanwhile() -> None:
        harness.do_work(16 * SECOND)
        harness.services.tasks.cancel(task_id)
        harness.do_work()

    task_id = slugid()
    slow = harness.replica(FaultAt(0, of="insert", after=meanwhile))
    slow.tasks.create(task_id, body())
    assert active(harness) == 0


def test_if_the_group_is_canceled_while_a_create_stands_still_its_task_is_canceled_too(
    harness: Harness,
) -> None:
    def meanwhile() -> None:
        harness.do_work(16 * SECOND)
        harness.services.groups.seal(GROUP)
        harness.services.group_changes.cancel(GROUP)

    member(harness)
    slow = harness.replica(FaultAt(0, of="insert", before=meanwhile))
    assert slow.tasks.create(slugid(), body()).runs[-1].reason_resolved == "canceled"


@pytest.mark.parametrize("fault", [None, ServiceUnavailable("away"), Crash()], ids=repr)
def test_a_create_that_is_repeated_while_its_task_leaves_the_group_makes_it_a_member_again(
    harness: Harness, fault: BaseException | None
) -> None:
    task_id, definition = slugid(), body()
    create_again = lambda: harness.services.tasks.create(task_id, definition)  # noqa: E731
    with pytest.raises(Crash):
        harness.replica(FaultAt(0, of="insert", before=Crash())).tasks.create(task_id, definition)
    leave = FaultAt(0, of="leave", before=create_again, after=fault)
    leaving = harness.replica(leave)
    with suppress(Crash):
        harness.do_work(16 * SECOND, services=leaving)
        harness.do_work(3 * SECOND, services=leaving)
    assert leave.happened
    harness.do_work(16 * SECOND)
    assert harness.storage.groups.members(GROUP, "", 10) == [task_id]
    assert active(harness) == 1


def test_a_group_is_resolved_when_its_last_task_is(harness: Harness) -> None:
    member(harness, GROUP)
    harness.run(member(harness))
    assert resolutions(harness) == 0
    harness.run(GROUP)
    assert resolutions(harness) == 1


def test_a_task_whose_scheduler_id_differs_from_its_groups_is_refused(harness: Harness) -> None:
    member(harness, schedulerId="the member's")
    with pytest.raises(RequestConflict, match='has the schedulerId "the member\'s"'):
        member(harness, GROUP, schedulerId="another")
    assert harness.storage.tasks.load(GROUP) is None
    member(harness, GROUP, schedulerId="the member's")


def test_a_create_that_died_before_its_group_was_canceled_cannot_be_repeated(harness: Harness) -> None:
    member(harness)
    late, definition = slugid(), body()
    with pytest.raises(Crash):
        harness.replica(FaultAt(0, of="insert", before=Crash())).tasks.create(late, definition)
    harness.services.groups.seal(GROUP)
    harness.services.group_changes.cancel(GROUP)
    for _ in range(2):
        with pytest.raises(RequestConflict, match=f"task group {GROUP} is sealed"):
            harness.services.tasks.create(late, definition)
        with pytest.raises(ResourceNotFound):
            harness.services.tasks.load(late)


@pytest.mark.parametrize("fault", [ServiceUnavailable("away"), Crash()], ids=repr)
def test_a_create_that_failed_before_it_joined_its_group_leaves_no_group(
    harness: Harness, fault: BaseException
) -> None:
    harness.services = harness.replica(FaultAt(0, of="join", before=fault))
    with pytest.raises(type(fault)):
        harness.services.tasks.create(slugid(), body())
    harness.services = harness.services if isinstance(fault, ServiceUnavailable) else harness.replica()
    for _ in range(3):
        harness.do_work(16 * SECOND)
    assert [row.names for row in harness.processes()] == [[]]
    with pytest.raises(ResourceNotFound):
        harness.services.groups.seal(GROUP)


def test_a_repeated_seal_changes_nothing_and_publishes_again(harness: Harness) -> None:
    member(harness)
    first = harness.services.groups.seal(GROUP)
    harness.clock.advance(MINUTE)
    assert harness.services.groups.seal(GROUP) == first
    assert harness.events().count(("task-group-sealed", GROUP, None)) == 2


def test_canceling_a_group_does_not_cancel_a_task_of_another_group_that_a_refused_create_left_in_it(
    harness: Harness,
) -> None:
    ours, other = member(harness), harness.create()
    harness.services.groups.join(other, harness.task(ours).definition)
    harness.services.groups.seal(GROUP)
    assert harness.services.group_changes.cancel(GROUP) == [ours]
    assert harness.states(other) == ["pending"]


def test_all_unresolved_tasks_of_a_sealed_group_are_canceled(harness: Harness) -> None:
    running = harness.claimed(taskGroupId=GROUP, schedulerId="scheduler")
    done = member(harness)
    harness.run(done)
    pending, first = member(harness), member(harness, GROUP)
    unscheduled = member(harness, dependencies=[pending])
    other = harness.create()
    harness.services.groups.seal(GROUP)
    unresolved = {running, pending, first, unscheduled}
    assert {*harness.services.group_changes.cancel(GROUP)} == unresolved
    assert {harness.states(task_id)[-1] for task_id in unresolved} == {"exception canceled"}
    assert (harness.states(done), harness.states(other)) == (["completed completed"], ["pending"])
    assert harness.services.group_changes.size(GROUP) == 5
    harness.do_work()
    assert harness.events().count(RESOLVED) >= 1


def test_during_a_long_change_of_a_group_the_log_counts_the_changed_tasks_every_two_seconds(
    harness: Harness, logs: Logs
) -> None:
    def slow(name: str, call: Callable[[], Any]) -> Any:
        harness.clock.advance(3 * SECOND / 100 if name == "replace" else timedelta(0))
        return call()

    for _ in range(110):
        member(harness)
    harness.services.groups.seal(GROUP)
    harness.replica(slow).group_changes.change_priority(GROUP, "high", ("raise", "lower"))
    counts = [entry["changed"] for entry in logs if entry["event"] == "task-group-changing"]
    assert counts == [100]


def test_a_group_that_is_not_sealed_cannot_be_canceled(harness: Harness) -> None:
    task_id = member(harness)
    with pytest.raises(RequestConflict, match="sealTaskGroup first"):
        harness.services.group_changes.cancel(GROUP)
    assert harness.states(task_id) == ["pending"]


def test_a_task_that_is_created_while_its_group_is_canceled_is_canceled_too(harness: Harness) -> None:
    member(harness, GROUP)
    late = slugid()
    dying = harness.replica(FaultAt(0, of="insert", before=Crash()))
    with pytest.raises(Crash):
        dying.tasks.create(late, body())
    harness.services.groups.seal(GROUP)
    task = replace(harness.task(GROUP), task_id=late)
    replica = harness.replica(
        FaultAt(0, of="prevent_creation", before=lambda: harness.storage.tasks.insert(task, ""))
    )
    assert sorted(replica.group_changes.cancel(GROUP)) == sorted([GROUP, late])


def test_if_the_event_of_a_group_change_cannot_be_published_the_call_is_service_unavailable(
    harness: Harness,
) -> None:
    task_id = member(harness)
    harness.broker.capacity = 0
    with pytest.raises(ServiceUnavailable, match="task-group-priority-changed"):
        harness.services.group_changes.change_priority(GROUP, "high", ("raise", "lower"))
    assert harness.task(task_id).priority == "high"
