"""Timers are stored before a write, kept until all effects are applied, and handed over at the end."""

import tracemalloc
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.timer import Timer, texts, timers_of
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import Queue
from legacy_queue.services.recovery.timer_table import FiredTimer
from legacy_queue.services.recovery.timers import TIMER_LEASE, Timers
from legacy_queue.stores.timer_store import TimerStore
from tests.memory_server import FakeClock, messages_in
from tests.services.harness import HOUR, MINUTE, NOW, SECOND, CallRecorder, FaultAt, call_through
from tests.services.ports import Intercept, intercept_port

AT_ONCE, DAY = timedelta(0), 24 * HOUR
RENEWAL = TIMER_LEASE / 2  # when a message is renewed
GRACE = 10 * SECOND  # for the process that keeps the timer
SKEW = MINUTE
A, B, C = (f"Task000{letter}Q0C0000000000A" for letter in "ABC")
GROUP = "Zb0_Wh1pTLahDBzFxUqIyw"


class _Queues:
    """A storage account that passes each call of its queues to ``intercept``."""

    def __init__(self, account: StorageAccount, intercept: Intercept) -> None:
        self._account, self._intercept = account, intercept

    def queue(self, name: str) -> Queue:
        return intercept_port(Queue, self._account.queue(name), self._intercept)


class Kept:
    """Storage, the timers of a process on it, and of ``another`` process."""

    def __init__(self, intercept: Intercept = call_through, **options: Any) -> None:
        self.clock = FakeClock(NOW)
        self.account = EmbeddedAccount(None, self.clock, "http://127.0.0.1:1/azure", "q")
        self.account.queue("q-timers").create({})
        self.timers = self.another(intercept, **options)

    def another(self, intercept: Intercept = call_through, **options: Any) -> Timers:
        account = cast(StorageAccount, _Queues(self.account, intercept))
        return Timers(TimerStore(account, "q"), self.clock, **options)

    def put(self, *timers: Timer, text: str = "") -> None:
        """Put a visible message, as a dead process leaves it."""
        for content in [text] if text else [content for content, _ in texts(timers)]:
            self.account.queue("q-timers").put(content, AT_ONCE)

    def schedule(self, task_id: str = A, **changes: Any) -> None:
        self.timers.schedule(task_id, self.clock.now(), **changes)

    def waiting(self, due: timedelta, *task_ids: str) -> None:
        """All effects of the tasks are applied, and they are due in ``due``."""
        for task_id in task_ids or (A,):
            self.schedule(task_id)
            self.timers.complete(task_id, self.clock.now() + due)

    def messages(self, name: str = "q-timers") -> list[tuple[list[Timer], timedelta]]:
        """The timers of each message, and how long it stays invisible."""
        now = self.clock.now()
        return [
            (timers_of(message.text), message.next_visible - now)
            for message in messages_in(self.account, name)
            if message.next_visible
        ]

    def stored(self) -> list[tuple[str, bool, timedelta]]:
        """For each timer: its task, whether effects may be missing, and how long it stays invisible."""
        return [
            (timer.task_id, bool(timer.since), left) for timers, left in self.messages() for timer in timers
        ]

    def after(self, duration: timedelta, timers: Timers | None = None) -> list[FiredTimer]:
        """Advance the clock. Returns the fired timers."""
        timers = timers or self.timers
        self.clock.advance(duration)
        timers.tick()
        return fired(timers)

    def received(self, timers: Timers) -> list[FiredTimer]:
        while timers.receive():
            pass
        return fired(timers)


def fired(timers: Timers) -> list[FiredTimer]:
    found = []
    while due := timers.next_fired(waits=False):
        found.append(replace(due, due=None))
    return found


def look(task_id: str = A, **changes: Any) -> FiredTimer:
    """The fired timer of a task without missing effects."""
    return replace(FiredTimer(task_id, None, True, "", False, 0), **changes)


