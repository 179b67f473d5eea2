"""The clock that control moves."""

from datetime import UTC, datetime, timedelta

from legacy_queue.adapters.clock import MovableClock
from tests.memory_server import FakeClock

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_moved_clock_goes_on_from_there_and_the_real_time_stays() -> None:
    wall = FakeClock(NOW)
    clock = MovableClock(wall)
    clock.move_to(NOW + MINUTE)
    wall.advance(MINUTE)
    assert (clock.now(), clock.wall_time(), clock.offset) == (NOW + 2 * MINUTE, NOW + MINUTE, MINUTE)


def test_a_clock_is_never_moved_back() -> None:
    clock = MovableClock(FakeClock(NOW))
    clock.move_to(NOW - MINUTE)
    assert clock.now() == NOW


def test_a_frozen_clock_stands_still_and_falls_behind() -> None:
    wall = FakeClock(NOW)
    clock = MovableClock(wall)
    clock.freeze()
    wall.advance(MINUTE)
    assert (clock.now(), clock.offset, clock.is_frozen) == (NOW, -MINUTE, True)
    clock.release()
    wall.advance(MINUTE)
    assert (clock.now(), clock.offset, clock.is_frozen) == (NOW + MINUTE, -MINUTE, False)


def test_a_time_of_the_queue_is_converted_to_the_real_time() -> None:
    clock = MovableClock(FakeClock(NOW))
    clock.move_to(NOW + 3 * MINUTE)
    assert clock.wall_time_of(NOW + 5 * MINUTE) == NOW + 2 * MINUTE
