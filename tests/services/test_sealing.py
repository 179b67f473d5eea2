"""A sealed group takes no new task; canceling and changing the priority of all tasks of a group."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.services.claims import Presented
from legacy_queue.services.core import Core
from legacy_queue.stores import Group
from tests.services.bench import (
    ALICE,
    HOUR,
    MINUTE,
    NOW,
    At,
    Bench,
    Calls,
    Crash,
    failing,
    task_body,
)
from tests.services.interleaving import every_order, pausing, run
from tests.services.test_changing_priority import runs_in

GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"
BOTH = ("raise", "lower")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def body(**changes: Any) -> dict[str, Any]:
    return task_body(taskGroupId=GROUP, schedulerId="scheduler", **changes)


def member(bench: Bench, task_id: str = "", **changes: Any) -> str:
    task_id = task_id or slugid()
    bench.services.tasks.create(task_id, body(**changes))
    return task_id


def seal(bench: Bench, group: str = GROUP) -> Group:
    return bench.services.groups.seal(group)


def cancel(bench: Bench) -> list[str]:
    return sorted(bench.services.group_changes.cancel(GROUP))


def told(bench: Bench, exchange: str) -> list[dict[str, Any]]:
    return [dict(event.payload) for event in bench.broker.told if event.exchange == exchange]


def refuses(bench: Bench, task_id: str = "") -> bool:
    """Whether the task, by default a new one, is refused since the group is sealed."""
    try:
        member(bench, task_id)
    except RequestConflict as refusal:
        return f"task group {GROUP} is sealed" in refusal.message
    return False


def test_a_sealed_group_takes_no_new_task_and_leaves_nothing_of_it(bench: Bench) -> None:
    first = member(bench)
    seal(bench)
    late = slugid()
    assert refuses(bench, late)
    assert refuses(bench, late)
    assert bench.storage.tasks.load(late) is None
    assert bench.storage.groups.members(GROUP, "", 9) == [first]
    bench.run_timers()
    assert {one.task_id for one, _ in bench.timers()} == {first}


def test_a_task_that_is_in_it_can_be_created_again(bench: Bench) -> None:
    task_id, definition = slugid(), body()
    status = bench.services.tasks.create(task_id, definition).status()
    seal(bench)
    assert bench.services.tasks.create(task_id, definition).status() == status
    bench.run(task_id)
    bench.run_timers()
    assert bench.services.tasks.create(task_id, definition).is_resolved
    bench.services.tasks.rerun(task_id)
    assert bench.task(task_id).state == "pending"


def test_a_process_that_knew_the_group_before_refuses_too() -> None:
    bench = Bench()
    other = bench.server(remembers=True)
    for _ in range(2):
        other.services.tasks.create(slugid(), body())
    seal(bench)
    with pytest.raises(RequestConflict, match="is sealed"):
        other.services.tasks.create(slugid(), body())


def test_sealing_again_changes_nothing_and_tells_again(bench: Bench) -> None:
    member(bench)
    first = seal(bench)
    assert first.sealed == NOW
    bench.clock.advance(HOUR)
    assert seal(bench) == first
    assert told(bench, "task-group-sealed") == 2 * [
        {
            "version": 1,
            "taskGroupId": GROUP,
            "schedulerId": "scheduler",
            "expires": format_time(first.expires),
            "sealed": format_time(NOW),
        }
    ]


def test_a_group_of_the_task_that_it_is_named_after_is_sealed_and_lives_as_long_as_that(bench: Bench) -> None:
    member(bench, GROUP)
    expires = bench.task(GROUP).definition.expires
    assert bench.services.groups.load(GROUP).sealed is None
    sealed = seal(bench)
    assert (sealed.sealed, sealed.scheduler_id) == (NOW, "scheduler")
    assert expires <= sealed.expires < expires + timedelta(days=1)
    assert refuses(bench)
    assert not refuses(bench, GROUP)
    assert bench.services.groups.load(GROUP) == sealed


def test_the_task_that_the_group_is_named_after_comes_too_late_as_any_other(bench: Bench) -> None:
    member(bench)
    seal(bench)
    assert refuses(bench, GROUP)
    with pytest.raises(ResourceNotFound):
        bench.services.tasks.load(GROUP)
    assert refuses(bench, GROUP)


def test_a_taskid_that_is_barred_is_free_again_when_the_group_has_expired(bench: Bench) -> None:
    task_id = member(bench)
    seal(bench)
    bench.services.tasks.cancel(task_id)
    bench.clock.advance(timedelta(days=400))
    for expiring in bench.storage.expiring.values():
        expiring.remove_expired(bench.clock.now(), "", 100)
    now = bench.clock.now()
    assert bench.replica().tasks.create(GROUP, task_body(now)).state == "pending"


def test_there_is_no_group_of_which_nobody_heard(bench: Bench) -> None:
    for act in (bench.services.groups.load, bench.services.groups.seal, bench.services.group_changes.cancel):
        with pytest.raises(ResourceNotFound, match=GROUP):
            act(GROUP)


def test_while_the_broker_is_away_a_group_is_sealed_and_told_when_it_is_sealed_again(bench: Bench) -> None:
    member(bench)
    bench.broker.room = 0
    with pytest.raises(ServiceUnavailable, match="repeat the call"):
        seal(bench)
    assert refuses(bench)
    bench.broker.room = None
    bench.core.publisher.check()
    assert seal(bench).sealed == NOW
    assert len(told(bench, "task-group-sealed")) == 1


@pytest.mark.parametrize("task_id", [GROUP, "Another-SaCabcdefghijA"])
def test_sealed_and_joined_at_once_the_task_is_in_it_or_is_refused(task_id: str) -> None:
    """What was answered before the seal was is in it; what is asked for after it is refused."""

    def scene(choose: Callable[[int], int]) -> None:
        bench = Bench()
        first = member(bench)
        one, two = bench.replica(_pausing), bench.replica(_pausing)
        created, sealed = run(
            [lambda: one.tasks.create(task_id, body()), lambda: two.groups.seal(GROUP)], choose
        )
        assert not isinstance(sealed, BaseException)
        is_in = not isinstance(created, BaseException)
        assert is_in or isinstance(created, RequestConflict)
        assert (bench.storage.tasks.load(task_id) is not None) == is_in
        assert refuses(bench, task_id) != is_in
        members = bench.services.groups.members(GROUP, "", 9)
        assert members == sorted([first, task_id] if is_in else [first])

    assert every_order(scene) >= 5


def _pausing(name: str, call: Callable[[], Any]) -> Any:
    is_of_group = name in ("join", "seal", "leave", "insert", "bar", "load")
    return pausing(name, call) if is_of_group else call()


def test_sealed_and_sealed_at_once_it_is_sealed_once() -> None:
    def scene(choose: Callable[[int], int]) -> None:
        bench = Bench()
        member(bench, GROUP)
        one, two = bench.replica(pausing), bench.replica(pausing)
        first, second = run([lambda: one.groups.seal(GROUP), lambda: two.groups.seal(GROUP)], choose)
        assert first == second

    assert every_order(scene) > 10


def test_a_sealed_group_is_canceled_whatever_its_tasks_are_at(bench: Bench) -> None:
    running = bench.claimed(taskGroupId=GROUP, schedulerId="scheduler")
    done = member(bench)
    bench.run(done)
    pending, founder = member(bench), member(bench, GROUP)
    unscheduled = member(bench, dependencies=[pending])
    other = bench.create()
    seal(bench)
    assert cancel(bench) == sorted([running, pending, founder, unscheduled])
    assert {bench.states(one)[-1] for one in (running, pending, founder, unscheduled)} == {
        "exception canceled"
    }
    assert (bench.states(done), bench.states(other)) == (["completed completed"], ["pending"])
    assert bench.services.group_changes.size(GROUP) == 5
    bench.run_timers()
    assert bench.events().count(("task-group-resolved", GROUP, None)) >= 1


def test_a_group_that_is_not_sealed_is_not_canceled(bench: Bench) -> None:
    task_id = member(bench)
    with pytest.raises(RequestConflict, match="sealTaskGroup first"):
        cancel(bench)
    assert bench.states(task_id) == ["pending"]


def test_canceling_again_cancels_only_what_was_rerun(bench: Bench) -> None:
    first, second = member(bench), member(bench)
    seal(bench)
    assert cancel(bench) == sorted([first, second])
    bench.run_timers()
    assert cancel(bench) == []
    bench.services.tasks.rerun(second)
    assert cancel(bench) == [second]


def test_past_its_deadline_a_task_is_left_to_that(bench: Bench) -> None:
    task_id = member(bench)
    bench.clock.advance(timedelta(days=1))
    seal(bench)
    assert cancel(bench) == []
    bench.run_timers(MINUTE)
    assert bench.states(task_id) == ["exception deadline-exceeded"]


def test_canceling_goes_on_where_it_was_cut_off(bench: Bench) -> None:
    tasks = sorted(member(bench) for _ in range(250))
    seal(bench)
    away = At(120, of="replace", before=failing(ServiceUnavailable("storage is away")))
    replica = bench.replica(away)
    with pytest.raises(ServiceUnavailable):
        replica.group_changes.cancel(GROUP)
    bench.run_timers()
    left = [one for one in tasks if not bench.task(one).is_resolved]
    assert len(left) == 51  # what was begun is brought to its end, and one of it failed
    assert cancel(bench) == left
    assert all(bench.task(one).is_resolved for one in tasks)


def test_sixteen_tasks_of_a_group_are_canceled_concurrently(bench: Bench) -> None:
    tasks = sorted(member(bench) for _ in range(32))
    seal(bench)
    sixteen = Barrier(16)

    def wait_for_others(name: str, call: Callable[[], Any]) -> Any:
        if name == "replace":
            sixteen.wait(30)
        return call()

    replica = bench.replica(wait_for_others, threads=ThreadPoolExecutor)
    assert sorted(replica.group_changes.cancel(GROUP)) == tasks


def test_a_group_of_resolved_tasks_is_walked_without_reading_them(bench: Bench) -> None:
    for _ in range(20):
        member(bench)
    seal(bench)
    cancel(bench)
    bench.run_timers()
    calls = Calls()
    bench.replica(calls).group_changes.cancel(GROUP)
    assert calls.names.count("load") <= 4
    assert "replace" not in calls.names


def test_a_task_that_is_being_created_while_its_group_is_canceled_does_not_come_into_being() -> None:
    first, late = sorted([slugid(), slugid()])  # in the same order in every scene

    def scene(choose: Callable[[int], int]) -> None:
        bench = Bench()
        member(bench, first)
        seal_it = bench.services.groups.seal
        one, two = bench.replica(_pausing), bench.replica(_pausing)

        def seal_and_cancel() -> None:
            two.groups.seal(GROUP)
            two.group_changes.cancel(GROUP)

        run([lambda: one.tasks.create(late, body()), seal_and_cancel], choose)
        assert seal_it(GROUP).sealed
        stored = bench.storage.tasks.load(late)
        assert stored is None or stored.task.is_resolved
        bench.run_timers(HOUR)
        assert bench.storage.groups.active(GROUP, "", 9) == []

    assert every_order(scene) > 10


def test_a_task_that_comes_into_being_as_it_is_barred_is_canceled(bench: Bench) -> None:
    member(bench, GROUP)
    late = slugid()
    dying = bench.replica(At(0, of="insert", before=failing(Crash())))
    with suppress(Crash):
        dying.tasks.create(late, body())
    seal(bench)
    task = replace(bench.task(GROUP), task_id=late)
    replica = bench.replica(At(0, of="bar", before=lambda: bench.storage.tasks.insert(task)))
    assert sorted(replica.group_changes.cancel(GROUP)) == sorted([GROUP, late])
    assert bench.states(late) == ["exception canceled"]


def test_a_task_that_was_refused_its_group_meanwhile_leaves_no_trace_while_the_broker_is_away() -> None:
    bench = Bench()
    bench.run(member(bench))
    bench.run_timers()
    late = slugid()

    def bar() -> None:
        bench.services.groups.seal(GROUP)
        bench.services.group_changes.cancel(GROUP)
        bench.broker.room = 0

    with pytest.raises(RequestConflict, match="is sealed"):
        bench.replica(At(0, of="insert", before=bar)).tasks.create(late, body())
    bench.broker.room = None
    bench.lose_process()
    bench.sweep(HOUR)
    bench.run_timers(HOUR)
    assert bench.storage.groups.active(GROUP, "", 9) == []


def change(bench: Bench, priority: str, directions: tuple[str, ...] = BOTH) -> list[str]:
    return sorted(bench.services.group_changes.change_priority(GROUP, priority, directions)[1])


def test_the_priority_of_a_group_is_that_of_its_tasks_that_are_not_resolved(bench: Bench) -> None:
    running = bench.claimed(taskGroupId=GROUP, schedulerId="scheduler")
    done, pending, founder = member(bench), member(bench), member(bench, GROUP)
    bench.services.claims.claim(bench.task(done), 0, ALICE, Presented())
    bench.complete(done)
    high = member(bench, priority="high")
    assert change(bench, "high") == sorted([running, pending, founder])
    assert {bench.task(one).priority for one in (running, pending, founder, high)} == {"high"}
    assert bench.task(done).priority == "lowest"
    assert sorted(runs_in(bench)["high"]) == [0, 0, 0, 1]
    assert change(bench, "high") == []
    summaries = told(bench, "task-group-priority-changed")
    assert [one["tasksAffected"] for one in summaries] == [3, 0]
    assert {one["taskGroupId"] for one in summaries} == {GROUP}
    changed = told(bench, "task-priority-changed")
    assert sorted(one["status"]["taskId"] for one in changed) == sorted([running, pending, founder])


def test_who_may_only_raise_lowers_nothing(bench: Bench) -> None:
    low, high = member(bench, priority="low"), member(bench, priority="high")
    assert change(bench, "medium", ("raise",)) == [low]
    assert change(bench, "lowest", ("raise",)) == []
    assert change(bench, "very-low", ("lower",)) == sorted([low, high])


def test_a_group_whose_summary_cannot_be_told_is_to_be_asked_again(bench: Bench) -> None:
    task_id = member(bench)
    bench.broker.room = 0
    with pytest.raises(ServiceUnavailable, match="task-group-priority-changed"):
        change(bench, "high")
    assert bench.task(task_id).priority == "high"


def test_a_server_that_dies_over_a_group_leaves_it_to_the_next_call() -> None:
    bench = Bench()
    tasks = [member(bench) for _ in range(20)]
    dying: Core = bench.server(At(7, of="replace", after=failing(Crash())))
    with suppress(Crash):
        dying.services.group_changes.change_priority(GROUP, "high", BOTH)
    bench.run_timers(MINUTE)
    change(bench, "high")
    assert {bench.task(one).priority for one in tasks} == {"high"}
    assert set(runs_in(bench)["high"]) == {0}
    assert len(runs_in(bench)["high"]) >= 20
