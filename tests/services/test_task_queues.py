"""The tasks and messages of a task queue: counted, listed and searched."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.ports.queue import MAX_COUNT
from legacy_queue.services.inspection.peeking import Peeking
from legacy_queue.services.pagination import MAX_PAGE_BYTES, read_page, read_rows
from legacy_queue.services.services import Services
from legacy_queue.services.tasks import listing
from legacy_queue.services.tasks.listing import Wanted
from legacy_queue.services.tasks.task_queues import MAX_AGE
from tests.domain.sample_tasks import HOUR, MINUTE, MS, NOW, SECOND, task_body
from tests.services.harness import HIGH, PROVISIONER, QUEUE, WORKER_TYPE, Harness

POOL = f"{PROVISIONER}/{WORKER_TYPE}"


class Reading:
    """Counts the reads of pages of tasks.

    Each read waits for ``go_on``, then raises ``error`` if it is set.
    """

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.on_read: Callable[[], object] = lambda: None

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if name != "read_into":
            return call()
        self.count += 1
        self.begun.set()
        assert self.go_on.wait(30)
        self.on_read()
        if self.error:
            raise self.error
        return call()


def counts(services: Services) -> tuple[int, int]:
    return services.task_queues.counts([POOL])[0]


def test_the_counts_show_changes_of_this_process_immediately_and_without_a_read() -> None:
    """Held messages, duplicates and waiting dependents are not counted."""
    harness, reading = Harness(), Reading()
    services = harness.replica(reading, caches_tasks=True)
    assert counts(services) == (0, 0)
    first, second, third = (slugid() for _ in range(3))
    for task_id, more in ((first, {}), (second, {"priority": "high"}), (third, {"dependencies": [first]})):
        services.tasks.create(task_id, task_body(harness.clock.now(), **more))
    assert counts(services) == (2, 0)
    harness.storage.work_queues.put(QUEUE, harness.messages()[0].text, HOUR, 0 * SECOND)
    message = next(message for message in harness.receive() if message.task_id == first)
    harness.claim(message, services=services)
    assert counts(services) == (1, 1)
    services.tasks.report(first, 0, "exception", "worker-shutdown")
    assert counts(services) == (2, 0)
    services.tasks.cancel(second)
    assert counts(services) == (1, 0)
    services.tasks.cancel(first)
    assert counts(services) == (0, 0)
    services.tasks.schedule(third)
    assert counts(services) == (1, 0)
    assert reading.count == 1


def test_a_process_that_is_alone_knows_all_counts_without_a_read(harness: Harness) -> None:
    queues = harness.services.task_queues
    assert queues.known_counts(is_alone=True) is None
    queues.open_counts()
    harness.create()
    assert queues.known_counts(is_alone=False) == queues.open_counts()
    harness.clock.advance(MAX_AGE)
    assert queues.known_counts(is_alone=False) is None
    known = queues.known_counts(is_alone=True) or {}
    assert {key: value.count for key, value in known.items()} == {(POOL, "lowest", "pending"): 1}


def test_the_counts_show_changes_of_other_processes_after_2_seconds() -> None:
    harness, reading = Harness(), Reading()
    services = harness.replica(reading, caches_tasks=True)
    assert counts(services) == (0, 0)
    harness.services.tasks.create(slugid(), task_body())
    harness.clock.advance(MAX_AGE - MS)
    assert (counts(services), reading.count) == ((0, 0), 1)
    harness.clock.advance(MS)
    assert (counts(services), reading.count) == ((1, 0), 2)


def test_a_process_spends_at_most_a_quarter_of_its_time_on_reading_tasks() -> None:
    harness, reading = Harness(), Reading()
    services = harness.replica(reading, caches_tasks=True)
    reading.on_read = lambda: harness.clock.advance(5 * SECOND)
    for passed, expected in ((0, 1), (14_999, 1), (1, 2)):
        harness.clock.advance(passed * MS)
        counts(services)
        assert reading.count == expected


def test_concurrent_calls_share_one_reading_or_its_error() -> None:
    harness, reading = Harness(), Reading()
    harness.create()
    for error in (ServiceUnavailable("storage is away"), None):
        services = harness.replica(reading, caches_tasks=True)
        reading.error = error
        reading.go_on.clear()
        reading.begun.clear()
        with ThreadPoolExecutor(5) as threads:
            asked = [threads.submit(counts, services)]
            assert reading.begun.wait(30)
            asked += [threads.submit(counts, services) for _ in range(4)]
            reading.go_on.set()
        assert type(error) in {type(call.exception()) for call in asked}
        reading.error = None
        assert counts(services) == (1, 0)


COUNTED = """
from gevent import monkey
monkey.patch_all()
import gevent, itertools, os
from gevent.socket import wait_read
from legacy_queue.services.tasks.listing import Wanted
from tests.services.harness import Harness

