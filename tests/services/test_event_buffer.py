"""The last events of a process, in their order, each with an id that says where to go on."""

import threading

import pytest

from legacy_queue.services.event_buffer import EventBuffer
from tests.services.bench import NOW, SECOND
from tests.services.test_event_feed import event


def test_events_are_read_in_pages_in_the_order_in_which_they_were_added() -> None:
    buffer = EventBuffer(NOW)
    first = buffer.last()
    buffer.append([event(0), event(1)])
    buffer.append([event(2)])
    page = buffer.read(first, 2)
    assert [one for _, one in page] == [event(0), event(1)]
    assert [one for _, one in buffer.read(page[-1][0], 2)] == [event(2)]
    assert buffer.read(buffer.last(), 2) == []
    assert len(buffer.read("", 9)) == 3


def test_ids_of_an_earlier_process_are_before_all_of_a_later() -> None:
    earlier, later = EventBuffer(NOW), EventBuffer(NOW + SECOND / 1000)
    earlier.append([event(number) for number in range(999)])
    later.append([event(7)])
    assert [one for _, one in later.read(earlier.last(), 9)] == [event(7)]
    assert not later.has_all_after(earlier.last())
    assert not earlier.has_all_after(later.last())


def test_it_knows_whether_it_has_all_behind_an_id() -> None:
    buffer = EventBuffer(NOW)
    first = buffer.last()
    assert buffer.has_all_after(first)
    buffer.append([event(number) for number in range(10_000)])
    assert buffer.has_all_after(first)
    buffer.append([event(10_000)])
    (second, _), *_ = buffer.read("", 1)
    assert [buffer.has_all_after(one) for one in (first, second, buffer.last())] == [False, True, True]


@pytest.mark.parametrize("bad", ["x", "1", "1" * 15, "1" * 17, "\u0661" * 16])
def test_what_is_no_id_is_refused(bad: str) -> None:
    buffer = EventBuffer(NOW)
    for ask in (lambda: buffer.read(bad, 1), lambda: buffer.has_all_after(bad)):
        with pytest.raises(ValueError, match="not the id of an event"):
            ask()


def test_an_event_wakes_whoever_waits_for_it() -> None:
    buffer = EventBuffer(NOW)
    first = buffer.last()
    waiting = threading.Thread(target=buffer.wait, args=[first, 3600])
    waiting.start()
    buffer.append([event(1)])
    waiting.join(60)
    assert not waiting.is_alive()
    buffer.wait(first, 3600)  # there is one already
    buffer.wait(buffer.last(), 0)
