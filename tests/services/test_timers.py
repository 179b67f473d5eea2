"""Timers are stored before a write, kept until all effects are applied, found when their process dies, and
handled: none blocks others, none is retried for ever.
"""

import itertools
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import EVER
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timer import Timer
from legacy_queue.ports import BrokerAway
from legacy_queue.services.composition import Services
from legacy_queue.services.recovery.advance import Advance, Next
from legacy_queue.services.recovery.jobs import TIMER_LEASE
from legacy_queue.services.recovery.resolver import Resolver
from legacy_queue.services.recovery.timers import FiredTimer, Timers
from legacy_queue.services.tasks.groups import Groups
from legacy_queue.stores.timer_store import TimerStore, stored
from tests.domain.tasks import HOUR, MINUTE, NOW, SECOND, task_body
from tests.memory_server import FakeClock
from tests.services.harness import Harness, Logs
from tests.services.ports import (
    CallRecorder,
    Crash,
    FaultAt,
    Intercept,
    call_through,
    intercept_port,
)

READ = 5 * SECOND  # the pause between two looks of a process for due rows
GRACE = SECOND  # in which the process that inserted a row handles it
A, B, C = (f"Task000{letter}Q0C0000000000A" for letter in "ABC")
GROUP = "Zb0_Wh1pTLahDBzFxUqIyw"


class Kept:
    def __init__(self, intercept: Intercept = call_through, **options: Any) -> None:
        self.clock = FakeClock(NOW)
        self.table = EmbeddedAccount(None, self.clock, "http://127.0.0.1:1/azure", "q").table("qtimers")
        self.timers = self.another(intercept, **options)

    def another(
        self,
        intercept: Intercept = call_through,
        clock: FakeClock | None = None,
        of_table: Intercept = call_through,
        **options: Any,
    ) -> Timers:
        clock = clock or self.clock
        store = TimerStore(intercept_port(self.table, of_table), clock)
        return Timers(intercept_port(store, intercept), clock, **options)

    def schedule(self, task_id: str = A, **changes: Any) -> None:
        self.timers.schedule(task_id, self.clock.now(), **changes)

    def waiting(self, due: timedelta, *task_ids: str) -> None:
        """All effects of the tasks are applied, and they are due in ``due``."""
        for task_id in task_ids or (A,):
            self.schedule(task_id)
            self.timers.complete(task_id, self.clock.now() + due)

    def leave(self, *timers: Timer) -> None:
        TimerStore(self.table, self.clock).put(timers)

    def rows(self) -> list[Timer]:
        return [stored(row)[0].timer for row in self.table.page([], "", 1000).rows]

    def after(self, duration: timedelta, timers: Timers | None = None) -> list[FiredTimer]:
        self.clock.advance(duration)
        (timers or self.timers).tick()
        return fired(timers or self.timers)

    def received(self, timers: Timers) -> list[FiredTimer]:
        while timers.receive():
            pass
        return fired(timers)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def fired(timers: Timers) -> list[FiredTimer]:
    found = []
    while due := timers.next_fired(waits=False):
        found.append(replace(due, due=None))
    return found


def look(task_id: str = A, **changes: Any) -> FiredTimer:
    """The fired timer of a task without missing effects."""
    return replace(FiredTimer(task_id, None, True, "", 0), **changes)


def behind(since: datetime = NOW, task_id: str = A, **changes: Any) -> FiredTimer:
    return replace(look(task_id, since=since, is_published=False), **changes)


@pytest.mark.parametrize("pause", [0 * SECOND, 10 * SECOND, TIMER_LEASE])
def test_a_call_begins_without_a_row_of_its_own_on_one_due_later(kept: Kept, pause: timedelta) -> None:
    """Another process may have taken a row that was due."""
    kept.waiting(HOUR)
    kept.clock.advance(pause)
    kept.schedule()
    assert [timer.since for timer in kept.rows()] == [NOW, *([NOW + pause] if pause else [])]


def test_a_call_with_further_effects_is_stored_with_them(kept: Kept) -> None:
    """Or its effects would be lost with the process."""
    kept.schedule()
    kept.schedule(task_group_id=GROUP)
    kept.clock.advance(TIMER_LEASE)
    assert kept.received(kept.another()) == [behind(EVER, task_group_id=GROUP)]


def test_a_cancelled_call_leaves_the_earlier_due_time(kept: Kept) -> None:
    kept.waiting(HOUR)
    kept.schedule()
    kept.timers.cancel(A)
    assert kept.after(HOUR) == [look()]


