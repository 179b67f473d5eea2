"""What is listed: pages are limited in items and in bytes; tasks are found by words; messages stay unread."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from legacy_queue.ports.queue import MAX_COUNT
from legacy_queue.services.inspection.peeking import Peeking
from legacy_queue.services.pages import MAX_ITEM_BYTES, MAX_PAGE_BYTES, Page, read_page, read_rows
from legacy_queue.services.tasks import listing
from legacy_queue.services.tasks.listing import Wanted
from tests.domain.tasks import task_body
from tests.services.harness import HIGH, HOUR, MINUTE, NOW, PROVISIONER, WORKER_TYPE, Harness

KIB = 1024


def numbers(count: int) -> list[int]:
    return list(range(1, count + 1))


def filled(
    sizes: list[int | None], limit: int = 1000, concurrency: int = 1
) -> tuple[list[int], int | None, int]:
    """The sizes of a page's items, the row behind which the list continues, how many rows were rendered."""
    rendered = []

    def render(row: int) -> bytes | None:
        rendered.append(row)
        size = sizes[row - 1]
        return None if size is None else bytes(size)

    rows = numbers(len(sizes))
    page = read_page(lambda after, count: rows[after : after + count], int, 0, limit, render, concurrency)
    return [len(item) for item in page.items], page.after, len(rendered)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_page_exceeds_its_size_by_one_item_at_most(concurrency: int) -> None:
    small: list[int | None] = [KIB] * (4 * KIB - 1)
    sizes, after, _ = filled([*small, MAX_ITEM_BYTES, 1], 10_000, concurrency)
    assert sum(sizes) <= MAX_PAGE_BYTES + MAX_ITEM_BYTES
    assert after == 4 * KIB


def test_at_most_eight_pages_are_read_at_once() -> None:
    under_way: list[int] = []
    most = 0

    def render(row: int) -> bytes:
        nonlocal most
        under_way.append(row)
        most = max(most, len(under_way))
        time.sleep(0.01)
        under_way.pop()
        return b""

    def read(_: int) -> Page[int]:
        return read_page(lambda *_: [1], int, 0, 1, render)

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(read, range(40)))
    assert most == 8


def test_items_rendered_for_a_full_page_are_on_the_next_page() -> None:
    assert filled([1100 * KIB] * 10, 1000, concurrency=4) == ([1100 * KIB] * 3, 3, 4)


def test_no_more_rows_than_the_limit_are_read() -> None:
    found = read_rows(lambda after, count: numbers(1000)[after : after + count], int, 0, 150)
    assert list(found) == numbers(150)


# tasks that a person looks for: by state, pool and words of their names

POOL = f"{PROVISIONER}/{WORKER_TYPE}"


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


def test_a_search_that_ends_before_all_tasks_says_where_to_look_further(
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


# the messages of a pool, read without receiving them


def test_messages_of_all_priorities_are_shown_with_when_they_are_visible(harness: Harness) -> None:
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


def test_a_queue_with_as_many_messages_as_are_shown_may_have_more(harness: Harness) -> None:
    for _ in range(MAX_COUNT + 1):
        harness.create()
    peeked = Peeking(harness.storage.work_queues, harness.clock).messages(PROVISIONER, WORKER_TYPE)
    assert (len(peeked.messages), peeked.hidden) == (MAX_COUNT, 1)
