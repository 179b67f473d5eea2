"""The ledger of a process: which effects it still has to apply, and when it must look at a task.

A process *owes* an effect to a task until it has applied it.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.services.process.ledger import Ledger, Look
from legacy_queue.stores.process_store import NamedTask
from tests.domain.sample_tasks import HOUR, MINUTE, NOW, SECOND
from tests.memory_server import FakeClock
from tests.services.processes import GROUP
from tests.system.processes import wait_until

A, B, C = (f"Task000{letter}Q0C0000000000A" for letter in "ABC")


class ClockedLedger(Ledger):
    """A ledger with a fake clock."""

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
def ledger() -> ClockedLedger:
    return ClockedLedger()


def test_all_writes_before_the_first_open_one_are_settled(ledger: ClockedLedger) -> None:
    settled = [ledger.names()[1]]
    first, second, third = (ledger.open(task_id, NOW) for task_id in (A, B, C))
    for owed in (second, first, third):
        ledger.close([owed])
        settled.append(ledger.names()[1])
    assert settled == [0, 0, 2, 3]
    assert (ledger.number, ledger.in_memory()) == (3, 0)


def test_the_events_of_a_write_are_missing_until_they_are_published_or_the_write_is_closed(
    ledger: ClockedLedger,
) -> None:
    one, two = ledger.open(A, NOW), ledger.open(A, NOW)
    assert not ledger.is_applied(one.number)
    ledger.repeat_later([one], is_published=False, is_marked=True)
    assert not ledger.is_applied(one.number)
    ledger.repeat_later([one], is_published=True)
    ledger.close([two])
    assert ledger.is_applied(one.number)
    assert ledger.is_applied(two.number)


def test_a_task_is_named_once_for_all_that_is_owed_to_it(ledger: ClockedLedger) -> None:
    ledger.open(A, NOW + SECOND)
    ledger.open(A, NOW, GROUP)
    ledger.open(A, NOW + MINUTE)
    ledger.open(B, NOW, is_named=False)
    assert ledger.names()[0] == [NamedTask(A, NOW, GROUP)]


def test_a_marked_task_is_not_named_and_does_not_keep_later_writes_from_being_settled(
    ledger: ClockedLedger,
) -> None:
    marked = ledger.open(A, NOW)
    ledger.repeat_later([marked], is_marked=True)
    ledger.repeat_later([marked], is_marked=True)
    assert ledger.names() == ([], 1)
    ledger.close([marked])
    assert ledger.in_memory() == 0


def test_the_resolver_does_not_look_at_a_task_while_its_call_is_under_way(ledger: ClockedLedger) -> None:
    owed = ledger.open(A, NOW)
    assert ledger.looks(HOUR) == []
    ledger.repeat_later([owed], MINUTE)
    assert ledger.looks() == []
    assert ledger.looks(MINUTE) == [Look(A, [owed])]
    assert ledger.looks(HOUR) == []


def test_one_look_covers_all_that_is_owed_to_a_task(ledger: ClockedLedger) -> None:
    first, second, third = ledger.open(A, NOW), ledger.open(A, NOW - MINUTE, GROUP), ledger.open(A, NOW)
    ledger.repeat_later([first], is_published=True, tries=3)
    ledger.repeat_later([second], is_marked=True)
    third.repeats_all = True
    [look] = ledger.looks()
    assert (look.since, look.oldest, look.task_group_id) == (NOW - MINUTE, NOW - MINUTE, GROUP)
    assert (look.is_published, look.is_marked, look.tries) == (False, False, 3)
    for owed in (first, second, third):
        ledger.repeat_later([owed], is_published=True, is_marked=True)
    assert ledger.late() == 3
    [look] = ledger.looks()
    assert (look.since, look.oldest, look.is_published, look.is_marked) == (EVER, NOW - MINUTE, True, True)
    nothing = Look(A, is_due=True)
    assert (nothing.since, nothing.oldest, nothing.task_group_id) == (None, EVER, "")
    assert (nothing.is_marked, nothing.tries) == (False, 0)


def test_what_a_dead_process_owed_is_repeated_immediately_and_only_once(ledger: ClockedLedger) -> None:
    names = [NamedTask(A, NOW), NamedTask(A, NOW, GROUP), NamedTask(B, NOW)]
    for _ in range(2):
        ledger.inherit(names)
    assert {name.task_id for name in ledger.names()[0]} == {A, B}
    assert [(look.task_id, look.since, look.task_group_id) for look in ledger.looks()] == [
        (A, EVER, GROUP),
        (B, EVER, ""),
    ]


def test_a_marked_task_of_a_dead_process_is_not_named(ledger: ClockedLedger) -> None:
    ledger.inherit([NamedTask(A, EVER)], is_marked=True)
    assert ledger.names() == ([], 1)
    [look] = ledger.looks()
    assert look.is_marked


def test_the_resolver_looks_at_a_task_once_when_it_is_due(ledger: ClockedLedger) -> None:
    ledger.note_due(A, NOW + MINUTE, 1)
    ledger.note_due(B, NOW + SECOND, 2)
    assert ledger.looks() == []
    assert ledger.looks(HOUR) == [Look(B, [], is_due=True), Look(A, [], is_due=True)]
    assert ledger.looks(HOUR) == []


def test_the_resolver_does_not_look_at_a_resolved_task(ledger: ClockedLedger) -> None:
    ledger.note_due(A, NOW + MINUTE, 1)
    ledger.note_due(A, None, 2)
    assert ledger.looks(HOUR) == []
    assert ledger.in_memory() == 0


def test_a_call_that_ends_after_a_later_call_on_the_task_does_not_change_when_it_is_due(
    ledger: ClockedLedger,
) -> None:
    ledger.note_due(A, NOW + MINUTE, 2)
    ledger.note_due(A, NOW + HOUR, 1)
    ledger.note_due(A, None, 1)
    assert ledger.due(MINUTE) == [A]


@pytest.mark.parametrize(("other", "due"), [(HOUR, MINUTE), (SECOND, SECOND), (None, MINUTE)])
def test_if_two_processes_disagree_when_a_task_is_due_the_earlier_time_counts(
    ledger: ClockedLedger, other: timedelta | None, due: timedelta
) -> None:
    ledger.note_due(A, NOW + MINUTE, 3)
    ledger.note_due(A, NOW + other if other else None)
    assert ledger.due(due - SECOND) == []
    assert ledger.due(SECOND) == [A]


def test_the_next_write_of_this_process_replaces_an_earlier_time_from_another_process(
    ledger: ClockedLedger,
) -> None:
    ledger.note_due(A, NOW + MINUTE, 3)
    ledger.note_due(A, NOW + SECOND)
    ledger.note_due(A, NOW + SECOND, 2)
    ledger.note_due(A, NOW + HOUR, 4)
    assert ledger.due(MINUTE) == []
    assert ledger.due(HOUR) == [A]


def test_a_due_time_that_only_another_process_gave_is_forgotten_when_it_is_over(
    ledger: ClockedLedger,
) -> None:
    ledger.note_due(A, None)
    ledger.note_due(A, NOW + MINUTE)
    assert ledger.due(MINUTE) == [A]
    assert ledger.in_memory() == 0


def test_if_there_are_too_many_due_times_the_latest_are_forgotten_and_read_again_before_they_are_due() -> (
    None
):
    ledger = ClockedLedger(max_dues=3)
    tasks = [f"Task{number:03}AQ0C0000000000A" for number in range(6)]
    for number, task_id in enumerate(tasks):
        ledger.note_due(task_id, NOW + (number + 1) * HOUR, number + 1)
    assert ledger.in_memory() == 1
    assert ledger.due(HOUR) == tasks[:1]
    assert not ledger.must_read_dues()
    ledger.clock.advance(HOUR - MINUTE)
    assert ledger.must_read_dues()
    ledger.forget_dues()
    assert not ledger.must_read_dues()
    ledger.note_due(tasks[1], NOW + 2 * HOUR)
    assert ledger.due(MINUTE) == tasks[1:2]


def test_tasks_that_are_resolved_before_they_are_due_leave_nothing_in_memory(ledger: ClockedLedger) -> None:
    ledger.note_due(B, NOW + 24 * HOUR, 1)
    ledger.repeat_later([ledger.open(C, NOW)], 24 * HOUR)
    ledger.repeat_later([ledger.open(C, NOW)])
    ledger.repeat_now()
    before = sys.getrefcount(A)
    for number in range(0, 6000, 2):
        ledger.note_due(A, NOW + 23 * HOUR, number + 1)
        ledger.note_due(A, None, number + 2)
    assert sys.getrefcount(A) < before + 1100
    assert ledger.due(24 * HOUR) == [B]


def test_a_failed_look_at_a_due_task_is_repeated_or_comes_earlier_if_the_task_is_due_earlier(
    ledger: ClockedLedger,
) -> None:
    ledger.note_due(A, NOW, 1)
    assert ledger.due() == [A]
    ledger.look_again(A, MINUTE)
    assert ledger.due(SECOND) == []
    assert ledger.due(MINUTE) == [A]
    ledger.note_due(A, ledger.clock.now() + SECOND, 2)
    ledger.look_again(A, MINUTE)
    assert ledger.due(SECOND) == [A]


def test_when_the_broker_is_back_the_oldest_missing_effects_come_first(ledger: ClockedLedger) -> None:
    for task_id, age in ((A, SECOND), (B, HOUR), (C, MINUTE)):
        ledger.repeat_later([ledger.open(task_id, NOW - age)], HOUR)
    ledger.open("under way", NOW - HOUR)
    assert ledger.looks() == []
    ledger.repeat_now()
    assert [look.task_id for look in ledger.looks()] == [B, C, A]


def test_a_moved_clock_stops_at_each_due_time_and_retries_failures_only_at_the_end(
    ledger: ClockedLedger,
) -> None:
    end = NOW + HOUR
    failed, ended = ledger.open(A, NOW), ledger.open("ended", NOW)
    ledger.repeat_later([failed], SECOND, tries=1)
    ledger.repeat_later([ended], SECOND)
    ledger.note_due(B, NOW + MINUTE, 7)
    ledger.note_due(C, NOW + 2 * HOUR, 8)
    times = []
    while fires := ledger.next_fires(end):
        times.append((fires - NOW, [look.task_id for look in ledger.looks(fires - ledger.clock.now())]))
    assert times == [(SECOND, ["ended"]), (MINUTE, [B]), (HOUR, [A])]
    ledger.note_due(C, None, 9)
    assert ledger.next_fires(NOW + 3 * HOUR) is None


def test_a_wait_for_the_next_look_can_be_ended(ledger: ClockedLedger) -> None:
    ledger.note_due(A, NOW, 1)
    ledger.fire()
    ledger.note_due(A, None, 2)
    ledger.end_wait()
    assert ledger.next_look(waits=True) is None


def test_the_effects_of_resolved_tasks_come_before_further_due_tasks() -> None:
    """A thousand tasks have the same deadline.

    The effects of the first are applied before the last is resolved.
    """
    ledger = ClockedLedger(max_dues=1000)
    for number in range(1000):
        ledger.note_due(f"Task{number:03}AQ0C0000000000A", NOW, number + 1)
    ledger.fire()
    most, ended = 0, 0
    while look := ledger.next_look(waits=False):
        if look.is_due:
            ledger.repeat_later([ledger.open(look.task_id, NOW)])
            ended += 1
        ledger.close(look.owed)
        most = max(most, ledger.in_memory() + ended - 1000)
    assert (ended, ledger.late()) == (1000, 0)
    assert most <= 100


def test_a_call_waits_while_the_resolver_is_too_far_behind(ledger: ClockedLedger) -> None:
    """All open effects must fit into the row of the process, which has at most 1 MiB."""
    behind = [ledger.open(A, NOW) for _ in range(500)]
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(ledger.wait_for_room)
        wait_until(call.running)
        assert not call.done()
        ledger.close(behind[:1])
        call.result(60)
    ledger.wait_for_room()
    ledger.open(A, NOW)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(ledger.wait_for_room) for _ in range(2)]
        wait_until(lambda: all(call.running() for call in calls))
        ledger.repeat_later(behind[1:2], is_marked=True)
        for call in calls:
            call.result(10)


def test_a_call_that_has_waited_too_long_for_the_resolver_is_service_unavailable(
    ledger: ClockedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legacy_queue.services.process.ledger._WAIT_FOR_ROOM", 0)
    for _ in range(500):
        ledger.open(A, NOW)
    with pytest.raises(ServiceUnavailable):
        ledger.wait_for_room()
