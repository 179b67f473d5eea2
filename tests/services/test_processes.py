"""The row of a process names the tasks to which it owes effects. If it dies, another process takes over.

Whatever fails on the way, no effect is lost. The *heir* is the process that takes over.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.ports import Corrupt
from legacy_queue.services.process.ledger import Owed
from legacy_queue.services.process.liveness import BEAT, DEAD_AFTER, READ_EVERY, TRUSTED_FOR
from legacy_queue.stores.process_store import NamedTask
from tests.domain.sample_tasks import DAY, HOUR, MINUTE, NOW, SECOND
from tests.memory_server import FakeClock
from tests.services.fake_ports import CallRecorder, Crash, FaultAt
from tests.services.processes import GROUP, Process, World
from tests.system.processes import wait_until

A, B, C = (f"Task000{letter}Q0C0000000000A" for letter in "ABC")
AWAY = ServiceUnavailable("storage is away")


@pytest.fixture
def world() -> World:
    return World()


# the row of a process names the tasks that it is about to write


def test_a_task_is_named_before_the_call_may_write_it(world: World) -> None:
    process = world.process()
    process.begin(A, NOW - SECOND, GROUP)
    process.begin(B)
    assert world.rows()["p1"].names == [NamedTask(A, NOW - SECOND, GROUP), NamedTask(B, NOW)]


def test_a_row_that_names_the_task_is_not_written_again_until_it_is_old(world: World) -> None:
    """When the row is old, another process may soon take this one for dead."""
    calls = CallRecorder()
    process = world.process(calls)
    process.do(A)
    process.begin(A)
    assert calls.names == ["write"]
    process.begin(A, group=GROUP)
    process.begin(A, NOW - SECOND)
    assert calls.names == ["write"] * 3, "the row did not name these effects"
    world.clock.advance(TRUSTED_FOR - SECOND)
    process.begin(A)
    assert calls.names == ["write"] * 3
    world.clock.advance(SECOND)
    process.begin(A)
    assert calls.names == ["write"] * 4


def test_a_new_member_needs_no_name_because_its_own_row_shows_it(world: World) -> None:
    calls = CallRecorder()
    process = world.process(calls)
    owed = process.begin(A, needs_name=False)
    process.begin(B, needs_name=False)
    assert (calls.names, world.rows()["p1"].names) == (["write"], [])
    process.processes.name_all([owed])
    assert world.rows()["p1"].names == [NamedTask(A, NOW)]


def test_if_naming_a_member_fails_the_next_try_names_it(world: World) -> None:
    process = world.process(FaultAt(1, of="write", before=AWAY))
    owed = process.begin(A, needs_name=False)
    with pytest.raises(ServiceUnavailable):
        process.processes.name_all([owed])
    process.processes.name_all([owed])
    assert world.rows()["p1"].names == [NamedTask(A, NOW)]


def test_a_task_stays_named_until_the_row_is_written_again(world: World) -> None:
    calls = CallRecorder()
    process = world.process(calls)
    for _ in range(2):
        process.do(A, group=GROUP)
    assert (calls.names, world.rows()["p1"].names) == (["write"], [NamedTask(A, NOW, GROUP)])
    process.do(B)
    assert world.rows()["p1"].names == [NamedTask(B, NOW)]
    process.do(A)
    assert calls.names == ["write"] * 3


@pytest.mark.parametrize("applied", ["before", "after"])
def test_after_a_write_with_an_unknown_result_a_task_is_named_again(world: World, applied: str) -> None:
    process = world.process(FaultAt(1, **{applied: AWAY}, of="write"))
    process.do(A)
    with pytest.raises(ServiceUnavailable):
        process.begin(B)
    owed = process.begin(A if applied == "after" else B)
    assert owed.task_id in [name.task_id for name in world.rows()["p1"].names]


def test_a_task_is_named_again_while_a_row_without_it_is_being_written(world: World) -> None:
    calls: list[Future[Owed]] = []

    def meanwhile() -> None:
        calls.append(threads.submit(process.begin, A))
        wait_until(lambda: calls[0].done() or process.processes.waiting == 1)

    process = world.process(FaultAt(1, of="write", before=meanwhile))
    process.do(A)
    with ThreadPoolExecutor(1) as threads:
        process.begin(B)
        calls[0].result(60)
    assert {name.task_id for name in world.rows()["p1"].names} == {A, B}


def test_if_a_task_cannot_be_named_its_call_fails_and_leaves_nothing(world: World) -> None:
    process = world.process(FaultAt(0, of="write", before=AWAY))
    with pytest.raises(ServiceUnavailable):
        process.begin(A)
    assert process.ledger.in_memory() == 0
    assert world.rows() == {}


def test_a_process_renews_its_row_at_each_beat_and_not_in_between(world: World) -> None:
    calls = CallRecorder()
    process = world.process(calls)
    for _ in range(24):
        process.processes.tick()
        world.clock.advance(SECOND / 2)
    assert calls.names.count("write") == 3


# which process is dead


@pytest.mark.parametrize("skew", [-MINUTE, timedelta(0), MINUTE])
def test_a_process_that_does_not_renew_its_row_for_15_seconds_is_dead(world: World, skew: timedelta) -> None:
    """The observer measures the 15 seconds by its own clock: the clocks of two processes may differ."""
    dead = world.process(clock=FakeClock(NOW + skew))
    heir = world.process()
    dead.begin(A)
    heir.processes.read_others()
    world.pass_by(DEAD_AFTER / SECOND - 1, heir)
    assert (heir.looks(), len(heir.processes.others())) == ([], 1)
    world.pass_by(1, heir)
    [look] = heir.looks()
    assert (look.task_id, look.since) == (A, EVER)
    assert ([*world.rows()], heir.processes.others()) == (["p2"], [])
    assert heir.processes.departures == 1


def test_a_process_that_renews_its_row_is_never_taken_over(world: World) -> None:
    one, other = world.process(), world.process()
    one.begin(A)
    world.pass_by(120, one, other)
    assert (other.looks(), other.processes.departures) == ([], 0)
    assert world.rows()["p1"].names == [NamedTask(A, NOW)]


def test_a_process_that_hands_over_is_taken_over_at_the_next_reading(world: World) -> None:
    ended, heir = world.process(), world.process()
    ended.begin(A)
    ended.do(B)
    ended.processes.hand_over()
    heir.processes.read_others()
    assert [look.task_id for look in heir.looks()] == [A]
    assert "p1" not in world.rows()


def test_a_process_that_has_served_nobody_writes_nothing_when_it_ends(world: World) -> None:
    """Otherwise the parent of the server processes would open the file that they have closed."""
    world.process().processes.hand_over()
    assert world.rows() == {}


def test_a_process_that_was_taken_for_dead_writes_its_row_again(world: World) -> None:
    still, heir = world.process(), world.process()
    still.begin(A)
    world.pass_by(DEAD_AFTER / SECOND + 1, heir)
    assert "p1" not in world.rows()
    still.begin(A)
    assert world.rows()["p1"].names == [NamedTask(A, NOW)]
    heir.processes.read_others()
    assert [row.process for row in heir.processes.others()] == ["p1"]


def test_the_process_with_the_lowest_name_is_first_until_it_is_dead(world: World) -> None:
    first, second = world.process(), world.process()
    first.processes.tick()
    second.processes.tick()
    assert [each.processes.is_first() for each in (first, second)] == [True, False]
    world.pass_by(DEAD_AFTER / SECOND, second)
    assert second.processes.is_first()


def test_the_rows_of_other_processes_are_not_read_again_within_max_age(world: World) -> None:
    calls = CallRecorder()
    process = world.process(calls)
    process.processes.read_others()
    process.processes.read_others(READ_EVERY)
    assert calls.names.count("others") == 1
    process.processes.read_others()
    world.clock.advance(READ_EVERY)
    process.processes.read_others(READ_EVERY)
    assert calls.names.count("others") == 3


# what the process that takes over does


def left_by_p1(world: World) -> Process:
    """p1 has died.

    It owed effects to A, and it created B as a member of a group without publishing B's events.
    """
    dead = world.process()
    dead.do(C)
    dead.begin(A)
    member = dead.begin(B, group=GROUP, needs_name=False)
    world.member(B, dead.processes.version(member))
    world.member(C, "p1/1")
    world.clock.advance(DEAD_AFTER)
    return dead


def take_over(world: World, *processes: Process) -> None:
    for _ in range(2):
        for process in processes:
            with suppress(Crash, ServiceUnavailable):
                process.processes.read_others()
        world.clock.advance(DEAD_AFTER)


def test_the_heir_repeats_the_effects_of_named_tasks_and_of_unsettled_members(world: World) -> None:
    left_by_p1(world)
    heir = world.process()
    take_over(world, heir)
    looks = {look.task_id: look for look in heir.looks()}
    assert {task_id: look.task_group_id for task_id, look in looks.items()} == {A: "", B: GROUP}
    row = world.rows()["p2"]
    assert ([name.task_id for name in row.names if name.task_id == A], row.inherited) == ([A], {"p1": 1})


STEPS = [
    *[{"of": name, when: Crash()} for name in ("write", "remove") for when in ("before", "after")],
    *[{"of": name, "before": Crash()} for name in ("all_active", "unsettled")],
]


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_an_heir_that_dies_at_any_step_loses_nothing(world: World, step: dict[str, Any]) -> None:
    left_by_p1(world)
    dies = world.process(FaultAt(0, **step))
    take_over(world, dies)
    last = world.process()
    take_over(world, last)
    take_over(world, last)
    assert {look.task_id for look in last.looks()} == {A, B}
    assert [*world.rows()] == ["p3"]


def test_if_an_heir_dies_the_next_one_does_what_is_left(world: World) -> None:
    left_by_p1(world)
    dies, last = world.process(), world.process()
    take_over(world, dies)
    assert {look.task_id for look in dies.looks()} == {A, B}
    assert world.rows()["p2"].inherited == {"p1": 1}
    take_over(world, last)
    looks = last.looks()
    assert {look.task_id for look in looks} == {A, B}
    last.close(looks)
    world.pass_by(BEAT / SECOND + 1, last)
    assert (world.rows()["p3"].names, world.rows()["p3"].inherited) == ([], {})


def test_two_processes_that_take_over_at_the_same_time_do_the_same_work(world: World) -> None:
    left_by_p1(world)
    other = world.process()
    heir = world.process(FaultAt(0, of="write", before=lambda: take_over(world, other)))
    heir.processes.read_others()
    world.clock.advance(DEAD_AFTER)
    other.processes.tick()
    heir.processes.read_others()
    for each in (other, heir):
        assert {look.task_id for look in each.looks()} == {A, B}
    assert {*world.rows()} == {"p2", "p3"}


def test_a_row_that_is_written_while_its_process_is_taken_over_stays(world: World) -> None:
    still = left_by_p1(world)
    heir = world.process(FaultAt(0, of="remove", before=still.processes.tick))
    take_over(world, heir)
    assert "p1" in world.rows()
    assert {look.task_id for look in heir.looks()} == {A, B}


def test_if_reading_the_tasks_fails_it_is_repeated_and_nothing_is_owed_twice(world: World) -> None:
    left_by_p1(world)
    heir = world.process(FaultAt(0, of="unsettled", before=AWAY))
    take_over(world, heir)
    take_over(world, heir)
    looks = {look.task_id: look for look in heir.looks()}
    assert {task_id: len(look.owed) for task_id, look in looks.items()} == {A: 1, B: 1}


# when tasks are due


def dues(process: Process) -> set[str]:
    process.clock.advance(2 * DAY)
    return {look.task_id for look in process.looks() if look.is_due}


def test_the_first_process_remembers_when_tasks_of_unknown_processes_are_due(world: World) -> None:
    world.task(A, "p0/1")
    world.task(B, "")
    first, second = world.process(), world.process()
    first.processes.tick()
    for process in (first, second):
        process.processes.read_others()
    assert (dues(first), dues(second)) == ({A, B}, set())


def test_the_heir_remembers_when_tasks_are_due_that_no_living_process_wrote(world: World) -> None:
    dead, alive, heir = world.process(), world.process(), world.process()
    for process, task_id in ((dead, A), (alive, B)):
        world.task(task_id, process.do(task_id))
        process.processes.tick()
    heir.processes.read_others()
    world.pass_by(DEAD_AFTER / SECOND, alive, heir)
    assert dues(heir) == {A}


def test_the_heir_repeats_the_effects_of_marked_tasks_and_of_unsettled_writes(world: World) -> None:
    dead, alive, heir = world.process(), world.process(), world.process()
    world.task(A, dead.do(A), is_unpublished=True)
    world.task(B, alive.do(B), is_unpublished=True)
    world.clock.advance(BEAT)
    for process in (dead, alive):
        process.processes.tick()
    heir.processes.read_others()
    world.task(C, dead.processes.version(dead.begin(C, needs_name=False)))
    world.pass_by(DEAD_AFTER / SECOND, alive, heir)
    assert {(look.task_id, look.is_marked) for look in heir.looks() if look.owed} == {(A, True), (C, False)}


def test_due_times_that_were_forgotten_are_read_again_in_time(world: World) -> None:
    process = world.process(max_dues=2)
    for number in range(5):
        task_id = f"Task{number:03}AQ0C0000000000A"
        world.task(task_id, process.do(task_id))
        process.ledger.note_due(task_id, NOW + DAY, number + 1)
    assert process.ledger.in_memory() < 5
    found = set[str]()
    for _ in range(10):
        process.clock.advance(DAY / 2 if not found else HOUR)
        process.processes.read_others()
        looks = process.looks()
        found |= {look.task_id for look in looks}
        for look in looks:
            stored = world.storage.tasks.load(look.task_id)
            assert stored
            world.storage.account.table("qtasks").delete(look.task_id, "task")
    assert len(found) == 5


# how a process knows whether the events of a write are published


def test_when_a_process_has_settled_a_write_other_processes_know_that_its_events_are_published(
    world: World,
) -> None:
    writer, asks = world.process(), world.process()
    owed = writer.begin(A)
    version = writer.processes.version(owed)
    assert (writer.processes.number(version), asks.processes.number(version)) == (1, 0)
    assert asks.processes.has_events("")
    assert not asks.processes.has_events(version)
    asks.processes.read_others()
    writer.ledger.close([owed])
    world.clock.advance(BEAT)
    writer.processes.tick()
    assert asks.processes.has_events(version), "it must read the row of the writer again"


def test_asking_for_a_write_that_is_known_to_be_settled_costs_no_read(world: World) -> None:
    calls = CallRecorder()
    writer, asks = world.process(), world.process(calls)
    version = writer.do(A)
    writer.do(B)
    asks.processes.read_others()
    calls.names.clear()
    assert asks.processes.has_events(version)
    assert calls.names == []


def test_the_events_of_a_dead_process_count_as_published_when_its_heir_has_published_them(
    world: World,
) -> None:
    dead, heir, asks = world.process(), world.process(), world.process()
    settled, open_version = dead.do(B), dead.processes.version(dead.begin(A))
    take_over(world, heir)
    assert "p1" not in world.rows()
    for process in (heir, asks):
        assert process.processes.has_events(settled)
        assert not process.processes.has_events(open_version)
    heir.close(heir.looks())
    heir.processes.tick()
    for process in (heir, asks):
        assert process.processes.has_events(open_version)


@pytest.mark.parametrize("error", [AWAY, Corrupt("the row cannot be read")], ids=repr)
@pytest.mark.parametrize("name", ["load", "others"])
def test_if_it_is_unknown_whether_events_were_published_they_are_published_again(
    world: World, error: Exception, name: str
) -> None:
    asks = world.process(FaultAt(0, of=name, before=error))
    assert not asks.processes.has_events("dead/1")
    assert asks.processes.has_events("dead/1")