def behind(since: datetime = NOW, task_id: str = A, **changes: Any) -> FiredTimer:
    return replace(look(task_id, since=since, is_published=False), **changes)


# scheduled, and shared


def test_a_call_puts_another_message_if_missing_effects_are_received_during_its_put() -> None:
    def receive() -> None:
        kept.put(Timer(A, NOW, NOW - HOUR))
        kept.timers.receive()

    kept = Kept(FaultAt(0, of="put", before=receive))
    kept.schedule()
    kept.timers.tick()
    [(said, _)] = kept.messages()
    assert [timer.since for timer in said] == [NOW - HOUR - SKEW]


# completed and cancelled


def test_a_cancelled_call_leaves_the_earlier_due_time() -> None:
    kept = Kept()
    kept.waiting(HOUR)
    kept.schedule()
    kept.timers.cancel(A)
    assert kept.after(HOUR) == [look()]


def test_a_call_with_further_effects_is_stored_with_them() -> None:
    kept = Kept()
    kept.schedule()
    kept.schedule(has_artifacts=True)
    kept.clock.advance(TIMER_LEASE)
    assert kept.received(kept.another()) == [behind(NOW - SKEW, has_artifacts=True)]


def test_after_a_pause_of_the_process_a_call_puts_a_message_of_its_own() -> None:
    """Another process may have received the message of the call before."""
    kept = Kept()
    for _ in range(2):
        kept.schedule()
        kept.clock.advance(TIMER_LEASE)
    assert [left for _, _, left in kept.stored()] == [-TIMER_LEASE, AT_ONCE]


def test_a_waiting_timer_is_visible_to_others_some_seconds_after_it_is_due() -> None:
    kept = Kept()
    kept.waiting(HOUR)
    kept.after(RENEWAL - SECOND)
    assert kept.stored() == [(A, True, TIMER_LEASE - RENEWAL + SECOND)]
    kept.after(SECOND)
    ((task_id, is_missing, left),) = kept.stored()
    assert (task_id, is_missing) == (A, False)
    assert HOUR - RENEWAL + GRACE <= left < HOUR - RENEWAL + GRACE + SECOND


def test_an_unfinished_timer_stays_invisible_while_its_process_lives() -> None:
    calls = CallRecorder()
    kept = Kept(calls)
    kept.schedule()
    for _ in range(120):
        assert kept.after(SECOND) == []
        ((_, is_missing, left),) = kept.stored()
        assert is_missing
        assert left > AT_ONCE
    assert calls.names.count("put") == calls.names.count("delete") + 1 <= 17
    kept.schedule()
    assert kept.timers.next_fired(waits=False) is None
    assert len(kept.messages()) == 1


def test_a_retried_timer_fires_at_once_with_all_missing_effects() -> None:
    kept = Kept()
    kept.schedule(task_group_id=GROUP)
    kept.clock.advance(SECOND)
    kept.schedule(has_artifacts=True)
    for _ in range(2):
        kept.timers.retry_later(A)
    assert kept.timers.is_unpublished(A)
    due = behind(task_group_id=GROUP, has_artifacts=True)
    assert fired(kept.timers) == [due]
    assert kept.timers.is_unpublished(A)
    kept.timers.complete(A, NOW + MINUTE)
    assert not kept.timers.is_unpublished(A)
    assert kept.after(MINUTE) == [look()]


def test_of_concurrent_calls_the_earliest_due_time_counts() -> None:
    kept = Kept()
    for _ in range(3):
        kept.schedule()
    for due in (MINUTE, HOUR, None):
        kept.timers.complete(A, NOW + due if due else None)
    assert kept.after(MINUTE) == [look()]


# renewed, with failures


# of other processes


