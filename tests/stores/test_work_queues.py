import base64
from datetime import timedelta

import pytest
import requests

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports.queue import LeaseLost
from legacy_queue.stores import Storage
from tests.memory_server import delete_url, poll

from .conftest import Backend
from .paging import remove_all_expired

NO_TIME = timedelta(0)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
TEXT = base64.b64encode(b'{"taskId": "a", "runId": 0}').decode()


def test_a_message_cannot_be_hidden_beyond_its_time_to_live(backend: Backend, queue: WorkQueue) -> None:
    """Azure is stricter than Azurite."""
    queues = backend.storage.work_queues
    lease = queues.put(queue, TEXT, HOUR, NO_TIME)
    with pytest.raises(LeaseLost):
        queues.hide(queue, lease, TEXT, HOUR)
    lease = queues.hide(queue, lease, TEXT, HOUR - SECOND)
    backend.wait(3600)
    with pytest.raises(LeaseLost):
        queues.remove(queue, lease)


@pytest.mark.parametrize("appended", ["visibilitytimeout=1", "visibilitytimeout=1&visibilitytimeout=2"])
def test_the_first_of_two_visibilitytimeouts_counts_and_a_delete_ignores_both(
    served: Backend, queue: WorkQueue, appended: str
) -> None:
    """Azure's JavaScript client, built from a poll URL, appends its own and leaves both on a DELETE."""
    queues, now = served.storage.work_queues, served.clock.now()
    queues.put(queue, TEXT, HOUR, NO_TIME)
    (urls,) = queues.signed_urls([queue], now - HOUR, now + HOUR, HOUR)
    (message,) = poll(f"{urls.poll}&{appended}")
    served.wait(1)
    assert poll(urls.poll) == []
    url = f"{delete_url(urls.delete, message.lease)}&{appended}"
    assert requests.delete(url, timeout=30).status_code == 204
    assert queues.count(queue) == 0


def remove_unused(backend: Backend, days: int) -> None:
    """What has expired so many days later is removed."""
    backend.clock.advance(timedelta(days=days))
    remove_all_expired(backend.storage.work_queues, backend.clock.now())


def exists(backend: Backend, queue: WorkQueue) -> bool:
    names = dict(backend.storage.account.queues(backend.prefix))
    return queue.name(backend.prefix) in names


@pytest.mark.parametrize("use", ["put", "signed"])
def test_a_queue_is_removed_once_it_is_empty_and_was_not_used_for_ten_days(
    backend: Backend, queue: WorkQueue, use: str
) -> None:
    queues, now = backend.storage.work_queues, backend.clock.now()
    for _ in range(2):
        if use == "put":
            queues.remove(queue, queues.put(queue, TEXT, HOUR, NO_TIME))
        else:
            queues.signed_urls([queue], now, now + HOUR, SECOND)
        backend.clock.advance(timedelta(days=5))
    answers = []
    for days in (4, 3):
        remove_unused(backend, days)
        answers.append(exists(backend, queue))
    assert answers == [True, False]


def test_a_queue_that_holds_a_message_is_not_removed(backend: Backend, queue: WorkQueue) -> None:
    backend.storage.work_queues.put(queue, TEXT, timedelta(days=100), timedelta(days=6))
    remove_unused(backend, 12)
    assert backend.storage.work_queues.count(queue) == 1


def test_a_removed_queue_is_created_again_by_the_next_put(
    storage: Storage, other: Storage, backend: Backend, queue: WorkQueue
) -> None:
    for store in (storage, other):
        store.work_queues.remove(queue, store.work_queues.put(queue, TEXT, HOUR, NO_TIME))
    remove_all_expired(storage.work_queues, backend.clock.now() + timedelta(days=12))
    assert storage.work_queues.count(queue) == 0
    other.work_queues.put(queue, TEXT, HOUR, NO_TIME)  # though it remembers that it used the queue today
    assert storage.work_queues.count(queue) == 1


def test_a_work_queue_is_known_by_its_name(backend: Backend, queue: WorkQueue) -> None:
    queues = backend.storage.work_queues
    name = queue.name(backend.prefix)
    assert queues.named(name) is None
    queues.put(queue, TEXT, HOUR, NO_TIME)
    assert [queues.named(name), queues.named(name)] == [queue, queue]
    other = backend.storage.account.queue(f"{backend.prefix}-other")
    other.create({})
    assert queues.named(other.name) is None
