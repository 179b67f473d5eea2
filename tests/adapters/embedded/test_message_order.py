"""Which messages are visible, and in which order, after the clock was set back."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from legacy_queue.adapters.embedded.embedded_queue import EmbeddedQueue
from tests.domain.sample_tasks import HOUR, SECOND
from tests.memory_server import FakeClock

from .conftest import opened

NO_TIME = timedelta(0)


@pytest.fixture
def queue(clock: FakeClock) -> Iterator[EmbeddedQueue]:
    account = opened(None, clock)
    queue = account.queue("q")
    queue.create({})
    yield queue
    account.close()


def received(queue: EmbeddedQueue, count: int = 32) -> list[str]:
    return [message.text for message in queue.receive(count, HOUR)]


def test_when_the_clock_is_set_back_messages_without_a_delay_stay_visible_and_in_order(
    queue: EmbeddedQueue, clock: FakeClock
) -> None:
    queue.put("released", NO_TIME)
    queue.put("held", NO_TIME)
    queue.put("first", NO_TIME)
    [message, _] = queue.receive(2, HOUR)
    queue.update(message.lease, "released", NO_TIME)
    clock.advance(-HOUR)
    queue.put("second", NO_TIME)
    visible = ["first", "released", "second"]
    assert [message.text for message in queue.peek() if message.next_visible is None] == visible
    assert received(queue) == visible


def test_when_the_clock_is_set_back_delayed_messages_become_visible_in_order_and_never_early(
    queue: EmbeddedQueue, clock: FakeClock
) -> None:
    queue.put("again", NO_TIME)
    queue.put("delayed", SECOND)
    assert received(queue, 1) == ["again"]
    queue.put("new", NO_TIME)
    clock.advance(-HOUR)
    assert received(queue) == ["new"]
    clock.advance(2 * HOUR)
    queue.put("newest", NO_TIME)
    assert received(queue) == ["delayed", "again", "new", "newest"]
