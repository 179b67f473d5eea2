import base64
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from urllib.parse import quote

import pytest
import requests

from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.ports import LeaseLost
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import SignedUrls
from legacy_queue.stores import Storage, WorkQueues
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


def test_a_message_that_is_not_deleted_is_received_again(
    storage: Storage, queue: WorkQueue, sign: Sign, wait: Wait
) -> None:
    storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    urls = sign(queue, visibility=SECOND)
    (first,) = poll(urls.poll)
    wait(1)
    (second,) = poll(urls.poll)
    assert (second.lease.message_id, second.dequeue_count) == (first.lease.message_id, 2)
    assert second.lease.receipt != first.lease.receipt


def test_the_poll_url_of_an_unused_queue_returns_no_message(queue: WorkQueue, sign: Sign) -> None:
    assert poll(sign(queue).poll) == []


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


@pytest.fixture(params=["put", "received", "hidden"])
def leased(request: pytest.FixtureRequest, storage: Storage, queue: WorkQueue, sign: Sign) -> MessageLease:
    """A good lease on the only message of the queue, however one comes by it."""
    lease = storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    if request.param == "received":
        (received,) = poll(sign(queue).poll)
        return received.lease
    if request.param == "hidden":
        return storage.work_queues.hide(queue, lease, TEXT, HOUR / 2)
    return lease


def test_a_hidden_message_is_invisible_and_one_made_visible_is_received_with_its_new_text(
    storage: Storage, queue: WorkQueue, sign: Sign, leased: MessageLease
) -> None:
    urls = sign(queue)
    hidden = storage.work_queues.hide(queue, leased, OTHER_TEXT, HOUR / 2)
    assert hidden.message_id == leased.message_id
    assert poll(urls.poll) == []
    storage.work_queues.hide(queue, hidden, TEXT, NO_TIME)
    assert [message.text for message in poll(urls.poll)] == [TEXT]


def test_hiding_a_message_ends_the_lease_that_hid_it(
    storage: Storage, queue: WorkQueue, leased: MessageLease
) -> None:
    storage.work_queues.hide(queue, leased, TEXT, NO_TIME)
    with pytest.raises(LeaseLost):
        storage.work_queues.hide(queue, leased, OTHER_TEXT, HOUR / 2)
    with pytest.raises(LeaseLost):
        storage.work_queues.remove(queue, leased)
    assert storage.work_queues.count(queue) == 1


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


def test_a_removed_message_is_gone(
    storage: Storage, queue: WorkQueue, sign: Sign, leased: MessageLease
) -> None:
    storage.work_queues.remove(queue, leased)
    assert storage.work_queues.count(queue) == 0
    assert poll(sign(queue).poll) == []
    with pytest.raises(LeaseLost):
        storage.work_queues.remove(queue, leased)
    with pytest.raises(LeaseLost):
        storage.work_queues.hide(queue, leased, TEXT, NO_TIME)


def test_invisible_messages_are_counted(storage: Storage, queue: WorkQueue, sign: Sign) -> None:
    assert storage.work_queues.count(queue) == 0
    for hidden_for in (NO_TIME, NO_TIME, HOUR / 2):
        storage.work_queues.put(queue, TEXT, HOUR, hidden_for)
    assert poll(sign(queue).poll)
    assert storage.work_queues.count(queue) == 3


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


def test_a_lease_is_lost_after_a_worker_deleted_its_message(
    storage: Storage, queue: WorkQueue, sign: Sign
) -> None:
    storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    urls = sign(queue)
    (received,) = poll(urls.poll)
    assert delete(urls.delete, received.lease) == 204
    with pytest.raises(LeaseLost):
        storage.work_queues.hide(queue, received.lease, OTHER_TEXT, HOUR / 2)


def test_urls_have_a_query_and_no_braces_except_those_of_the_placeholders(
    queue: WorkQueue, sign: Sign
) -> None:
    urls = sign(queue)
    assert urls.poll.partition("?")[2].startswith("visibilitytimeout=300&")
    assert not set("{}") & set(urls.poll)
    assert urls.delete.count("{{messageId}}") == urls.delete.count("{{popReceipt}}") == 1
    assert (urls.delete.count("{"), urls.delete.count("}")) == (4, 4)


