import base64
from dataclasses import replace
from datetime import timedelta

import pytest

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports.queue import LeaseLost
from legacy_queue.stores import Storage
from tests.domain.sample_tasks import DAY, HOUR, SECOND

from .conftest import Backend
from .paging import remove_all_expired

NO_TIME = timedelta(0)
TEXT = base64.b64encode(b'{"taskId": "a", "runId": 0}').decode()


def test_a_message_cannot_be_hidden_beyond_its_time_to_live(backend: Backend, queue: WorkQueue) -> None:
    """Azure refuses that, Azurite does not."""
    queues = backend.storage.work_queues
    lease = queues.put(queue, TEXT, HOUR, NO_TIME)
    with pytest.raises(LeaseLost):
        queues.hide(queue, lease, TEXT, HOUR)
    lease = queues.hide(queue, lease, TEXT, HOUR - SECOND)
    backend.clock.advance(HOUR)
    with pytest.raises(LeaseLost):
        queues.remove(queue, lease)


@pytest.mark.parametrize("use", ["put", "signed"])
def test_an_empty_queue_is_removed_if_it_was_not_used_for_ten_days(
    backend: Backend, queue: WorkQueue, use: str
) -> None:
    queues, now = backend.storage.work_queues, backend.clock.now()
    full = replace(queue, priority="low")
    queues.put(full, TEXT, 100 * DAY, 6 * DAY)
    for _ in range(2):
        if use == "put":
            queues.remove(queue, queues.put(queue, TEXT, HOUR, NO_TIME))
        else:
            queues.signed_urls([queue], now, now + HOUR, SECOND)
        backend.clock.advance(5 * DAY)
    answers = []
    for days in (4, 3):
        backend.clock.advance(days * DAY)
        remove_all_expired(queues, backend.clock.now())
        answers.append(queue.name(backend.prefix) in dict(backend.storage.account.queues(backend.prefix)))
    assert answers == [True, False]
    assert queues.count(full) == 1, "a queue with a message is not removed"


def test_only_unused_work_queues_are_removed(backend: Backend, queue: WorkQueue) -> None:
    account, prefix = backend.storage.account, backend.prefix
    pool = {"provisioner_id": queue.provisioner_id, "worker_type": queue.worker_type}
    used = pool | {"last_used": "2020-01-01"}
    for name, metadata in {
        f"{prefix}-plain": {},
        f"{prefix}-foreign": used,  # of another server, whose prefix begins with this prefix
        f"{prefix}-{'x' * 24}-{'y' * 24}-5": used,
        queue.name(prefix): {**used, "last_used": "the day before"},
        f"{prefix}x-other": used,
    }.items():
        account.queue(name).create(metadata)
    before = dict(account.queues(""))
    remove_all_expired(backend.storage.work_queues, backend.clock.now(), 2)
    assert dict(account.queues("")) == before
    # with the setting pool-shards, 0.1.0 made more queues for the same priority
    unused = {queue.name(prefix), queue.name(prefix)[:-1] + "k"}
    for name in unused:
        account.queue(name).create(used)
    remove_all_expired(backend.storage.work_queues, backend.clock.now(), 2)
    assert {*before, *unused} - dict(account.queues("")).keys() == unused


def test_a_removed_queue_is_created_again_by_the_next_put(
    storage: Storage, other: Storage, backend: Backend, queue: WorkQueue
) -> None:
    for store in (storage, other):
        store.work_queues.remove(queue, store.work_queues.put(queue, TEXT, HOUR, NO_TIME))
    remove_all_expired(storage.work_queues, backend.clock.now() + 12 * DAY)
    assert storage.work_queues.count(queue) == 0
    # this process remembers that it used the queue today, and must create it all the same
    other.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    assert storage.work_queues.count(queue) == 1


def test_the_pool_and_priority_of_a_work_queue_are_found_by_its_name(
    backend: Backend, queue: WorkQueue
) -> None:
    queues = backend.storage.work_queues
    name = queue.name(backend.prefix)
    assert queues.named(name) is None
    queues.put(queue, TEXT, HOUR, NO_TIME)
    assert [queues.named(name), queues.named(name)] == [queue, queue]
    other = backend.storage.account.queue(f"{backend.prefix}-other")
    other.create({})
    assert queues.named(other.name) is None
