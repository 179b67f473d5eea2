"""Task groups: one scheduler each, resolved each time that the last active task is."""

from contextlib import suppress

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from tests.services.bench import (
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Crash,
    failing,
    task_body,
)

DAY = 24 * HOUR
GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"
RESOLVED = ("task-group-resolved", GROUP, None)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def resolutions(bench: Bench) -> int:
    bench.run_timers()
    return bench.events().count(RESOLVED)


def active(bench: Bench, group: str = GROUP) -> int:
    """How many of its members are active: as it is counted, which is as many as there are rows."""
    counted = bench.storage.groups.load(group)
    rows = [one for one in bench.storage.groups.all_active("", 999).active if one.task_group_id == group]
    assert len(rows) == (counted.active if counted else 0)
    return len(rows)


def member(bench: Bench, **changes: object) -> str:
    return bench.create(taskGroupId=GROUP, **changes)


def test_a_group_is_resolved_when_the_last_of_its_tasks_is(bench: Bench) -> None:
    first, second, third = (member(bench) for _ in range(3))
    bench.run(first)
    bench.run(second, "failed")
    assert resolutions(bench) == 0
    bench.services.tasks.cancel(third)
    assert resolutions(bench) == 1
    bench.run_timers(HOUR)
    assert resolutions(bench) == 0


def test_it_is_told_after_the_end_of_its_last_task(bench: Bench) -> None:
    task_id = member(bench)
    bench.run(task_id)
    bench.run_timers()
    assert bench.events()[-2:] == [("task-completed", task_id, 0), RESOLVED]


def test_a_task_without_a_group_is_a_group_of_its_own(bench: Bench) -> None:
    task_id = bench.create()
    bench.run(task_id)
    bench.run_timers()
    assert bench.events()[-1] == ("task-group-resolved", task_id, None)


def test_an_unscheduled_task_keeps_its_group_active(bench: Bench) -> None:
    task_id = slugid()
    bench.services.tasks.define(task_id, task_body(taskGroupId=GROUP))
    bench.run(member(bench))
    assert resolutions(bench) == 0
    bench.services.tasks.cancel(task_id)
    assert resolutions(bench) == 1


def test_a_retried_run_does_not_end_its_group(bench: Bench) -> None:
    task_id = bench.claimed(taskGroupId=GROUP)
    bench.shut_down(task_id)
    assert resolutions(bench) == 0
    bench.run(task_id)
    assert resolutions(bench) == 1


def test_a_group_that_gets_new_tasks_is_resolved_again(bench: Bench) -> None:
    bench.run(member(bench))
    assert resolutions(bench) == 1
    late = member(bench)
    assert resolutions(bench) == 0
    bench.run(late)
    assert resolutions(bench) == 1


def test_a_rerun_makes_its_group_active_until_it_is_resolved_again(bench: Bench) -> None:
    first, second = member(bench), member(bench)
    bench.run(first)
    bench.services.tasks.rerun(first)
    bench.run(second)
    assert resolutions(bench) == 0
    bench.run(first)
    assert resolutions(bench) == 1
    bench.services.tasks.rerun(second)
    bench.run(second)
    assert resolutions(bench) == 1


def test_a_resolution_that_is_told_late_does_not_end_the_rerun(bench: Bench) -> None:
    task_id = member(bench)
    bench.run(task_id)
    bench.services.tasks.rerun(task_id)
    assert resolutions(bench) == 0
    assert active(bench) == 1


def test_a_resolved_task_that_is_created_again_leaves_its_group_resolved(bench: Bench) -> None:
    task_id, body = slugid(), task_body(taskGroupId=GROUP)
    bench.services.tasks.create(task_id, body)
    bench.run(task_id)
    assert resolutions(bench) == 1
    bench.services.tasks.create(task_id, body)
    assert resolutions(bench) == 1  # a repeated call tells again
    assert active(bench) == 0


