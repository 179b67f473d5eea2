from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from legacy_queue.domain.messages import Lease
from legacy_queue.ports import LeaseLost
from legacy_queue.stores import ReceivedMessage, Storage

from .conftest import Backend

NO_TIME = timedelta(0)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
NAMES = ("claims", "deadlines", "resolved", "events", "poison")


def texts(messages: Sequence[ReceivedMessage]) -> list[str]:
    return [message.text for message in messages]


@pytest.mark.parametrize("name", NAMES)
def test_each_queue_is_made_when_it_is_needed(storage: Storage, other: Storage, name: str) -> None:
    for store in (storage, other):
        assert store.own_queues.receive(name, 32, HOUR) == []
        assert store.own_queues.peek(name, 32) == []
    storage.own_queues.put(name, name, NO_TIME)
    assert texts(other.own_queues.receive(name, 32, HOUR)) == [name]


def test_queues_are_apart(storage: Storage) -> None:
    for name in NAMES:
        storage.own_queues.put(name, name, NO_TIME)
    assert [texts(storage.own_queues.receive(name, 32, HOUR)) for name in NAMES] == [[name] for name in NAMES]


def test_of_many_that_use_a_queue_first_none_is_refused(storage: Storage, other: Storage) -> None:
    def put(number: int) -> Lease:
        return (storage, other)[number % 2].own_queues.put("claims", str(number), NO_TIME)

    with ThreadPoolExecutor(8) as threads:
        leases = list(threads.map(put, range(8)))
    received = storage.own_queues.receive("claims", 32, HOUR)
    assert {one.lease.message_id for one in received} == {lease.message_id for lease in leases}
    assert sorted(texts(received)) == [str(number) for number in range(8)]


@pytest.mark.parametrize(
    "text",
    ["x", '{"a": [1, "<&>\'\\\\ \\u0000 ]]>"]}', " spaces \n\t around ", "x" * 48 * 1024],
    ids=["a letter", "JSON", "spaces", "48 KiB"],
)
def test_a_text_comes_back_as_it_was_put(storage: Storage, text: str) -> None:
    lease = storage.own_queues.put("claims", "other", NO_TIME)
    storage.own_queues.hide("claims", lease, text, NO_TIME)
    storage.own_queues.put("claims", text, NO_TIME)
    assert texts(storage.own_queues.peek("claims", 32)) == [text, text]
    assert texts(storage.own_queues.receive("claims", 32, HOUR)) == [text, text]


def test_visible_messages_come_in_the_order_in_which_they_were_put(storage: Storage) -> None:
    for number in range(70):
        storage.own_queues.put("events", str(number), NO_TIME)
    assert texts(storage.own_queues.peek("events", 32)) == [str(number) for number in range(32)]
    received = [storage.own_queues.receive("events", 32, HOUR) for _ in range(4)]
    assert [len(some) for some in received] == [32, 32, 6, 0]
    assert [text for some in received for text in texts(some)] == [str(number) for number in range(70)]


def test_no_more_is_received_or_seen_than_was_asked_for(storage: Storage) -> None:
    for number in range(4):
        storage.own_queues.put("claims", str(number), NO_TIME)
    assert texts(storage.own_queues.peek("claims", 3)) == ["0", "1", "2"]
    assert texts(storage.own_queues.receive("claims", 1, HOUR)) == ["0"]
    assert texts(storage.own_queues.peek("claims", 1)) == ["1"]


def test_peeking_changes_nothing(storage: Storage) -> None:
    lease = storage.own_queues.put("claims", "text", NO_TIME)
    for _ in range(2):
        (seen,) = storage.own_queues.peek("claims", 32)
        assert seen == ReceivedMessage(Lease(lease.message_id, ""), "text", 0)
        with pytest.raises(LeaseLost):
            storage.own_queues.remove("claims", seen.lease)
    storage.own_queues.remove("claims", lease)


def test_invisible_messages_are_neither_seen_nor_received(storage: Storage) -> None:
    storage.own_queues.put("claims", "put", HOUR)
    storage.own_queues.put("claims", "received", NO_TIME)
    storage.own_queues.receive("claims", 1, HOUR)
    lease = storage.own_queues.put("claims", "hidden", NO_TIME)
    storage.own_queues.hide("claims", lease, "hidden", HOUR)
    assert storage.own_queues.peek("claims", 32) == storage.own_queues.receive("claims", 32, HOUR) == []