def test_a_retried_timer_fires_at_once_with_all_missing_effects(kept: Kept) -> None:
    kept.schedule(task_group_id=GROUP)
    kept.clock.advance(SECOND)
    kept.schedule()
    for _ in range(2):
        kept.timers.retry_later(A)
    assert kept.timers.is_unpublished(A)
    due = behind(task_group_id=GROUP)
    assert fired(kept.timers) == [due]
    assert kept.timers.is_unpublished(A)
    kept.timers.complete(A, NOW + MINUTE)
    assert not kept.timers.is_unpublished(A)
    assert kept.after(MINUTE) == [look()]


def test_of_concurrent_calls_the_earliest_due_time_counts(kept: Kept) -> None:
    for _ in range(3):
        kept.schedule()
    for due in (MINUTE, HOUR, None):
        kept.timers.complete(A, NOW + due if due else None)
    assert kept.after(MINUTE) == [look()]


def test_a_row_about_missing_effects_stays_while_its_process_lives() -> None:
    """And no other process takes it."""
    calls = CallRecorder()
    kept = Kept(calls)
    other = kept.another()
    kept.schedule()
    for _ in range(120):
        assert kept.after(SECOND) == []
        assert kept.received(other) == []
        assert [timer.since for timer in kept.rows()] == [NOW]
    assert calls.names.count("put") == calls.names.count("remove") + 1 <= 21
    kept.schedule()
    assert calls.names.count("put") <= 21


def test_a_waiting_timer_has_one_row_which_is_due_with_its_task_or_before(kept: Kept) -> None:
    """A claim is extended again and again, and then its task ends."""
    kept.waiting(10 * MINUTE)
    assert kept.after(7 * SECOND) == []
    (waiting,) = kept.rows()
    assert (waiting.since, waiting.due) == (None, NOW + 10 * MINUTE)
    for _ in range(12):
        kept.waiting(20 * MINUTE)
        assert kept.after(MINUTE) == []
        (row,) = kept.rows()
        assert (row.since is None, row.due <= kept.clock.now() + 20 * MINUTE) == (True, True)
    kept.schedule()
    kept.timers.complete(A, None)
    kept.timers.tick()
    assert (kept.rows(), kept.timers.in_memory()) == ([], 0)


def test_the_row_of_a_timer_stays_while_it_is_handled(kept: Kept) -> None:
    kept.waiting(5 * SECOND)
    assert kept.after(5 * SECOND) == [look()]
    for _ in range(10):
        kept.after(SECOND)
        assert kept.rows()
    kept.timers.complete(A, None)
    kept.timers.tick()
    assert kept.rows() == []


def test_missing_effects_that_are_taken_during_a_renewal_stay_stored(kept: Kept) -> None:

    def receive() -> None:
        kept.leave(Timer(A, kept.clock.now(), NOW - HOUR))
        timers.receive()

    timers = kept.another(FaultAt(1, of="put", before=receive))
    timers.schedule(A, NOW, GROUP)
    for seconds in (7, 1, 10, 10):
        kept.after(seconds * SECOND, timers)
        assert NOW - HOUR in [timer.since for timer in kept.rows()]
    assert [(timer.since, timer.task_group_id) for timer in kept.rows()] == [(NOW - HOUR, GROUP)]


def test_what_waits_for_a_retry_goes_on_elsewhere_within_30_seconds_of_the_death_of_its_process(
    kept: Kept,
) -> None:
    kept.schedule()
    kept.timers.retry_later(A, delay=HOUR)
    (first,) = kept.rows()
    while kept.rows() == [first]:
        kept.after(SECOND)
    kept.clock.advance(30 * SECOND - READ)  # it dies as soon as it has renewed its row
    assert kept.received(kept.another()) == [behind(EVER)]


def test_what_is_taken_before_storage_fails_is_handled_at_once(kept: Kept) -> None:
    kept.leave(*[Timer(f"{number:07}{A[7:]}", NOW) for number in range(100)])
    kept.clock.advance(MINUTE)
    other = kept.another(of_table=FaultAt(1, of="batch", before=ServiceUnavailable("away")))
    with pytest.raises(ServiceUnavailable):
        other.receive()
    assert len(fired(other)) == 50


