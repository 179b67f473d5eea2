"""The ledger of a process: which effects it still has to apply, and when it must look at a task.

A process *owes* an effect to a task until it has applied it.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.services.process import ledger
from legacy_queue.services.process.ledger import Ledger, Look
from legacy_queue.stores.process_store import Name
from tests.domain.sample_tasks import HOUR, MINUTE, NOW, SECOND
from tests.memory_server import FakeClock
from tests.services.processes import GROUP
from tests.system.processes import wait_until

A, B, C = (f"Task000{letter}Q0C0000000000A" for letter in "ABC")


class Kept(Ledger):
    """A ledger and its clock."""

    def __init__(self, max_dues: int = 100) -> None:
        self.clock = FakeClock(NOW)
        super().__init__(self.clock, max_dues)

    def looks(self, passed: timedelta = timedelta(0)) -> list[Look]:
        """What the resolver gets when this much time has passed."""
        self.clock.advance(passed)
        self.fire()
        found = []
        while look := self.next_look(waits=False):
            found.append(look)
        return found

    def due(self, passed: timedelta = timedelta(0)) -> list[str]:
        return [look.task_id for look in self.looks(passed) if look.is_due]


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_all_writes_before_the_first_open_one_are_settled(kept: Kept) -> None:
    settled = [kept.names()[1]]
    first, second, third = (kept.open(task_id, NOW) for task_id in (A, B, C))
    for owed in (second, first, third):
        kept.close([owed])
        settled.append(kept.names()[1])
    assert settled == [0, 0, 2, 3]
    assert (kept.number, kept.in_memory()) == (3, 0)


def test_the_events_of_a_write_are_missing_until_they_are_published_or_the_write_is_closed(
    kept: Kept,
) -> None:
    one, two = kept.open(A, NOW), kept.open(A, NOW)
    assert not kept.is_applied(one.number)
    kept.repeat_later([one], is_published=False, is_marked=True)
    assert not kept.is_applied(one.number)
    kept.repeat_later([one], is_published=True)
    kept.close([two])
    assert kept.is_applied(one.number)
    assert kept.is_applied(two.number)


def test_a_task_is_named_once_for_all_that_is_owed_to_it(kept: Kept) -> None:
    kept.open(A, NOW + SECOND)
    kept.open(A, NOW, GROUP)
    kept.open(A, NOW + MINUTE)
    kept.open(B, NOW, is_named=False)
    assert kept.names()[0] == [Name(A, NOW, GROUP)]


def test_a_marked_task_is_not_named_and_does_not_keep_later_writes_from_being_settled(kept: Kept) -> None:
    marked = kept.open(A, NOW)
    kept.repeat_later([marked], is_marked=True)
    kept.repeat_later([marked], is_marked=True)
    assert kept.names() == ([], 1)
    kept.close([marked])
    assert kept.in_memory() == 0


def test_the_resolver_does_not_look_at_a_task_while_its_call_is_under_way(kept: Kept) -> None:
    owed = kept.open(A, NOW)
    assert kept.looks(HOUR) == []
    kept.repeat_later([owed], MINUTE)
    assert kept.looks() == []
    assert kept.looks(MINUTE) == [Look(A, [owed])]
    assert kept.looks(HOUR) == []


def test_one_look_covers_all_that_is_owed_to_a_task(kept: Kept) -> None:
    first, second, third = kept.open(A, NOW), kept.open(A, NOW - MINUTE, GROUP), kept.open(A, NOW)
    kept.repeat_later([first], is_published=True, tries=3)
    kept.repeat_later([second], is_marked=True)
    third.repeats_all = True
    [look] = kept.looks()
    assert (look.since, look.oldest, look.task_group_id) == (NOW - MINUTE, NOW - MINUTE, GROUP)
    assert (look.is_published, look.is_marked, look.tries) == (False, False, 3)
    for owed in (first, second, third):
        kept.repeat_later([owed], is_published=True, is_marked=True)
    assert kept.late() == 3
    [look] = kept.looks()
    assert (look.since, look.oldest, look.is_published, look.is_marked) == (EVER, NOW - MINUTE, True, True)
    nothing = Look(A, is_due=True)
    assert (nothing.since, nothing.oldest, nothing.task_group_id) == (None, EVER, "")
    assert (nothing.is_marked, nothing.tries) == (False, 0)


def test_what_a_dead_process_owed_is_repeated_immediately_and_only_once(kept: Kept) -> None:
    names = [Name(A, NOW), Name(A, NOW, GROUP), Name(B, NOW)]
    for _ in range(2):
        kept.inherit(names)
    assert {name.task_id for name in kept.names()[0]} == {A, B}
    assert [(look.task_id, look.since, look.task_group_id) for look in kept.looks()] == [
        (A, EVER, GROUP),
        (B, EVER, ""),
    ]


def test_a_marked_task_of_a_dead_process_is_not_named(kept: Kept) -> None:
    kept.inherit([Name(A, EVER)], is_marked=True)
    assert kept.names() == ([], 1)
    [look] = kept.looks()
    assert look.is_marked


def test_the_resolver_looks_at_a_task_once_when_it_is_due(kept: Kept) -> None:
    kept.note_due(A, NOW + MINUTE, 1)
    kept.note_due(B, NOW + SECOND, 2)
    assert kept.looks() == []
    assert kept.looks(HOUR) == [Look(B, [], is_due=True), Look(A, [], is_due=True)]
    assert kept.looks(HOUR) == []


def test_the_resolver_does_not_look_at_a_resolved_task(kept: Kept) -> None:
    kept.note_due(A, NOW + MINUTE, 1)
    kept.note_due(A, None, 2)
    assert kept.looks(HOUR) == []
    assert kept.in_memory() == 0


def test_a_call_that_ends_after_a_later_call_on_the_task_does_not_change_when_it_is_due(kept: Kept) -> None:
    kept.note_due(A, NOW + MINUTE, 2)
    kept.note_due(A, NOW + HOUR, 1)
    kept.note_due(A, None, 1)
    assert kept.due(MINUTE) == [A]


@pytest.mark.parametrize(("other", "due"), [(HOUR, MINUTE), (SECOND, SECOND), (None, MINUTE)])
def test_if_two_processes_disagree_when_a_task_is_due_the_earlier_time_counts(
    kept: Kept, other: timedelta | None, due: timedelta
) -> None:
    kept.note_due(A, NOW + MINUTE, 3)
    kept.note_due(A, NOW + other if other else None)
    assert kept.due(due - SECOND) == []
    assert kept.due(SECOND) == [A]


def test_the_next_write_of_this_process_replaces_an_earlier_time_from_another_process(kept: Kept) -> None:
    kept.note_due(A, NOW + MINUTE, 3)
    kept.note_due(A, NOW + SECOND)
    kept.note_due(A, NOW + SECOND, 2)
    kept.note_due(A, NOW + HOUR, 4)
    assert kept.due(MINUTE) == []
    assert kept.due(HOUR) == [A]


def test_a_due_time_that_only_another_process_gave_is_forgotten_when_it_is_over(kept: Kept) -> None:
    kept.note_due(A, None)
    kept.note_due(A, NOW + MINUTE)
    assert kept.due(MINUTE) == [A]
    assert kept.in_memory() == 0


def test_if_there_are_too_many_due_times_the_latest_are_forgotten_and_read_again_before_they_are_due() -> (
    None
):
    kept = Kept(max_dues=3)
    tasks = [f"Task{number:03}AQ0C0000000000A" for number in range(6)]
    for number, task_id in enumerate(tasks):
        kept.note_due(task_id, NOW + (number + 1) * HOUR, number + 1)
    assert kept.in_memory() == 1
    assert kept.due(HOUR) == tasks[:1]
    assert not kept.must_read_dues()
    kept.clock.advance(HOUR - MINUTE)
    assert kept.must_read_dues()
    kept.forget_dues()
    assert not kept.must_read_dues()
    kept.note_due(tasks[1], NOW + 2 * HOUR)
    assert kept.due(MINUTE) == tasks[1:2]


def test_tasks_that_are_resolved_before_they_are_due_leave_nothing_in_memory(kept: Kept) -> None:
    kept.note_due(B, NOW + 24 * HOUR, 1)
    kept.repeat_later([kept.open(C, NOW)], 24 * HOUR)
    kept.repeat_later([kept.open(C, NOW)])
    kept.repeat_now()
    before = sys.getrefcount(A)
    for number in range(0, 6000, 2):
        kept.note_due(A, NOW + 23 * HOUR, number + 1)
        kept.note_due(A, None, number + 2)
    assert sys.getrefcount(A) < before + 1100
    assert kept.due(24 * HOUR) == [B]


def test_a_failed_look_at_a_due_task_is_repeated_or_comes_earlier_if_the_task_is_due_earlier(
    kept: Kept,
) -> None:
    kept.note_due(A, NOW, 1)
    assert kept.due() == [A]
    kept.look_again(A, MINUTE)
    assert kept.due(SECOND) == []
    assert kept.due(MINUTE) == [A]
    kept.note_due(A, kept.clock.now() + SECOND, 2)
    kept.look_again(A, MINUTE)
    assert kept.due(SECOND) == [A]


def test_when_the_broker_is_back_the_oldest_missing_effects_come_first(kept: Kept) -> None:
    for task_id, age in ((A, SECOND), (B, HOUR), (C, MINUTE)):
        kept.repeat_later([kept.open(task_id, NOW - age)], HOUR)
    kept.open("under way", NOW - HOUR)
    assert kept.looks() == []
    kept.repeat_now()
    assert [look.task_id for look in kept.looks()] == [B, C, A]


def test_a_moved_clock_stops_at_each_due_time_and_retries_failures_only_at_the_end(kept: Kept) -> None:
    end = NOW + HOUR
    failed, ended = kept.open(A, NOW), kept.open("ended", NOW)
    kept.repeat_later([failed], SECOND, tries=1)
    kept.repeat_later([ended], SECOND)
    kept.note_due(B, NOW + MINUTE, 7)
    kept.note_due(C, NOW + 2 * HOUR, 8)
    times = []
    while fires := kept.next_fires(end):
        times.append((fires - NOW, [look.task_id for look in kept.looks(fires - kept.clock.now())]))
    assert times == [(SECOND, ["ended"]), (MINUTE, [B]), (HOUR, [A])]
    kept.note_due(C, None, 9)
    assert kept.next_fires(NOW + 3 * HOUR) is None


def test_a_wait_for_the_next_look_can_be_ended(kept: Kept) -> None:
    kept.note_due(A, NOW, 1)
    kept.fire()
    kept.note_due(A, None, 2)
    kept.end_wait()
    assert kept.next_look(waits=True) is None


def test_the_effects_of_resolved_tasks_come_before_further_due_tasks() -> None:
    """A thousand tasks have the same deadline.

    The effects of the first are applied before the last is resolved.
    """
    kept = Kept(max_dues=1000)
    for number in range(1000):
        kept.note_due(f"Task{number:03}AQ0C0000000000A", NOW, number + 1)
    kept.fire()
    most, ended = 0, 0
    while look := kept.next_look(waits=False):
        if look.is_due:
            kept.repeat_later([kept.open(look.task_id, NOW)])
            ended += 1
        kept.close(look.owed)
        most = max(most, kept.in_memory() + ended - 1000)
    assert (ended, kept.late()) == (1000, 0)
    assert most <= 100


def test_a_call_waits_while_the_resolver_is_too_far_behind(kept: Kept) -> None:
    """All open effects must fit into the row of the process, which has at most 1 MiB."""
    behind = [kept.open(A, NOW) for _ in range(500)]
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(kept.wait_for_room)
        wait_until(call.running)
        assert not call.done()
        kept.close(behind[:1])
        call.result(60)
    kept.wait_for_room()
    kept.open(A, NOW)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(kept.wait_for_room) for _ in range(2)]
        wait_until(lambda: all(call.running() for call in calls))
        kept.repeat_later(behind[1:2], is_marked=True)
        for call in calls:
            call.result(10)


def test_a_call_that_has_waited_too_long_for_the_resolver_is_service_unavailable(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_WAIT_FOR_ROOM", 0)
    for _ in range(500):
        kept.open(A, NOW)
    with pytest.raises(ServiceUnavailable):
        kept.wait_for_room()