@ON_EACH_STORAGE
@pytest.mark.parametrize(
    ("start", "expiry"),
    [(timedelta(hours=-2), timedelta(hours=-1)), (timedelta(hours=1), timedelta(hours=2))],
    ids=["expired", "not yet valid"],
)
def test_urls_are_refused_outside_their_time(
    storage: Storage, queue: WorkQueue, sign: Sign, start: timedelta, expiry: timedelta
) -> None:
    storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    answer = requests.get(sign(queue, start=start, expiry=expiry).poll, timeout=30)
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")


@ON_EACH_STORAGE
def test_urls_of_one_queue_do_not_open_another(storage: Storage, queue: WorkQueue, sign: Sign) -> None:
    other = replace(queue, priority="lowest")
    storage.work_queues.put(other, TEXT, HOUR, NO_TIME)
    here, there = (sign(one).poll.partition("?") for one in (queue, other))
    answer = requests.get(f"{there[0]}?{here[2]}", timeout=30)
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")


@ON_EACH_STORAGE
@pytest.mark.parametrize("method", ["POST", "PUT", "peek"])
def test_urls_do_not_allow_to_put_update_or_peek(
    storage: Storage, queue: WorkQueue, sign: Sign, method: str
) -> None:
    lease = storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)
    path, _, query = sign(queue).poll.partition("?")
    sas = query.partition("&")[2]
    body = f"<QueueMessage><MessageText>{OTHER_TEXT}</MessageText></QueueMessage>"
    sent = {
        "POST": lambda: requests.post(f"{path}?{sas}", data=body, timeout=30),
        "PUT": lambda: requests.put(
            f"{path}/{lease.message_id}?popreceipt={lease.receipt}&visibilitytimeout=0&{sas}",
            data=body,
            timeout=30,
        ),
        "peek": lambda: requests.get(f"{path}?peekonly=true&{sas}", timeout=30),
    }
    answer = sent[method]()
    assert (answer.status_code, answer.headers["x-ms-error-code"]) == (403, "AuthorizationPermissionMismatch")
    assert [message.text for message in poll(sign(queue).poll, 32)] == [TEXT]


def test_concurrent_first_uses_of_a_queue_all_succeed(storage: Storage) -> None:
    queue = WorkQueue("provisioner", uuid.uuid4().hex[:12], "high")

    def put(_number: int) -> MessageLease:
        return storage.work_queues.put(queue, TEXT, HOUR, NO_TIME)

    with ThreadPoolExecutor(8) as threads:
        leases = list(threads.map(put, range(8)))
    assert len({lease.message_id for lease in leases}) == storage.work_queues.count(queue) == 8


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


def test_signing_urls_creates_a_removed_queue_again(
    storage: Storage, backend: Backend, queue: WorkQueue, sign: Sign
) -> None:
    sign(queue)
    remove_all_expired(storage.work_queues, backend.clock.now() + timedelta(days=12))
    assert not exists(backend, queue)
    sign(queue)
    assert exists(backend, queue)


def test_any_process_continues_the_removal_of_unused_queues(
    storage: Storage, other: Storage, backend: Backend, sign: Sign
) -> None:
    queues = [WorkQueue("provisioner", f"type-{number}", "high") for number in range(7)]
    for queue in queues:
        sign(queue)
    storage.work_queues.put(queues[3], TEXT, timedelta(days=100), NO_TIME)
    now = backend.clock.now() + timedelta(days=12)
    there, after = [7], storage.work_queues.remove_expired(now, "", 2)
    stores = itertools.cycle([other, storage])
    while after is not None:
        there.append(sum(exists(backend, queue) for queue in queues))
        after = next(stores).work_queues.remove_expired(now, after, 2)
    there.append(sum(exists(backend, queue) for queue in queues))
    assert there[-1] == 1
    assert all(0 <= before - behind <= 2 for before, behind in itertools.pairwise(there))
    assert storage.work_queues.count(queues[3]) == 1


def test_a_queue_that_another_process_removes_meanwhile_is_no_error(
    storage: Storage, other: Storage, backend: Backend, sign: Sign
) -> None:
    queues = [WorkQueue("provisioner", f"type-{number}", "high") for number in range(8)]
    for queue in queues:
        sign(queue)
    now = backend.clock.now() + timedelta(days=12)

    class Listed:
        def __getattr__(self, name: str) -> Any:
            return getattr(storage.account, name)

        def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
            yield from storage.account.queues(prefix)
            remove_all_expired(other.work_queues, now)

    slow = WorkQueues(cast(StorageAccount, Listed()), backend.prefix, backend.clock)
    assert slow.remove_expired(now, "", 100) is None
    assert not any(exists(backend, queue) for queue in queues)
