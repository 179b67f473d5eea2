"""Task groups: each has one scheduler, and is resolved when its last active task is."""

from contextlib import suppress
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from tests.services.harness import MINUTE, SECOND, Crash, FaultAt, Harness, failing, task_body

GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"
RESOLVED = ("task-group-resolved", GROUP, None)


def resolutions(harness: Harness) -> int:
    harness.run_timers()
    return harness.events().count(RESOLVED)


def active(harness: Harness, group: str = GROUP) -> int:
    """How many members are active."""
    rows = harness.storage.groups.all_active("", 999)[0]
    return sum(row.task_group_id == group for row in rows)


def member(harness: Harness, **changes: Any) -> str:
    return harness.create(taskGroupId=GROUP, **changes)


def test_the_sweeper_ends_an_older_activation_while_the_task_runs_again(harness: Harness) -> None:
    task_id = member(harness)
    harness.run(task_id)
    for _ in range(2):
        harness.services.tasks.rerun(task_id)
    harness.kill_process()  # before it ended the first activation
    assert active(harness) == 2
    harness.sweep(11 * MINUTE)
    (left,) = harness.storage.groups.all_active("", 9)[0]
    assert (left.activation, active(harness)) == (1, 1)
    harness.run(task_id)
    assert resolutions(harness) == 1


def test_a_create_that_stood_still_before_its_write_writes_nothing(harness: Harness) -> None:
    task_id = slugid()
    slow = harness.replica(FaultAt(0, of="join", after=lambda: harness.run_timers(16 * SECOND)))
    with pytest.raises(ServiceUnavailable):
        slow.tasks.create(task_id, task_body(taskGroupId=GROUP))
    assert harness.storage.tasks.load(task_id) is None
    harness.services.tasks.create(task_id, task_body(taskGroupId=GROUP))
    assert harness.storage.groups.members(GROUP, "", 10) == [task_id]


def test_a_create_that_stood_still_while_its_task_ended_is_not_active_in_its_group(harness: Harness) -> None:
    def meanwhile() -> None:
        harness.run_timers(16 * SECOND)
        harness.services.tasks.cancel(task_id)
        harness.run_timers()

    task_id = slugid()
    slow = harness.replica(FaultAt(0, of="insert", after=meanwhile))
    slow.tasks.create(task_id, task_body(taskGroupId=GROUP))
    assert active(harness) == 0


def test_a_create_that_stood_still_while_its_group_was_sealed_and_canceled_is_canceled(
    harness: Harness,
) -> None:
    def meanwhile() -> None:
        harness.run_timers(16 * SECOND)
        harness.services.groups.seal(GROUP)
        harness.services.group_changes.cancel(GROUP)

    member(harness)
    slow = harness.replica(FaultAt(0, of="insert", before=meanwhile))
    assert slow.tasks.create(slugid(), task_body(taskGroupId=GROUP)).runs[-1].reason_resolved == "canceled"


@pytest.mark.parametrize("fault", [None, ServiceUnavailable("away"), Crash()], ids=repr)
def test_a_create_that_is_repeated_while_its_group_is_left_is_in_the_group(
    harness: Harness, fault: BaseException | None
) -> None:
    task_id, body = slugid(), task_body(taskGroupId=GROUP)
    with pytest.raises(Crash):
        harness.replica(FaultAt(0, of="insert", before=failing(Crash()))).tasks.create(task_id, body)
    leave = FaultAt(
        0,
        of="leave",
        before=lambda: harness.services.tasks.create(task_id, body),
        after=failing(fault) if fault else None,
    )
    leaving = harness.replica(leave)
    with suppress(Crash):
        harness.run_timers(16 * SECOND, services=leaving)
        harness.run_timers(3 * SECOND, services=leaving)
    assert leave.happened
    harness.run_timers(16 * SECOND)
    assert harness.storage.groups.members(GROUP, "", 10) == [task_id]
    assert active(harness) == 1


# The founder: the task whose taskId is the taskGroupId


def founder(harness: Harness, **changes: Any) -> str:
    harness.services.tasks.create(GROUP, task_body(taskGroupId=GROUP, **changes))
    return GROUP


def test_a_group_is_not_resolved_before_its_founder(harness: Harness) -> None:
    founder(harness)
    harness.run(member(harness))
    assert resolutions(harness) == 0
    harness.run(GROUP)
    assert resolutions(harness) == 1


def test_a_founder_with_another_scheduler_id_is_refused(harness: Harness) -> None:
    member(harness, schedulerId="the member's")
    with pytest.raises(RequestConflict, match='has the schedulerId "the member\'s"'):
        founder(harness, schedulerId="another")
    assert harness.storage.tasks.load(GROUP) is None
    founder(harness, schedulerId="the member's")