@pytest.mark.parametrize("is_resolved", [True, False])
@pytest.mark.parametrize("retries", [5, 1])
@pytest.mark.parametrize("dies", [False, True])
def test_a_rerun_task_that_is_created_again_is_as_active_as_it_was(
    bench: Bench, is_resolved: bool, retries: int, dies: bool
) -> None:
    """The same, or with another definition that is refused; and where the server dies over it."""
    task_id, body = slugid(), task_body(taskGroupId=GROUP)
    bench.services.tasks.create(task_id, body)
    bench.run(task_id)
    bench.run_timers()
    bench.services.tasks.rerun(task_id)
    if is_resolved:
        bench.run(task_id)
        bench.run_timers()
    at = At(0, of="insert", before=failing(Crash())) if dies else At(0)
    with suppress(RequestConflict, Crash):
        bench.replica(at).tasks.create(task_id, {**body, "retries": retries})
    bench.run_timers(MINUTE)
    assert active(bench) == (0 if is_resolved else 1)
    if not is_resolved:
        bench.run(task_id)
    bench.events()
    bench.run_timers()
    assert active(bench) == 0
    assert RESOLVED in bench.events() or is_resolved


def test_a_rerun_that_changes_nothing_leaves_its_group_as_it_is(bench: Bench) -> None:
    task_id = member(bench)
    bench.services.tasks.rerun(task_id)
    bench.run(task_id)
    assert resolutions(bench) == 1


@pytest.mark.parametrize("call", ["activate", "timer.put"])
def test_a_rerun_that_did_not_come_to_its_write_holds_up_its_group_until_it_is_swept(
    bench: Bench, call: str
) -> None:
    first, second = member(bench), member(bench)
    bench.run(first)
    with pytest.raises(Crash):
        bench.replica(At(0, of=call, after=failing(Crash()))).tasks.rerun(first)
    bench.run(second)
    assert resolutions(bench) == 0
    bench.sweep(11 * MINUTE)
    assert resolutions(bench) >= 1
    assert active(bench) == 0


def test_a_rerun_that_lost_its_race_twice_over_holds_up_its_group_until_it_is_swept(bench: Bench) -> None:
    """Another one reran the task, and it was resolved again, between the activation and the write."""
    task_id = member(bench)
    bench.run(task_id)
    bench.run_timers()

    def meanwhile() -> None:
        bench.services.tasks.rerun(task_id)
        bench.run(task_id)
        bench.run_timers()

    bench.replica(At(0, of="activate", before=meanwhile)).tasks.rerun(task_id)
    bench.clock.advance(SECOND)
    bench.run(task_id)
    bench.run_timers()
    assert active(bench) == 1
    bench.events()
    bench.sweep(11 * MINUTE)
    assert resolutions(bench) >= 1
    assert active(bench) == 0


def test_an_older_activation_is_swept_while_the_task_runs_again(bench: Bench) -> None:
    task_id = member(bench)
    bench.run(task_id)
    bench.services.tasks.rerun(task_id)
    bench.lose_process()  # before it ended the first activation
    assert active(bench) == 2
    bench.sweep(11 * MINUTE)
    (left,) = bench.storage.groups.all_active("", 9).active
    assert (left.activation, active(bench)) == (1, 1)
    bench.run(task_id)
    assert resolutions(bench) == 1


def test_a_task_of_another_scheduler_is_refused_and_leaves_nothing(bench: Bench) -> None:
    bench.run(member(bench, schedulerId="first"))
    assert resolutions(bench) == 1
    timers, task_id = bench.timers(), slugid()
    with pytest.raises(RequestConflict, match="has the schedulerId 'first'"):
        bench.services.tasks.create(task_id, task_body(taskGroupId=GROUP, schedulerId="second"))
    assert bench.storage.tasks.load(task_id) is None
    assert task_id not in bench.storage.groups.members(GROUP, "", 9)
    assert active(bench) == 0
    bench.run_timers()
    assert (bench.timers(), bench.events()) == (timers, [])


