"""What a queue promises. Source: legacy_queue/ports/queue.py."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.messages import MessageLease
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import LeaseLost, Queue, QueueNotFound

Wait = Callable[[float], None]
NO_TIME, SECOND, HOUR = timedelta(0), timedelta(seconds=1), timedelta(hours=1)
NO_QUEUE = "never-made"


def texts(queue: Queue) -> list[str]:
    """The texts of the visible messages."""
    return [message.text for message in queue.peek() if message.next_visible is None]


def test_a_received_message_has_the_text_and_times_with_which_it_was_put(queue: Queue) -> None:
    put = queue.put("text", NO_TIME, HOUR)
    (message,) = queue.receive(1, timedelta(minutes=5))
    assert (message.text, message.lease.message_id, message.dequeue_count) == ("text", put.message_id, 1)
    assert message.lease.receipt != put.receipt
    assert message.next_visible
    assert message.expires - message.inserted == HOUR
    assert timedelta(minutes=4) < message.next_visible - message.inserted < timedelta(minutes=6)
    for time in (message.inserted, message.expires, message.next_visible):
        assert time.utcoffset() == NO_TIME
    assert abs(message.inserted - datetime.now(UTC)) < HOUR


@pytest.mark.parametrize(
    "text", ["", " ", "&amp;<a b='c'>\"]]></MessageText>", "line\nline", "x" * 48 * 1024]
)
def test_any_ascii_text_is_stored_unchanged(queue: Queue, text: str) -> None:
    queue.put(text, NO_TIME)
    assert texts(queue) == [text]
    (message,) = queue.receive(1, HOUR)
    assert message.text == text
    queue.update(message.lease, text, NO_TIME)
    assert texts(queue) == [text]


def test_peek_shows_visible_messages_and_embedded_storage_shows_hidden_ones_too(
    queue: Queue, account: StorageAccount
) -> None:
    put = [queue.put(text, NO_TIME) for text in ("first", "second")]
    queue.put("hidden", HOUR)
    for _ in range(2):
        first, second, *others = queue.peek()
        assert [first.lease, second.lease] == [MessageLease(one.message_id, "") for one in put]
        assert [first.text, second.text] == ["first", "second"]
        assert first.next_visible is second.next_visible is None
        until = [(one.text, one.next_visible and one.next_visible - one.inserted) for one in others]
        assert until == ([("hidden", HOUR)] if isinstance(account, EmbeddedAccount) else [])
    for lease in put:
        queue.delete(lease)


def test_messages_are_received_in_the_order_in_which_they_were_put(queue: Queue) -> None:
    for number in range(5):
        queue.put(str(number), NO_TIME)
    assert texts(queue) == ["0", "1", "2", "3", "4"]
    for expected in (["0", "1", "2"], ["3", "4"], []):
        assert [message.text for message in queue.receive(3, HOUR)] == expected


def test_concurrent_receivers_never_get_the_same_message(queue: Queue, other: StorageAccount) -> None:
    for number in range(40):
        queue.put(str(number), NO_TIME)
    queues = [queue, other.queue(queue.name)]
    with ThreadPoolExecutor(8) as threads:
        received = threads.map(lambda number: queues[number % 2].receive(7, HOUR), range(8))
    got = [int(message.text) for messages in received for message in messages]
    assert sorted(got) == list(range(40))


def test_the_time_for_which_a_message_is_invisible_is_rounded_up_to_seconds(queue: Queue, wait: Wait) -> None:
    queue.put("put", timedelta(milliseconds=1))
    queue.put("visible", NO_TIME)
    (received,) = queue.receive(32, timedelta(milliseconds=1))
    assert received.text == "visible"
    updated = queue.update(queue.put("updated", HOUR), "updated", timedelta(milliseconds=1))
    assert texts(queue) == []
    assert queue.count() == 3
    wait(1)
    assert sorted(texts(queue)) == ["put", "updated", "visible"]
    for lease in (updated, received.lease):  # a lease is valid until the message is received again
        queue.delete(lease)


def test_the_time_to_live_of_a_message_is_rounded_down_to_seconds(queue: Queue, wait: Wait) -> None:
    queue.put("for ever", NO_TIME)
    lease = queue.put("gone", NO_TIME, timedelta(seconds=1.9))
    wait(1)
    assert texts(queue) == ["for ever"]
    with pytest.raises(LeaseLost):
        queue.update(lease, "gone", NO_TIME)
    hidden = queue.put("gone", SECOND, timedelta(seconds=2.9))
    wait(2)
    assert texts(queue) == ["for ever"]
    with pytest.raises(LeaseLost):
        queue.delete(hidden)


def test_an_update_changes_the_text_and_the_lease_but_not_the_dequeue_count(queue: Queue) -> None:
    queue.put("text", NO_TIME)
    (message,) = queue.receive(1, HOUR)
    lease = queue.update(message.lease, "other", HOUR)
    assert lease.message_id == message.lease.message_id
    assert texts(queue) == []
    lease = queue.update(lease, "another", NO_TIME)
    (seen,) = queue.peek()
    assert (seen.text, seen.dequeue_count) == ("another", 1)
    queue.delete(lease)
    assert queue.count() == 0


def test_the_lease_that_a_put_returns_is_valid_until_the_message_is_received(queue: Queue) -> None:
    first, second = queue.put("first", NO_TIME), queue.put("second", HOUR)
    queue.delete(queue.update(second, "second", NO_TIME))
    queue.receive(1, SECOND)
    with pytest.raises(LeaseLost):
        queue.delete(first)


def test_a_stale_lease_is_refused_as_lost(queue: Queue) -> None:
    first = queue.put("text", HOUR)
    second = queue.update(first, "text", HOUR)
    for act in (queue.delete, lambda lease: queue.update(lease, "new", HOUR)):
        with pytest.raises(LeaseLost):
            act(first)
    queue.delete(second)
    for act in (queue.delete, lambda lease: queue.update(lease, "new", HOUR)):
        with pytest.raises(LeaseLost):
            act(second)


NO_MESSAGE = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("message_id", "receipt"),
    [
        *((other, "receipt") for other in ("../../other", "", "a?b", "\ud800", "x" * 1000)),
        *((NO_MESSAGE, receipt) for receipt in ("AgAAAAMAAAAAAAAA+/==", "ä")),
        *((None, receipt) for receipt in ("", "other", "ä", "\ud800", "&visibilitytimeout=0", "a+b/c==")),
    ],
)
def test_a_lease_for_a_missing_message_or_with_a_wrong_receipt_is_refused_as_lost(
    queue: Queue, message_id: str | None, receipt: str
) -> None:
    put = queue.put("text", NO_TIME)
    lease = MessageLease(put.message_id if message_id is None else message_id, receipt)
    with pytest.raises(LeaseLost):
        queue.delete(lease)
    with pytest.raises(LeaseLost):
        queue.update(lease, "new", NO_TIME)
    assert texts(queue) == ["text"]


def test_any_operation_on_a_missing_or_removed_queue_is_queue_not_found(
    account: StorageAccount, queue: Queue
) -> None:
    queue.put("text", NO_TIME)
    queue.remove()
    lease = MessageLease(NO_MESSAGE, "AgAAAAMAAAAAAAAA")
    for gone in (account.queue(NO_QUEUE), queue):
        acts: list[Callable[[], object]] = [
            partial(gone.put, "text", NO_TIME),
            partial(gone.receive, 1, HOUR),
            gone.peek,
            partial(gone.update, lease, "text", NO_TIME),
            partial(gone.delete, lease),
            gone.count,
            gone.metadata,
        ]
        for act in acts:
            with pytest.raises(QueueNotFound):
                act()
        gone.remove()
    queue.create({})
    assert queue.count() == 0


def test_creating_an_existing_queue_replaces_its_metadata(queue: Queue) -> None:
    queue.put("text", NO_TIME)
    assert queue.metadata() == {}
    for metadata in ({"one": "1", "two_2": "a value"}, {"three": "3"}, {}):
        queue.create(metadata)
        assert queue.metadata() == metadata
    assert texts(queue) == ["text"]
