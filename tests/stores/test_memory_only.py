"""What only a clock that stands still can show, and where Azure is stricter than Azurite."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from legacy_queue.domain.events import Event
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import LeaseLost
from legacy_queue.stores import Storage
from tests.memory_server import HandClock, memory_server, memory_storage

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def memory(clock: HandClock) -> Iterator[Storage]:
    with memory_server(clock) as storage:
        yield storage


def test_a_message_cannot_be_hidden_beyond_its_time_to_live(memory: Storage, queue: WorkQueue) -> None:
    lease = memory.work_queues.put(queue, "text", HOUR, timedelta(0))
    with pytest.raises(LeaseLost):
        memory.work_queues.hide(queue, lease, "text", HOUR)
    memory.work_queues.hide(queue, lease, "text", HOUR - timedelta(seconds=1))


def test_a_lease_on_an_expired_message_is_lost(memory: Storage, queue: WorkQueue, clock: HandClock) -> None:
    lease = memory.work_queues.put(queue, "text", HOUR, timedelta(0))
    clock.advance(HOUR)
    with pytest.raises(LeaseLost):
        memory.work_queues.hide(queue, lease, "text", timedelta(0))
    with pytest.raises(LeaseLost):
        memory.work_queues.remove(queue, lease)


def test_an_id_of_a_log_that_was_lost_is_before_all_of_the_next(clock: HandClock) -> None:
    event = Event("task-pending", "primary", (), {})
    lost = memory_storage(clock, "http://127.0.0.1", "q")
    lost.event_log.append([event] * 500)
    clock.advance(timedelta(milliseconds=1))
    following = memory_storage(clock, "http://127.0.0.1", "q")
    following.event_log.append([event])
    assert len(following.event_log.read(lost.event_log.last(), 10)) == 1


def test_two_storages_have_two_keys() -> None:
    keys = {memory_storage(HandClock()).account.public_queues.key for _ in range(2)}
    assert len(keys) == 2