def test_another_process_receives_missing_effects_of_a_dead_process_after_its_lease() -> None:
    kept = Kept()
    kept.schedule(task_group_id=GROUP, has_artifacts=True)
    other = kept.another()
    kept.clock.advance(TIMER_LEASE - SECOND)
    assert kept.received(other) == []
    kept.clock.advance(SECOND)
    due = behind(NOW - SKEW, task_group_id=GROUP, has_artifacts=True)
    assert kept.received(other) == [due]
    assert other.is_unpublished(A)
    other.complete(A, kept.clock.now() + MINUTE)
    assert kept.after(MINUTE, other) == [look()]
    other.complete(A, None)
    other.tick()
    assert kept.messages() == []


def test_a_later_timer_of_another_process_does_not_replace_an_earlier_timer() -> None:
    kept = Kept()
    kept.waiting(MINUTE)
    kept.after(RENEWAL)
    kept.put(Timer(A, NOW + HOUR))
    kept.timers.receive()
    kept.timers.tick()
    kept.clock.advance(MINUTE + GRACE)
    assert kept.received(kept.another()) == [look()]


def test_a_process_that_receives_its_own_message_keeps_its_newer_state() -> None:
    """The process was suspended for so long that its message became visible."""
    kept = Kept()
    kept.waiting(HOUR, A)
    kept.schedule(B)
    kept.clock.advance(TIMER_LEASE)
    assert kept.received(kept.timers) == []
    assert {left for _, _, left in kept.stored()} == {TIMER_LEASE}
    assert kept.after(RENEWAL) == []
    assert [is_missing for _, is_missing, _ in kept.stored()] == [True, False]
    kept.timers.complete(B, None)
    assert kept.after(HOUR) == [look(A)]


def test_missing_effects_that_are_received_during_a_renewal_stay_stored() -> None:
    def receive() -> None:
        kept.put(Timer(A, NOW, NOW - HOUR))
        kept.timers.receive()

    kept = Kept(FaultAt(1, of="put", before=receive))
    kept.schedule(has_artifacts=True)
    for _ in range(2 * TIMER_LEASE // SECOND):
        kept.after(SECOND)
        times = [timer.since for timers, _ in kept.messages() for timer in timers if timer.since]
        assert min(times) <= NOW - HOUR or kept.clock.now() < NOW + RENEWAL
    assert len(kept.messages()) == 1


# without firing, and at the end


def test_without_firing_waiting_timers_are_kept_in_messages_alone() -> None:
    kept = Kept(fires=False)
    kept.waiting(MINUTE)
    assert kept.after(RENEWAL) == []
    ((_, is_missing, left),) = kept.stored()
    assert (is_missing, left - MINUTE + RENEWAL < SECOND) == (False, True)
    assert kept.after(MINUTE) == []
    assert kept.received(kept.another()) == [look()]


def test_beyond_max_kept_timers_wait_in_their_messages_and_all_fire() -> None:
    kept = Kept(max_kept=1)
    kept.waiting(MINUTE, A, B)
    kept.waiting(2 * MINUTE, C)
    kept.after(RENEWAL)
    kept.clock.advance(2 * MINUTE)
    kept.timers.tick()
    from_memory = fired(kept.timers)
    assert len(from_memory) <= 1
    assert sorted(due.task_id for due in [*from_memory, *kept.received(kept.timers)]) == [A, B, C]


def test_handing_over_makes_timers_available_to_other_processes() -> None:
    kept = Kept()
    kept.waiting(HOUR, A)
    kept.schedule(B)
    kept.timers.hand_over()
    assert kept.stored() == [(B, True, AT_ONCE), (A, False, HOUR)]
    other = kept.another()
    assert kept.received(other) == [behind(NOW - SKEW, B)]
    kept.clock.advance(HOUR)
    assert kept.received(other) == [look(A)]


# many, and long


def test_tasks_that_ended_before_their_deadline_leave_no_memory() -> None:
    kept = Kept()
    kept.waiting(DAY, B)
    tracemalloc.start()
    for number in range(3000):
        kept.waiting(DAY, A)
        kept.schedule()
        kept.timers.complete(A, None)
        kept.timers.tick()
        if number == 1000:
            before, _ = tracemalloc.get_traced_memory()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2000 * 20  # bytes: an entry of a heap has more
