"""Task groups: one scheduler each, resolved each time that the last active task is."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ResourceNotFound
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.services.claims import Presented
from tests.services import interleaving
from tests.services.bench import (
    ALICE,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Calls,
    Crash,
    failing,
    task_body,
)
from tests.services.interleaving import every_order, run

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
    rows = [one for one in bench.storage.groups.all_active("", 999)[0] if one.task_group_id == group]
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
    (left,) = bench.storage.groups.all_active("", 9)[0]
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
        with pytest.raises(RequestConflict, match="taskGroupId differs"):
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
    with pytest.raises(RequestConflict, match="retries differs"):
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


# A task whose taskId is the taskGroupId


def named_as_its_group(bench: Bench, **changes: object) -> str:
    bench.services.tasks.create(GROUP, task_body(taskGroupId=GROUP, **changes))
    return GROUP


def listed(bench: Bench) -> list[str]:
    page = bench.services.listing.group(GROUP, "", 99, lambda task: task.task_id.encode())
    return [item.decode() for item in page.items]


def test_a_group_of_such_a_task_alone_has_no_rows_and_is_resolved_with_it(bench: Bench) -> None:
    calls = Calls()
    bench.replica(calls).tasks.create(GROUP, task_body(taskGroupId=GROUP))
    assert not {"join", "activate"} & set(calls.names)
    assert listed(bench) == [GROUP]
    bench.run(GROUP)
    assert resolutions(bench) == 1
    assert bench.storage.groups.load(GROUP) is None


@pytest.mark.parametrize("is_last", [False, True])
def test_with_other_members_the_group_is_resolved_with_the_last_of_them(bench: Bench, is_last: bool) -> None:
    order = [named_as_its_group(bench), member(bench)]
    assert listed(bench) == sorted(order, key=str.encode)
    if is_last:
        order.reverse()
    bench.run(order[0])
    assert resolutions(bench) == 0
    bench.run(order[1])
    assert resolutions(bench) == 1


def test_it_is_listed_once_and_counted_when_it_is_rerun(bench: Bench) -> None:
    named_as_its_group(bench)
    other = member(bench)
    bench.run(GROUP)
    bench.run(other)
    assert resolutions(bench) == 1
    bench.services.tasks.rerun(GROUP)
    assert (active(bench), listed(bench).count(GROUP)) == (1, 1)
    bench.services.tasks.rerun(other)
    bench.run(other)
    assert resolutions(bench) == 0
    bench.run(GROUP)
    assert resolutions(bench) == 1
    assert active(bench) == 0


def test_it_is_refused_where_its_group_has_another_schedulerid(bench: Bench) -> None:
    member(bench, schedulerId="the member's")
    with pytest.raises(RequestConflict, match='has the schedulerId "the member\'s"'):
        named_as_its_group(bench, schedulerId="another")
    assert bench.storage.tasks.load(GROUP) is None
    named_as_its_group(bench, schedulerId="the member's")


def test_its_schedulerid_is_that_of_the_group_before_another_joins(bench: Bench) -> None:
    named_as_its_group(bench, schedulerId="founder's")
    with pytest.raises(RequestConflict, match='has the schedulerId "founder\'s"'):
        member(bench, schedulerId="another")
    assert listed(bench) == [GROUP]
    member(bench, schedulerId="founder's")
    assert len(listed(bench)) == 2


def test_a_task_of_that_taskid_in_another_group_is_no_member(bench: Bench) -> None:
    bench.services.tasks.create(GROUP, task_body(taskGroupId=slugid(), schedulerId="elsewhere"))
    assert listed(bench) == []
    with pytest.raises(ResourceNotFound, match="it may have expired"):
        bench.services.groups.find(GROUP)
    task_id = member(bench)
    assert listed(bench) == [task_id]
    bench.run(task_id)
    assert resolutions(bench) == 1


def test_pages_of_a_group_have_it_in_its_place(bench: Bench) -> None:
    tasks = sorted([named_as_its_group(bench), *(member(bench) for _ in range(6))], key=str.encode)
    found, after = [], ""
    while after is not None:
        page = bench.services.listing.group(GROUP, after, 2, lambda task: task.task_id.encode())
        found += [item.decode() for item in page.items]
        after = page.after
    assert found == tasks


# Several processes


def pausing(name: str, call: Callable[[], Any]) -> Any:
    """Around what the two may get in each other's way with."""
    return interleaving.pausing(name, call) if name in ("join", "end", "insert", "replace") else call()


def test_replicas_that_create_and_end_at_once_resolve_their_group_once_all_have_ended() -> None:
    """In every order of their port calls: the last member ends in one, as another joins in the other."""

    def scene(choose: Callable[[int], int]) -> None:
        bench = Bench()
        first, late = member(bench), slugid()
        bench.services.claims.claim(bench.task(first), 0, ALICE, Presented())
        one, other = bench.server(pausing), bench.server(pausing)

        def end() -> None:
            bench.complete(first, services=one.services)
            one.resolver.handle_all()

        def create() -> None:
            other.services.tasks.create(late, task_body(taskGroupId=GROUP))

        assert run([end, create], choose) == [None, None]
        assert active(bench) == 1
        bench.events()
        bench.run(late)
        bench.run_timers(MINUTE)
        assert (active(bench), RESOLVED in bench.events()) == (0, True)

    assert every_order(scene) > 5


def test_members_that_end_at_once_in_two_replicas_resolve_their_group() -> None:
    def scene(choose: Callable[[int], int]) -> None:
        bench = Bench()
        members = [member(bench), member(bench)]
        servers = [bench.server(pausing), bench.server(pausing)]
        for task_id in members:
            bench.services.claims.claim(bench.task(task_id), 0, ALICE, Presented())

        def end(index: int) -> None:
            bench.complete(members[index], services=servers[index].services)
            servers[index].resolver.handle_all()

        assert run([lambda: end(0), lambda: end(1)], choose) == [None, None]
        assert active(bench) == 0
        assert bench.events().count(RESOLVED) >= 1

    assert every_order(scene) > 5
