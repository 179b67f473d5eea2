import base64
import uuid
from collections.abc import Callable
from datetime import timedelta
from urllib.parse import quote

import pytest
import requests

from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.ports.queue import LeaseLost, SignedUrls
from legacy_queue.stores import Storage
from tests.memory_server import delete, poll

from .conftest import ON_EACH_STORAGE, Backend, Sign
from .paging import remove_all_expired

Wait = Callable[[float], None]

NO_TIME = timedelta(0)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
TEXT = base64.b64encode(b'{"taskId": "a", "runId": 0}').decode()
OTHER_TEXT = base64.b64encode(b'{"taskId": "a", "runId": 1}').decode()


@ON_EACH_STORAGE
def test_a_message_that_was_put_is_received_as_it_was_put(
    storage: Storage, queue: WorkQueue, sign: Sign
) -> None:
    lease = storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    (received,) = poll(sign(queue).poll)
    assert (received.lease.message_id, received.text, received.dequeue_count) == (lease.message_id, TEXT, 1)
    assert str(uuid.UUID(received.lease.message_id)) == received.lease.message_id


@ON_EACH_STORAGE
def test_each_priority_has_a_queue_of_its_own_and_urls_come_in_the_order_asked_for(
    storage: Storage, backend: Backend
) -> None:
    queues = work_queues("provisioner", "type")
    texts = [base64.b64encode(queue.priority.encode()).decode() for queue in queues]
    for queue, text in zip(queues, texts, strict=True):
        storage.work_queues.put(queue, text, HOUR, NO_TIME)
    now = backend.clock.now()
    urls = storage.work_queues.signed_urls(queues, now - HOUR, now + HOUR, SECOND)
    assert [[message.text for message in poll(url.poll, 32)] for url in urls] == [[text] for text in texts]


def test_a_message_with_a_time_to_live_below_a_second_can_be_put(
    storage: Storage, queue: WorkQueue, sign: Sign, wait: Wait
) -> None:
    storage.work_queues.put(queue, TEXT, timedelta(milliseconds=1), NO_TIME)
    wait(1)
    assert poll(sign(queue).poll) == []


def test_a_message_cannot_be_hidden_beyond_its_time_to_live(
    storage: Storage, queue: WorkQueue, wait: Wait
) -> None:
    """Azure is stricter than Azurite."""
    lease = storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    with pytest.raises(LeaseLost):
        storage.work_queues.hide(queue, lease, TEXT, HOUR)
    lease = storage.work_queues.hide(queue, lease, TEXT, HOUR - SECOND)
    wait(3600)
    with pytest.raises(LeaseLost):
        storage.work_queues.remove(queue, lease)


@ON_EACH_STORAGE
@pytest.mark.parametrize("appended", ["visibilitytimeout=1", "visibilitytimeout=1&visibilitytimeout=2"])
def test_the_first_of_two_visibilitytimeouts_counts_and_a_delete_ignores_both(
    storage: Storage, queue: WorkQueue, sign: Sign, wait: Wait, appended: str
) -> None:
    """Azure's JavaScript client, built from a poll URL, appends its own and leaves both on a DELETE."""
    storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    urls = sign(queue)
    (message,) = poll(f"{urls.poll}&{appended}")
    wait(1)
    assert poll(urls.poll) == []
    url = urls.delete.replace("{{messageId}}", message.lease.message_id)
    url = url.replace("{{popReceipt}}", quote(message.lease.receipt, safe=""))
    assert requests.delete(f"{url}&{appended}", timeout=30).status_code == 204
    assert storage.work_queues.count(queue) == 0


def test_peeking_shows_the_messages_of_a_queue_and_none_of_an_unused_queue(
    storage: Storage, queue: WorkQueue
) -> None:
    assert storage.work_queues.peek(queue) == []
    storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    assert [message.text for message in storage.work_queues.peek(queue)] == [TEXT]


@ON_EACH_STORAGE
def test_a_worker_deletes_received_messages(storage: Storage, queue: WorkQueue, sign: Sign) -> None:
    for _ in range(8):
        storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    urls = sign(queue)
    received = poll(urls.poll, 8)
    assert [delete(urls.delete, message.lease) for message in received] == [204] * 8
    assert storage.work_queues.count(queue) == 0
    assert delete(urls.delete, received[0].lease) == 404


@ON_EACH_STORAGE
def test_a_worker_cannot_delete_a_message_that_was_hidden_after_its_poll(
    storage: Storage, queue: WorkQueue, sign: Sign
) -> None:
    storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    urls = sign(queue)
    (received,) = poll(urls.poll)
    storage.work_queues.hide(queue, received.lease, OTHER_TEXT, HOUR / 2)
    assert delete(urls.delete, received.lease) == 400
    assert storage.work_queues.count(queue) == 1


def remove_unused(storage: Storage, backend: Backend, limit: int = 100) -> None:
    remove_all_expired(storage.work_queues, backend.clock.now(), limit)


@pytest.fixture
def urls_of(sign: Sign) -> Callable[[WorkQueue], SignedUrls]:
    """URLs that are good for longer than any test moves the clock."""
    return lambda queue: sign(queue, expiry=timedelta(days=100))


def exists(backend: Backend, queue: WorkQueue) -> bool:
    names = dict(backend.storage.account.queues(backend.prefix))
    return queue.name(backend.prefix) in names


@pytest.mark.parametrize("use", ["put", "signed"])
def test_a_queue_is_removed_once_it_is_empty_and_was_not_used_for_ten_days(
    storage: Storage, backend: Backend, queue: WorkQueue, urls_of: Callable[[WorkQueue], SignedUrls], use: str
) -> None:
    urls_of(queue)
    backend.clock.advance(timedelta(days=5))
    if use == "put":
        storage.work_queues.remove(queue, storage.work_queues.put(queue, TEXT, HOUR, NO_TIME))
    else:
        urls_of(queue)
    answers = []
    for days in (9, 3):
        backend.clock.advance(timedelta(days=days))
        remove_unused(storage, backend)
        answers.append(exists(backend, queue))
    assert answers == [True, False]


@pytest.mark.parametrize("hidden_for", [NO_TIME, timedelta(days=6)], ids=["visible", "invisible"])
def test_a_queue_that_holds_a_message_is_not_removed(
    storage: Storage, backend: Backend, queue: WorkQueue, hidden_for: timedelta
) -> None:
    storage.work_queues.put(queue, TEXT, timedelta(days=100), hidden_for)
    backend.clock.advance(timedelta(days=12))
    remove_unused(storage, backend)
    assert storage.work_queues.count(queue) == 1


def test_a_removed_queue_is_created_again_by_the_next_put(
    storage: Storage, other: Storage, backend: Backend, queue: WorkQueue, sign: Sign
) -> None:
    for store in (storage, other):
        store.work_queues.remove(queue, store.work_queues.put(queue, TEXT, HOUR, NO_TIME))
    now = backend.clock.now() + timedelta(days=12)
    remove_all_expired(storage.work_queues, now)
    assert storage.work_queues.count(queue) == 0
    other.work_queues.put(queue, TEXT, HOUR, NO_TIME)  # though it remembers that it used the queue today
    assert [message.text for message in poll(sign(queue).poll)] == [TEXT]