@pytest.mark.parametrize("fault", [{"before": Crash()}, {"after": Crash()}, {}])
def test_the_row_of_a_process_that_dies_as_it_takes_it_is_found(kept: Kept, fault: dict[str, Any]) -> None:
    """Or after that."""
    kept.schedule(task_group_id=GROUP)
    kept.clock.advance(TIMER_LEASE)
    dies = kept.another(of_table=FaultAt(0, of="batch", **fault))
    with suppress(Crash):
        dies.receive()
    kept.clock.advance(TIMER_LEASE)
    (found,) = kept.received(kept.another())
    assert (found.task_group_id, found.is_published) == (GROUP, False)


def test_the_oldest_missing_effects_come_first_however_often_their_process_died(kept: Kept) -> None:
    kept.leave(Timer(A, NOW, NOW - MINUTE), Timer(B, NOW, NOW - HOUR))
    for _ in range(2):
        kept.clock.advance(30 * SECOND)
        other = kept.another()
        other.schedule(C, kept.clock.now())
        assert [due.task_id for due in kept.received(other)][:2] == [B, A]
        for task_id in (A, B, C):
            other.retry_later(task_id, delay=HOUR)
        other.retry_now()
        assert [due.task_id for due in fired(other)] == [B, A, C]
        kept.after(8 * SECOND, other)  # the rows are renewed, and the process dies


@pytest.mark.parametrize("seconds", [-60, 60])
def test_whether_a_row_is_due_is_said_by_the_clock_of_the_storage(kept: Kept, seconds: int) -> None:
    """That of the process that inserted it, or of one that looks, may be a minute ahead or behind."""
    wrong = FakeClock(NOW + seconds * SECOND)
    for inserts, looks in (
        (kept.another(clock=wrong), kept.another()),
        (kept.timers, kept.another(clock=wrong)),
    ):
        inserts.schedule(A, NOW)
        for passed, found in ((14, []), (1, [A])):
            for clock in (kept.clock, wrong):
                clock.advance(passed * SECOND)
            assert [due.task_id for due in kept.received(looks)] == found
        looks.complete(A, None)
        looks.tick()


def test_an_earlier_timer_of_another_process_fires_though_a_call_names_a_later_time(kept: Kept) -> None:
    kept.waiting(MINUTE)
    kept.after(7 * SECOND)
    other = kept.another()
    for when in ("waits", "calls"):
        other.schedule(A, kept.clock.now())
        if when == "waits":
            other.complete(A, kept.clock.now() + HOUR)
    kept.clock.advance(MINUTE)
    assert kept.received(other) == []
    other.complete(A, kept.clock.now() + HOUR)
    assert kept.after(0 * SECOND, other) == [look()]


def test_beyond_max_kept_timers_wait_in_their_rows_and_all_fire() -> None:
    kept = Kept(max_kept=1)
    kept.waiting(MINUTE, A, B)
    kept.waiting(2 * MINUTE, C)
    kept.after(7 * SECOND)
    assert kept.timers.in_memory() == 1
    kept.clock.advance(2 * MINUTE)
    kept.timers.tick()
    from_memory = fired(kept.timers)
    assert len(from_memory) == 1
    assert sorted(due.task_id for due in [*from_memory, *kept.received(kept.timers)]) == [A, B, C]


def test_a_process_takes_2000_late_timers_and_leaves_the_rest_to_others(kept: Kept) -> None:
    kept.leave(*[Timer(f"{number:07}{A[7:]}", NOW) for number in range(2100)])
    kept.clock.advance(MINUTE)
    counts = []
    for timers in (kept.another(), kept.another()):
        while timers.receive():
            pass
        counts.append(timers.late())
    assert counts == [2000, 100]


def test_tasks_that_ended_before_their_deadline_leave_nothing_in_memory(kept: Kept) -> None:
    kept.waiting(24 * HOUR, B)
    before = sys.getrefcount(A)
    for _ in range(100):
        kept.waiting(24 * HOUR)
        kept.schedule()
        kept.timers.complete(A, None)
        kept.timers.tick()
    assert sys.getrefcount(A) < before + 20


def test_at_its_end_a_process_leaves_its_timers_to_others_which_are_not_late(kept: Kept) -> None:
    """What is missing is done at the next look of another process; what is due, at its time."""
    kept.waiting(HOUR, A)
    kept.schedule(B)
    kept.timers.hand_over()
    other = kept.another()
    assert kept.received(other) == [behind(EVER, B)]
    other.complete(B, None)
    assert kept.after(TIMER_LEASE, other) == []
    kept.clock.advance(HOUR - TIMER_LEASE - READ)
    assert kept.received(other) == []
    kept.clock.advance(READ + GRACE)
    assert kept.received(other) == [look(A)]


# handling of fired timers

