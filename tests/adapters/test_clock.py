"""The clock that control moves."""

from datetime import UTC, datetime, timedelta

from legacy_queue.adapters.clock import MovableClock, SystemClock
from tests.memory_server import FakeClock

NOW = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_an_unmoved_clock_shows_the_real_time() -> None:
    system, movable = SystemClock(), MovableClock()
    before = system.now()
    assert before <= movable.now() <= movable.wall_time() <= system.wall_time()
    assert movable.wall_time_of(NOW) == system.wall_time_of(NOW) == NOW


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


def test_a_frozen_clock_can_be_moved_and_stands_still_there() -> None:
    wall = FakeClock(NOW)
    clock = MovableClock(wall)
    clock.freeze()
    clock.move_to(NOW + MINUTE)
    wall.advance(MINUTE / 2)
    assert (clock.now(), clock.offset) == (NOW + MINUTE, MINUTE / 2)


def test_a_time_of_the_queue_is_converted_to_the_real_time() -> None:
    clock = MovableClock(FakeClock(NOW))
    clock.move_to(NOW + 3 * MINUTE)
    assert clock.wall_time_of(NOW + 5 * MINUTE) == NOW + 2 * MINUTE
