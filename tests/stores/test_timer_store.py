"""Timers in messages of one queue: as they were put, taken over when they are visible, gone when removed."""

import json
from collections.abc import MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timer import Timer
from legacy_queue.stores import Storage, TimerMessage

from .conftest import Backend

NO_TIME, HOUR = timedelta(0), timedelta(hours=1)
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


@pytest.fixture
def logs() -> Any:
    with capture_logs() as entries:
        yield entries


@pytest.mark.parametrize("text", ["", '{"timers": [["x"]]}', "<" * 40_000])
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