TASK_ID = slugid()
AT_ONCE = timedelta(0)
DONE = Next()
MISSING = Next(exists=False)
Answer = Next | Exception


class Resolving:
    """A resolver whose advance gives these answers in turn, and then repeats the last."""

    def __init__(self, *answers: Answer) -> None:
        self.harness = Harness()
        self.clock = self.harness.clock
        self.timers = Timers(self.harness.storage.timers, self.clock)
        self.left: list[tuple[str, str]] = []  # task, group
        self.calls: list[tuple[timedelta, datetime | None, bool]] = []  # when, since, is_published
        self._answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        groups = cast(Groups, self)
        self.resolver = Resolver(self.timers, cast(Advance, self), groups, self.clock)

    def leave(self, *task_and_group: str) -> None:
        self.left.append(cast(tuple[str, str], task_and_group))

    def repeat_effects(self, fired: FiredTimer) -> Next:
        return self._answer(fired.since, is_published=fired.is_published)

    def end_if_due(self, _task_id: str, *, is_published: bool) -> Next:
        assert not is_published
        return self._answer(None, is_published=True)

    def _answer(self, since: datetime | None, *, is_published: bool) -> Next:
        self.calls.append((self.clock.now() - NOW, since, is_published))
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def retry_later(self, group: str = "", *, is_published: bool = False) -> None:
        self.timers.schedule(TASK_ID, self.clock.now(), group)
        self.timers.retry_later(TASK_ID, is_published=is_published)

    def pass_by(self, duration: timedelta) -> None:
        end = self.clock.now() + duration
        self.resolver.handle_all()
        while self.clock.now() < end:
            self.clock.advance(SECOND)
            self.timers.tick()
            self.resolver.handle_all()

    @property
    def times(self) -> list[timedelta]:
        return [when for when, _, _ in self.calls]

    @property
    def waits(self) -> list[timedelta]:
        return [later - earlier for earlier, later in itertools.pairwise(self.times)]


def test_while_the_broker_is_away_other_effects_are_applied_once_and_when_due() -> None:
    away = BrokerAway()
    resolving = Resolving(
        away, Next(NOW + 5 * SECOND), away, away, away, Next(NOW + HOUR), *[away] * 20, DONE
    )
    resolving.timers.schedule(TASK_ID, NOW)
    resolving.timers.retry_later(TASK_ID, NOW + HOUR)
    resolving.pass_by(MINUTE)
    done = [when for when, _, is_published in resolving.calls if is_published]
    assert done == [AT_ONCE, 6 * SECOND]
    published = [when for when, _, is_published in resolving.calls if not is_published]
    assert published == [number * SECOND for number in (0, 2, 4, 6, 12, 24, 48)]


def test_a_failing_timer_is_retried_with_growing_delays_and_then_abandoned(logs: Logs) -> None:
    resolving = Resolving(ValueError("a defect"))
    resolving.retry_later()
    resolving.pass_by(HOUR)
    assert resolving.waits == [min(2**tries, 120) * SECOND for tries in range(10)]
    assert resolving.harness.timers() == []
    assert [entry["event"] for entry in logs] == ["timer-failed"] * 11 + ["timer-abandoned"]


@pytest.mark.parametrize("group", ["a-group-of-22-characte", ""])
def test_a_missing_task_is_awaited_for_25_seconds_and_then_leaves_its_group(group: str) -> None:
    resolving = Resolving(MISSING)
    resolving.retry_later(group)
    resolving.pass_by(HOUR)
    assert resolving.waits == [25 * SECOND]
    assert resolving.left == ([(TASK_ID, group)] if group else [])
    assert resolving.harness.timers() == []


# several processes on one storage


def work(server: Services) -> None:
    server.timers.tick()
    server.timers.receive()
    server.resolver.handle_all()


@pytest.mark.parametrize("behind", [-60, 5, 21, 60])
def test_a_call_by_a_process_with_a_wrong_clock_is_not_taken_for_dead(harness: Harness, behind: int) -> None:
    """Another looks before the createTask has written its task: it must not leave its group."""
    other = harness.replica()
    look = FaultAt(0, of="insert", before=lambda: work(other))
    slow = harness.replica(look, clock=FakeClock(NOW - behind * SECOND))
    group = slugid()
    slow.tasks.create(TASK_ID, task_body(NOW, taskGroupId=group))
    assert [active.task_id for active in harness.storage.groups.all_active("", 10)[0]] == [TASK_ID]
    harness.events()
    harness.clock.advance(SECOND)
    work(other)
    assert harness.events() == []
