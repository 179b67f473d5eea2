"""Timers in messages of one queue: as they were put, taken over when they are visible, gone when removed."""

import json
from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timer import Timer
from legacy_queue.stores import Storage, TimerMessage

from .conftest import Backend

NO_TIME, SECOND, HOUR = timedelta(0), timedelta(seconds=1), timedelta(hours=1)
DUE = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def timer(**more: Any) -> Timer:
    return Timer(slugid(), DUE, **more)


def put(storage: Storage, *timers: Timer, hidden_for: timedelta = NO_TIME) -> list[TimerMessage]:
    return list(storage.timers.put(timers, hidden_for))


def received(storage: Storage, hidden_for: timedelta = HOUR) -> list[Timer]:
    return [one for message in storage.timers.receive(hidden_for) for one in message.timers]


def test_timers_come_back_as_they_were_put_to_another_process(storage: Storage, other: Storage) -> None:
    assert received(other) == []  # and the queue is not there yet
    timers = [
        timer(),
        timer(since=DUE - HOUR),
        timer(since=DUE, task_group_id=slugid()),
        timer(since=DUE, artifacts=((0, "public/é <&>\n"), (49, "."))),
    ]
    (message,) = put(storage, *timers)
    assert list(message.timers) == timers
    assert received(other) == timers
    assert received(storage) == []


def test_more_timers_than_a_message_holds_go_into_several(storage: Storage) -> None:
    timers = [timer(since=DUE, artifacts=((0, "x" * 1000),)) for _ in range(100)]
    messages = put(storage, *timers)
    assert 2 < len(messages) < 10
    assert [one for message in messages for one in message.timers] == timers
    found = received(storage) + received(storage)
    assert sorted(found, key=lambda one: one.task_id) == sorted(timers, key=lambda one: one.task_id)


def test_what_was_put_or_received_is_hidden_for_so_long(
    storage: Storage, wait: Callable[[float], None]
) -> None:
    first, second = timer(), timer()
    put(storage, first, hidden_for=SECOND)
    put(storage, second)
    assert received(storage, SECOND) == [second]
    assert received(storage) == []
    wait(1)
    assert {one.task_id for one in received(storage)} == {first.task_id, second.task_id}


def test_what_is_removed_does_not_come_again_and_may_be_removed_again(
    storage: Storage, other: Storage
) -> None:
    (message,) = put(storage, timer())
    for _ in range(2):
        other.timers.remove(message.lease)
        assert received(storage) == []


def test_a_process_that_has_lost_its_lease_does_not_remove_the_timers(
    storage: Storage, other: Storage
) -> None:
    (message,) = put(storage, timer())
    assert len(other.timers.receive(NO_TIME + SECOND)) == 1
    storage.timers.remove(message.lease)
    assert backend_messages(other) == 1


def backend_messages(storage: Storage) -> int:
    """How many there are, visible or not."""
    return storage.account.queue(storage.timers._queue.name).count()


def test_of_many_processes_each_message_goes_to_one(storage: Storage, other: Storage) -> None:
    timers = [timer() for _ in range(20)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda one: put(storage, one), timers))
        found = [one for some in threads.map(lambda _: received(other), range(8)) for one in some]
    assert sorted(one.task_id for one in found) == sorted(one.task_id for one in timers)


def test_messages_stay_until_they_are_removed(storage: Storage, backend: Backend) -> None:
    put(storage, timer())
    backend.clock.advance(timedelta(days=3000))
    storage.work_queues.remove_expired(backend.clock.now(), "", 100)
    assert len(received(storage)) == 1


@pytest.fixture
def logs() -> Any:
    with capture_logs() as entries:
        yield entries


@pytest.mark.parametrize("text", ["", "x", "{}", '{"timers": [{"taskId": "x"}]}', "<" * 40_000])
def test_what_cannot_be_read_goes_to_the_dead_letters(
    storage: Storage, other: Storage, logs: list[MutableMapping[str, Any]], text: str
) -> None:
    good = timer()
    put(storage, good)
    queue = storage.account.queue(storage.timers._queue.name)
    queue.put(text, NO_TIME)
    for store in (storage, other):
        assert received(store) == ([good] if store is storage else [])
    assert queue.count() == 1
    (dead,) = storage.account.queue(storage.timers._dead_letters.name).peek()
    letter = json.loads(dead.text)
    assert (letter["queue"], text.startswith(letter["text"])) == (queue.name, True)
    assert [one["event"] for one in logs] == ["message-dead-lettered"]