def test_messages_become_visible_when_their_time_has_come(
    storage: Storage, wait: Callable[[float], None]
) -> None:
    storage.own_queues.put("claims", "put", SECOND)
    lease = storage.own_queues.put("claims", "before", NO_TIME)
    storage.own_queues.hide("claims", lease, "hidden", SECOND)
    storage.own_queues.put("claims", "received", NO_TIME)
    storage.own_queues.receive("claims", 32, SECOND)
    wait(1)
    assert sorted(texts(storage.own_queues.receive("claims", 32, HOUR))) == ["hidden", "put", "received"]


def test_each_receive_is_counted_and_hiding_is_not(storage: Storage) -> None:
    storage.own_queues.put("claims", "text", NO_TIME)
    for count in (1, 2, 3):
        (message,) = storage.own_queues.receive("claims", 1, HOUR)
        assert message.dequeue_count == count
        lease = storage.own_queues.hide("claims", message.lease, "text", HOUR)
        storage.own_queues.hide("claims", lease, "text", NO_TIME)


@pytest.fixture(params=["put", "received", "hidden"])
def leased(request: pytest.FixtureRequest, storage: Storage) -> Lease:
    """A good lease on the only message, however one comes by it."""
    lease = storage.own_queues.put("claims", "text", NO_TIME)
    if request.param == "received":
        (received,) = storage.own_queues.receive("claims", 1, HOUR)
        return received.lease
    if request.param == "hidden":
        return storage.own_queues.hide("claims", lease, "text", HOUR)
    return lease


def test_a_removed_message_is_gone(storage: Storage, other: Storage, leased: Lease) -> None:
    other.own_queues.remove("claims", leased)
    assert storage.own_queues.peek("claims", 32) == []
    with pytest.raises(LeaseLost):
        storage.own_queues.remove("claims", leased)
    with pytest.raises(LeaseLost):
        storage.own_queues.hide("claims", leased, "text", NO_TIME)


def test_hiding_ends_the_lease_it_was_done_with(storage: Storage, other: Storage, leased: Lease) -> None:
    following = other.own_queues.hide("claims", leased, "new text", HOUR)
    assert following.message_id == leased.message_id
    for lost in (leased, replace(following, receipt="stale"), replace(following, message_id="../x")):
        with pytest.raises(LeaseLost):
            storage.own_queues.hide("claims", lost, "text", NO_TIME)
        with pytest.raises(LeaseLost):
            storage.own_queues.remove("claims", lost)
    storage.own_queues.hide("claims", following, "new text", NO_TIME)
    assert texts(storage.own_queues.receive("claims", 1, HOUR)) == ["new text"]


def test_in_a_queue_that_was_never_used_every_lease_is_lost(storage: Storage, leased: Lease) -> None:
    with pytest.raises(LeaseLost):
        storage.own_queues.hide("deadlines", leased, "text", NO_TIME)
    with pytest.raises(LeaseLost):
        storage.own_queues.remove("deadlines", leased)


def test_of_many_receivers_each_message_goes_to_one(storage: Storage, other: Storage) -> None:
    put = [storage.own_queues.put("claims", "text", NO_TIME).message_id for _ in range(20)]

    def receive(number: int) -> Sequence[ReceivedMessage]:
        return (storage, other)[number % 2].own_queues.receive("claims", 5, HOUR)

    with ThreadPoolExecutor(8) as threads:
        received = [message for some in threads.map(receive, range(8)) for message in some]
    assert sorted(message.lease.message_id for message in received) == sorted(put)


def test_messages_stay_until_they_are_removed(storage: Storage, backend: Backend) -> None:
    storage.own_queues.put("claims", "text", NO_TIME)
    for days in (8, 30, 3000):
        backend.clock.advance(timedelta(days=days))
        storage.work_queues.remove_expired(backend.clock.now(), "", 100)
        assert texts(storage.own_queues.peek("claims", 1)) == ["text"]
