import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.events import Event
from legacy_queue.stores import Storage

from .conftest import Backend

HOUR = timedelta(hours=1)


def event(number: int, source: str = "", **payload: Any) -> Event:
    return Event(
        "task-pending", f"primary.{source}.{number}", (), {"version": 1, "number": number, **payload}
    )


def everything(storage: Storage, after: str = "", limit: int = 1000) -> list[Event]:
    """What there is behind ``after``, page by page."""
    found = []
    while page := storage.event_log.read(after, limit):
        assert len(page) <= limit
        found += [event for _, event in page]
        after = page[-1][0]
    return found


def test_an_event_is_read_as_it_was_appended(storage: Storage, other: Storage) -> None:
    odd = {"text": "Grüße \U0001f600 \x00 \ud800", "numbers": [1, -1e-7, True, None], "": {"a.b": []}}
    told = [
        Event("task-completed", "primary.a.0._._", ("index.a", "index.b.c"), odd),
        Event("task-group-resolved", "primary.b._", (), {"version": 1}),
    ]
    storage.event_log.append(told)
    assert [event for _, event in other.event_log.read("", 10)] == told


def test_a_log_without_events_has_a_beginning(storage: Storage, other: Storage) -> None:
    last = storage.event_log.last()
    assert storage.event_log.read(last, 10) == storage.event_log.read("", 10) == []
    other.event_log.append([])
    assert storage.event_log.read(last, 10) == []
    other.event_log.append([event(0)])
    assert everything(storage, last) == [event(0)]


def test_events_come_in_pages_behind_the_one_that_was_read_last(storage: Storage) -> None:
    told = [event(number) for number in range(7)]
    for start in range(0, 7, 3):
        storage.event_log.append(told[start : start + 3])
    for limit in (1, 2, 7, 8):
        assert everything(storage, limit=limit) == told


def test_ids_are_words_of_printable_ascii_in_the_order_of_their_events(storage: Storage) -> None:
    storage.event_log.append([event(number) for number in range(3)])
    ids = [event_id for event_id, _ in storage.event_log.read("", 10)]
    assert ids == sorted(set(ids))
    assert all(one.isascii() and one.isprintable() and one == "".join(one.split()) for one in ids)
    assert storage.event_log.last() >= ids[-1]


@pytest.mark.parametrize(
    "after", ["x", "1", " ", "0" * 17, "-" * 16, "\u0661" * 16, "0" * 15 + "\n", "' or 1"]
)
def test_what_is_no_id_is_refused(storage: Storage, after: str) -> None:
    with pytest.raises(ValueError, match="is not the id of an event"):
        storage.event_log.read(after, 10)


def test_everything_from_now_on_comes_behind_the_last_id(storage: Storage, other: Storage) -> None:
    storage.event_log.append([event(0)])
    for number in range(1, 4):
        writer, reader = (storage, other) if number % 2 else (other, storage)
        last = reader.event_log.last()
        assert reader.event_log.read(last, 10) == []
        writer.event_log.append([event(number)])
        assert everything(reader, last) == [event(number)]


@pytest.mark.parametrize("moved", [timedelta(0), -HOUR, HOUR])
def test_a_later_event_comes_behind_an_earlier_one_whatever_the_clock_says(
    storage: Storage, other: Storage, backend: Backend, moved: timedelta
) -> None:
    for number in range(4):
        (storage, other)[number % 2].event_log.append([event(number)])
        backend.clock.advance(moved)
    assert everything(storage) == [event(number) for number in range(4)]


def test_any_number_of_events_is_appended_in_order(storage: Storage) -> None:
    told = [event(number) for number in range(301)]
    storage.event_log.append(told)
    assert everything(storage, limit=100) == told


def test_large_events_fit_however_many(storage: Storage) -> None:
    noise = random.Random(1).randbytes(50 * 1024).hex()
    told = [event(number, noise=noise) for number in range(45)]
    storage.event_log.append(told)
    assert everything(storage, limit=10) == told


def test_a_reader_that_follows_two_processes_misses_nothing(storage: Storage, other: Storage) -> None:
    writers, each = 8, 20
    is_over = threading.Event()

    def write(writer: int) -> None:
        for number in range(each):
            (storage, other)[writer % 2].event_log.append([event(number, f"w{writer}")])

    def follow() -> list[Event]:
        found, after = [], ""
        while True:
            is_last = is_over.is_set()
            page = other.event_log.read(after, 3)
            found += [one for _, one in page]
            after = page[-1][0] if page else after
            if is_last and not page:
                return found

    with ThreadPoolExecutor(writers + 1) as threads:
        followed = threads.submit(follow)
        list(threads.map(write, range(writers)))
        is_over.set()
    found = followed.result()
    assert len(found) == writers * each
    for writer in range(writers):
        told = [one for one in found if one.routing_key.startswith(f"primary.w{writer}.")]
        assert told == [event(number, f"w{writer}") for number in range(each)]


def test_what_is_older_is_forgotten(storage: Storage, other: Storage, backend: Backend) -> None:
    for number in range(3):
        backend.clock.advance(HOUR)
        storage.event_log.append([event(number)])
    (first, _), *_ = storage.event_log.read("", 1)
    newest = backend.clock.now()
    for _ in range(2):
        other.event_log.trim(newest - HOUR / 2)
        assert everything(storage) == everything(storage, first) == [event(2)]
    other.event_log.trim(newest + HOUR)
    assert everything(storage) == []


def test_a_log_that_is_trimmed_goes_on(storage: Storage, other: Storage, backend: Backend) -> None:
    storage.event_log.append([event(number) for number in range(250)])
    last = storage.event_log.last()
    backend.clock.advance(HOUR)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda one: one.event_log.trim(backend.clock.now()), (storage, other)))
    assert everything(storage) == []
    assert storage.event_log.last() == last
    other.event_log.append([event(250)])
    assert everything(storage, last) == everything(storage) == [event(250)]
