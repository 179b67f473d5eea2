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
    return [timer for message in storage.timers.receive(hidden_for) for timer in message.timers]


def test_another_process_receives_timers_as_they_were_put(storage: Storage, other: Storage) -> None:
    assert received(other) == []  # and the queue is not there yet
    timers = [
        timer(),
        timer(since=DUE - HOUR),
        timer(since=DUE, task_group_id=slugid()),
        timer(since=DUE, has_artifacts=True),
    ]
    (message,) = put(storage, *timers)
    assert list(message.timers) == timers
    assert received(other) == timers
    assert received(storage) == []


def test_timers_that_exceed_one_message_go_into_several(storage: Storage) -> None:
    timers = [timer(since=DUE, task_group_id=slugid(), has_artifacts=True) for _ in range(1000)]
    messages = put(storage, *timers)
    assert 2 < len(messages) < 10
    assert [timer for message in messages for timer in message.timers] == timers
    found = received(storage) + received(storage)
    assert sorted(found, key=lambda one: one.task_id) == sorted(timers, key=lambda one: one.task_id)


def test_put_and_received_messages_are_hidden_for_the_given_time(
    storage: Storage, wait: Callable[[float], None]
) -> None:
    first, second = timer(), timer()
    put(storage, first, hidden_for=SECOND)
    put(storage, second)
    assert received(storage, SECOND) == [second]
    assert received(storage) == []
    wait(1)
    assert {timer.task_id for timer in received(storage)} == {first.task_id, second.task_id}


def test_a_removed_message_is_gone_and_removing_it_again_is_harmless(
    storage: Storage, other: Storage
) -> None:
    (message,) = put(storage, timer())
    for _ in range(2):
        other.timers.remove(message.lease)
        assert received(storage) == []


def test_a_process_that_has_lost_its_lease_does_not_remove_the_timers(
    storage: Storage, other: Storage, backend: Backend
) -> None:
    (message,) = put(storage, timer())
    assert len(other.timers.receive(NO_TIME + SECOND)) == 1
    storage.timers.remove(message.lease)
    assert storage.account.queue(f"{backend.prefix}-timers").count() == 1


def test_each_timer_message_is_received_by_one_of_many_callers(storage: Storage, other: Storage) -> None:
    timers = [timer() for _ in range(20)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda one: put(storage, one), timers))
        found = [one for some in threads.map(lambda _: received(other), range(8)) for one in some]
    assert sorted(timer.task_id for timer in found) == sorted(timer.task_id for timer in timers)


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
def test_an_unreadable_message_goes_to_the_dead_letter_queue(
    storage: Storage, other: Storage, backend: Backend, logs: list[MutableMapping[str, Any]], text: str
) -> None:
    good = timer()
    put(storage, good)
    queue = storage.account.queue(f"{backend.prefix}-timers")
    queue.put(text, NO_TIME)
    for store in (storage, other):
        assert received(store) == ([good] if store is storage else [])
    assert queue.count() == 1
    (dead,) = storage.account.queue(f"{backend.prefix}-dead-letters").peek()
    letter = json.loads(dead.text)
    assert (letter["queue"], text.startswith(letter["text"])) == (queue.name, True)
    assert [entry["event"] for entry in logs] == ["message-dead-lettered"]
