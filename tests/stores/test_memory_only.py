"""What only a clock that stands still can show, and where Azure is stricter than Azurite."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import LeaseLost
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, memory_server, memory_storage

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def memory(clock: FakeClock) -> Iterator[Storage]:
    with memory_server(clock) as storage:
        yield storage


def test_a_message_cannot_be_hidden_beyond_its_time_to_live(memory: Storage, queue: WorkQueue) -> None:
    lease = memory.work_queues.put(queue, "text", HOUR, timedelta(0))
    with pytest.raises(LeaseLost):
        memory.work_queues.hide(queue, lease, "text", HOUR)
    memory.work_queues.hide(queue, lease, "text", HOUR - timedelta(seconds=1))


def test_a_lease_on_an_expired_message_is_lost(memory: Storage, queue: WorkQueue, clock: FakeClock) -> None:
    lease = memory.work_queues.put(queue, "text", HOUR, timedelta(0))
    clock.advance(HOUR)
    with pytest.raises(LeaseLost):
        memory.work_queues.hide(queue, lease, "text", timedelta(0))
    with pytest.raises(LeaseLost):
        memory.work_queues.remove(queue, lease)


def test_each_memory_storage_has_its_own_key() -> None:
    keys = {memory_storage(FakeClock()).account.public_queues.key for _ in range(2)}
    assert len(keys) == 2