many, large = Harness(), Harness()
for _ in range(600):
    many.create()
GROUP = "VLdaX5vAQ0iW8JIr3sGQZw"
for _ in range(12):
    large.create(taskGroupId=GROUP, payload={"log": "x" * 200_000})
turns = itertools.count(0)
end, other_end = os.pipe()

def go_on():
    while True:  # as a request does that waits for its client
        os.write(other_end, b"!")
        wait_read(end)
        os.read(end, 1)
        next(turns)

gevent.spawn(go_on)
POOL = "provisioner/worker-Type_1"
for harness, read in (
    (many, lambda services: services.task_queues.counts([POOL])),
    (many, lambda services: services.task_queues.open_counts()),
    (many, lambda services: services.task_queues.tasks(POOL, "pending", "", 600, lambda task: b"1")),
    (large, lambda services: services.task_queues.tasks(POOL, "pending", "", 12, lambda task: b"1")),
    (large, lambda services: services.listing.search(Wanted(), "", 12, lambda task: b"1")),
    (large, lambda services: services.listing.search(Wanted(group_id=GROUP), "", 12, lambda task: b"1")),
):
    before = next(turns)
    read(harness.replica())
    print(next(turns) - before - 1)
"""


@pytest.mark.processes
def test_other_requests_are_answered_while_rows_are_read() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    assert all(int(turns) >= 5 for turns in ran.stdout.split()), ran.stdout


# lists: their pages are limited in items and in bytes, a search finds tasks by words, listing leaves messages
# unread

KIB = 1024


def numbers(count: int) -> list[int]:
    return list(range(1, count + 1))


def filled(
    sizes: list[int | None], limit: int = 1000, concurrency: int = 1
) -> tuple[list[int], int | None, int]:
    """The sizes of a page's items, the row behind which the next page begins, and how many rows were read."""
    rendered = []

    def render(row: int) -> bytes | None:
        rendered.append(row)
        size = sizes[row - 1]
        return None if size is None else bytes(size)

    rows = numbers(len(sizes))
    page = read_page(lambda after, count: rows[after : after + count], int, 0, limit, render, concurrency)
    return [len(item) for item in page.items], page.after, len(rendered)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_page_exceeds_its_size_limit_by_at_most_one_item(concurrency: int) -> None:
    small: list[int | None] = [KIB] * (4 * KIB - 1)
    sizes, after, _ = filled([*small, 1024 * KIB, 1], 10_000, concurrency)
    assert sum(sizes) <= MAX_PAGE_BYTES + 1024 * KIB
    assert after == 4 * KIB


def test_at_most_eight_pages_are_read_at_once() -> None:
    eight, nine = threading.Barrier(8), threading.Barrier(9)
    met: list[int] = []

    def render(_: int) -> bytes:
        eight.wait(30)
        with suppress(threading.BrokenBarrierError):
            met.append(nine.wait(0.2))
        return b""

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda _: read_page(lambda *_: [1], int, 0, 1, render), range(16)))
    assert met == []


def test_items_that_did_not_fit_on_a_page_are_on_the_next() -> None:
    assert filled([1100 * KIB] * 10, 1000, concurrency=4) == ([1100 * KIB] * 3, 3, 4)


