"""Leases are short, and renewed while work goes on."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from legacy_queue.services.watcher import Watcher

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timers import Timer
from legacy_queue.ports import Changed
from legacy_queue.services.leases import LEASE, LeasedMessage, RenewedTurn, repeated
from legacy_queue.stores import OwnQueues, Turn, Turns
from tests.memory_server import HandClock, memory_storage
from tests.services.bench import NOW, SECOND, At, failing, one_by_one
from tests.services.ports import Around, around_port

OFTEN = timedelta(milliseconds=1)
LONG = 30  # seconds: of a test that would otherwise fail by never ending
AT_ONCE = timedelta(0)
AWAY = ServiceUnavailable("storage is away")


class Seen:
    """Around port calls: ``happened`` is set once that method has answered."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.happened = threading.Event()

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        answer = call()
        if name == self._name:
            self.happened.set()
        return answer


class Leased:
    """A message of the queue ``claims`` that was received just now."""

    def __init__(self, around: Around | None = None) -> None:
        self.clock = HandClock(NOW)
        self.queues: OwnQueues = memory_storage(self.clock).own_queues
        self.queues.put("claims", "text", AT_ONCE)
        (message,) = self.queues.receive("claims", 1, LEASE)
        port = around_port(OwnQueues, self.queues, around) if around else self.queues
        self.leased = LeasedMessage(port, "claims", message)

    def is_visible(self) -> bool:
        return bool(self.queues.peek("claims", 1))


def test_a_renewed_message_stays_hidden_for_another_lease() -> None:
    one = Leased()
    one.clock.advance(LEASE - SECOND)
    one.leased.renew()
    one.clock.advance(LEASE - SECOND)
    assert not one.is_visible()
    one.clock.advance(SECOND)
    assert one.is_visible()


def test_the_newest_lease_of_a_message_removes_it() -> None:
    one = Leased()
    one.leased.renew()
    one.queues.remove("claims", one.leased.end().lease)
    one.clock.advance(LEASE)
    assert not one.is_visible()


def test_a_message_that_was_ended_is_not_renewed() -> None:
    one = Leased()
    one.leased.end()
    one.clock.advance(LEASE - SECOND)
    one.leased.renew()
    one.clock.advance(SECOND)
    assert one.is_visible()


def test_a_message_that_another_process_has_received_is_left_to_it() -> None:
    one = Leased()
    one.clock.advance(LEASE)
    (other,) = one.queues.receive("claims", 1, LEASE)
    one.leased.renew()
    one.queues.remove("claims", other.lease)


def test_a_message_keeps_its_lease_where_storage_is_away_for_a_renewal() -> None:
    one = Leased(At(0, of="hide", before=failing(AWAY)))
    one.leased.renew()
    one.leased.renew()
    one.queues.remove("claims", one.leased.end().lease)


def test_a_handler_that_takes_long_keeps_the_lease_of_its_timer() -> None:
    clock = HandClock(NOW)
    queues, renewed = memory_storage(clock).own_queues, Seen("hide")
    queues.put("claims", Timer("claims", slugid(), NOW).text(), AT_ONCE)

    def handle(_timer: Timer, _stop: object) -> None:
        clock.advance(LEASE - SECOND)
        for _ in range(2):  # the first may have read the clock before
            renewed.happened.clear()
            assert renewed.happened.wait(LONG)
        clock.advance(LEASE - SECOND)
        assert queues.peek("claims", 1) == []

    port = around_port(OwnQueues, queues, renewed)
    watcher = Watcher("claims", port, handle, clock, SECOND, renewed_every=OFTEN)
    assert watcher.look(one_by_one) == 1
    clock.advance(LEASE)
    assert queues.peek("claims", 1) == []  # it was removed with the lease that it had in the end


class Held:
    """A turn that one process has; ``other`` is what another gets that wants it now."""

    def __init__(self, around: Around | None = None, every: timedelta = timedelta(hours=1)) -> None:
        self.clock = HandClock(NOW)
        self._turns = memory_storage(self.clock, "http://127.0.0.1:1/azure", "q").turns
        turn = self._turns.take("sweep", self.clock.now() + LEASE)
        assert isinstance(turn, Turn)
        turns = around_port(Turns, self._turns, around) if around else self._turns
        self.renewed = RenewedTurn(turns, turn, self.clock, every)

    def other(self) -> Turn | None:
        taken = self._turns.take("sweep", self.clock.now() + LEASE)
        return taken if isinstance(taken, Turn) else None


def test_a_turn_is_renewed_while_its_holder_works() -> None:
    seen = Seen("keep")
    held = Held(seen, OFTEN)
    with held.renewed:
        held.clock.advance(LEASE - SECOND)
        for _ in range(2):  # the first may have read the clock before
            seen.happened.clear()
            assert seen.happened.wait(LONG)
        held.clock.advance(LEASE - SECOND)
        assert held.other() is None


def test_a_turn_of_a_process_that_died_is_taken_when_its_lease_ends() -> None:
    held = Held()
    held.clock.advance(LEASE - SECOND)
    assert held.other() is None
    held.clock.advance(SECOND)
    assert held.other()


def test_a_turn_that_is_released_tells_the_next_holder_how_far_the_work_came() -> None:
    held = Held()
    with held.renewed as turn:
        turn.keep("so far", None)
        turn.release(held.clock.now(), "further", NOW)
    taken = held.other()
    assert taken
    assert (taken.cursor, taken.since) == ("further", NOW)


def test_a_turn_that_was_released_is_not_renewed_any_more() -> None:
    seen = Seen("keep")
    held = Held(seen, OFTEN)
    with held.renewed as turn:
        turn.release(held.clock.now() + timedelta(hours=1), "", None)
        seen.happened.clear()
        assert not seen.happened.wait(0.05)
    held.clock.advance(timedelta(hours=1) - SECOND)
    assert held.other() is None


def test_a_holder_whose_turn_was_taken_is_told_when_it_notes_how_far_it_came() -> None:
    held = Held()
    held.clock.advance(LEASE)
    assert held.other()
    with pytest.raises(Changed):
        held.renewed.keep("so far", None)


@pytest.mark.parametrize("error", [AWAY, Changed()], ids=repr)
def test_a_renewal_that_fails_is_left_to_the_next(error: Exception) -> None:
    seen = Seen("keep")
    fault = At(0, of="keep", before=failing(error))
    held = Held(lambda name, call: seen(name, lambda: fault(name, call)), OFTEN)
    with held.renewed:
        assert seen.happened.wait(LONG)
    assert fault.happened


def test_what_is_repeated_ends_with_its_context() -> None:
    done = threading.Event()
    before = threading.active_count()
    with repeated(done.set, OFTEN):
        assert done.wait(LONG)
    assert threading.active_count() == before