def test_a_definition_for_another_group_that_is_refused_leaves_the_other_group_as_it_was(
    bench: Bench,
) -> None:
    task_id, others = bench.create(), slugid()
    bench.run(bench.create(taskGroupId=others))
    bench.run_timers()
    bench.events()
    for group in (GROUP, others):
        with pytest.raises(RequestConflict, match="taskGroupId differ"):
            bench.services.tasks.create(task_id, task_body(taskGroupId=group))
        assert task_id not in bench.storage.groups.members(group, "", 9)
        assert active(bench, group) == 0
    told = bench.events()
    assert RESOLVED not in told  # nothing was ever in it
    assert ("task-group-resolved", others, None) in told  # what might have been held up is told again


def test_a_refused_definition_of_a_resolved_task_leaves_its_group_resolved(bench: Bench) -> None:
    task_id = member(bench)
    bench.run(task_id)
    bench.run_timers()
    with pytest.raises(RequestConflict, match="retries differ"):
        bench.services.tasks.create(task_id, task_body(taskGroupId=GROUP, retries=1))
    assert active(bench) == 0
    assert list(bench.storage.groups.members(GROUP, "", 9)) == [task_id]


def test_a_refused_definition_for_another_group_is_seen_through_where_the_server_dies(bench: Bench) -> None:
    task_id = bench.create()
    with pytest.raises(Crash):
        bench.replica(At(0, of="insert", before=failing(Crash()))).tasks.create(
            task_id, task_body(taskGroupId=GROUP)
        )
    assert active(bench) == 1
    bench.run_timers(MINUTE)
    assert active(bench) == 0
    assert list(bench.storage.groups.members(GROUP, "", 9)) == []


def test_a_create_that_did_not_come_to_its_write_holds_up_its_group_for_some_minutes(bench: Bench) -> None:
    bench.run(member(bench))
    assert resolutions(bench) == 1
    with pytest.raises(Crash):
        bench.replica(At(0, of="insert", before=failing(Crash()))).tasks.create(
            slugid(), task_body(taskGroupId=GROUP)
        )
    for _ in range(9):
        bench.run_timers(MINUTE)
    assert active(bench) == 1  # it might still come to it
    for _ in range(9):
        bench.run_timers(MINUTE)
    assert active(bench) == 0
    assert bench.timers() == []
    assert resolutions(bench) == 1


def test_a_create_whose_group_has_expired_meanwhile_is_given_up_too(bench: Bench) -> None:
    expires = format_time(NOW + 2 * MINUTE)
    body = task_body(taskGroupId=GROUP, deadline=format_time(NOW + MINUTE), expires=expires)
    with pytest.raises(Crash):
        bench.replica(At(0, of="insert", before=failing(Crash()))).tasks.create(slugid(), body)
    bench.storage.groups.remove_expired(NOW + 2 * DAY, "", 999)
    assert bench.storage.groups.load(GROUP) is None
    bench.run_timers(HOUR)
    assert (bench.timers(), bench.events()) == ([], [])


def test_a_group_lives_as_long_as_the_last_of_its_tasks(bench: Bench) -> None:
    member(bench, expires=format_time(NOW + 3 * DAY))
    member(bench, expires=format_time(NOW + 20 * DAY))
    member(bench, expires=format_time(NOW + 10 * DAY))
    group = bench.storage.groups.load(GROUP)
    assert group
    assert NOW + 20 * DAY <= group.expires <= NOW + 21 * DAY


def test_two_tasks_that_end_at_once_resolve_their_group(bench: Bench) -> None:
    first, second = member(bench), member(bench)
    bench.run(first)
    at = At(0, of="end", before=lambda: (bench.run(second), bench.run_timers()))
    server = bench.server(at)
    bench.clock.advance(MINUTE)
    bench.run_timers(server=server)
    assert at.happened
    assert bench.events().count(RESOLVED) >= 1
    assert active(bench) == 0


def test_a_group_of_a_thousand_is_resolved_once(bench: Bench) -> None:
    tasks = [member(bench) for _ in range(1000)]
    for task_id in tasks:
        bench.services.tasks.cancel(task_id)
    bench.run_timers()
    told = bench.events()
    assert told.count(RESOLVED) == 1
    assert told[-1] == RESOLVED


def test_a_claim_that_expires_for_good_ends_the_group(bench: Bench) -> None:
    bench.claimed(taskGroupId=GROUP, retries=0)
    bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.events()[-1] == RESOLVED