def test_no_more_rows_than_the_limit_are_read() -> None:
    found = read_rows(lambda after, count: numbers(1000)[after : after + count], int, 0, 150)
    assert list(found) == numbers(150)


def named(harness: Harness, name: str, **changes: str) -> str:
    metadata = {**task_body(NOW)["metadata"], "name": name}
    return harness.create(metadata=metadata, **changes)


def search(
    harness: Harness, *words: str, limit: int = 50, after: str = "", **wanted: str
) -> tuple[list[str], str | None]:
    found = Wanted(words=words, **wanted)
    page = harness.services.listing.search(found, after, limit, lambda task: task.task_id.encode())
    return [item.decode() for item in page.items], page.after


def test_a_task_is_found_by_state_worker_type_and_all_words(harness: Harness) -> None:
    build, test, other = (
        named(harness, "Build of Linux"),
        named(harness, "Test of linux"),
        named(harness, "Build of Linux", workerType="another"),
    )
    harness.services.tasks.cancel(test)
    assert search(harness, "LINUX", "build")[0] == [other, build]
    assert search(harness, "linux", state="unresolved", task_queue_id=POOL)[0] == [build]
    assert search(harness, state="exception")[0] == [test]
    assert search(harness, "linux", state="failed") == ([], None)
    assert search(harness, "linux", group_id=other) == ([other], None)
    assert search(harness, group_id=build, state="failed") == ([], None)


def test_a_search_that_stops_before_the_last_task_says_where_to_continue(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = named(harness, "needle")
    for _ in range(4):
        named(harness, "hay")
    monkeypatch.setattr(listing, "_MAX_TASKS", 2)
    found, after = search(harness, "needle", limit=1)
    while after is not None and not found:
        found, after = search(harness, "needle", limit=1, after=after)
    assert found == [old]
    monkeypatch.setattr(listing, "_MAX_READS", 1)
    assert search(harness, "needle", limit=1)[0] == []


def test_messages_of_all_priorities_are_shown_with_the_time_at_which_they_become_visible(
    harness: Harness,
) -> None:
    task_id = harness.create()
    harness.storage.work_queues.put(HIGH, "no work message", HOUR, 5 * MINUTE)
    harness.clock.advance(MINUTE)
    peeked = Peeking(harness.storage.work_queues, harness.clock).messages(PROVISIONER, WORKER_TYPE)
    assert [(message.priority, message.run, message.visible_in) for message in peeked.messages] == [
        ("high", None, 4 * MINUTE),
        ("lowest", (task_id, 0), 0 * MINUTE),
    ]
    assert [(message.dequeue_count, message.inserted) for message in peeked.messages] == [(0, NOW)] * 2
    assert peeked.hidden == 0


def test_if_a_queue_has_as_many_messages_as_can_be_shown_there_may_be_more(harness: Harness) -> None:
    for number in range(MAX_COUNT + 1):
        harness.storage.work_queues.put(QUEUE, str(number), HOUR, 0 * HOUR)
    peeked = Peeking(harness.storage.work_queues, harness.clock).messages(PROVISIONER, WORKER_TYPE)
    assert (len(peeked.messages), peeked.hidden) == (MAX_COUNT, 1)


def test_a_worker_gets_urls_of_all_queues_that_are_valid_from_15_minutes_ago_until_in_30_minutes(
    harness: Harness,
) -> None:
    """tests/stores shows that the URLs work."""
    answer = harness.services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "client")
    assert answer["expires"] == "2030-01-02T03:34:05.678Z"
    assert len(answer["queues"]) == len(PRIORITIES)
    for queue in answer["queues"]:
        query = parse_qs(urlsplit(queue["signedPollUrl"]).query)
        assert query["visibilitytimeout"] == ["300"]
        assert query["st"][0].startswith("2030-01-02T02:49:0")
        assert query["se"][0].startswith("2030-01-02T03:34:0")
