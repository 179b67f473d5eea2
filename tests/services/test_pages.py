"""Pages: bounded in items, in bytes, and in the memory that all of them have together."""

import threading
from collections.abc import Sequence
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.services.pages import MAX_ITEM_BYTES, MAX_PAGE_BYTES, PageMemory, read_page

KIB = 1024


def numbers(count: int) -> list[int]:
    return list(range(1, count + 1))


def filled(sizes: list[int | None], limit: int = 1000, at_once: int = 1) -> tuple[list[int], int | None, int]:
    """The sizes of a page's items, the number of the row that it goes on behind, how many were rendered."""
    rendered = []

    def render(row: int) -> bytes | None:
        rendered.append(row)
        size = sizes[row - 1]
        return None if size is None else bytes(size)

    rows = numbers(len(sizes))
    page = read_page(lambda after, count: rows[after : after + count], int, 0, limit, render, at_once)
    return [len(item) for item in page.items], page.after, len(rendered)


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_page_ends_at_its_limit_and_goes_on_only_where_a_row_follows(at_once: int) -> None:
    assert filled([1] * 5, 4, at_once) == ([1] * 4, 4, 4)
    assert filled([1] * 5, 5, at_once) == ([1] * 5, None, 5)
    assert filled([1] * 5, 6, at_once) == ([1] * 5, None, 5)
    assert filled([], 1, at_once) == ([], None, 0)


def test_rows_without_an_item_count_and_are_left_out() -> None:
    assert filled([None, 1, None, 1], 3) == ([1], 3, 3)
    assert filled([None] * 4, 4) == ([], None, 4)


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_page_of_large_items_ends_before_one_that_may_be_too_much(at_once: int) -> None:
    """Of items of one size, none is rendered in vain."""
    sizes: list[int | None] = [900 * KIB] * 100
    assert filled(sizes, 1000, at_once) == ([900 * KIB] * 4, 4, 4)
    assert filled(sizes[:4], 1000, at_once) == ([900 * KIB] * 4, None, 4)


def test_items_that_were_rendered_for_a_page_that_is_full_are_on_the_next() -> None:
    assert filled([1100 * KIB] * 10, 1000, at_once=4) == ([1100 * KIB] * 3, 3, 4)


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_page_never_has_more_than_one_item_too_much(at_once: int) -> None:
    small: list[int | None] = [KIB] * (4 * KIB - 1)
    found, after, _ = filled([*small, MAX_ITEM_BYTES, 1], 10_000, at_once)
    assert sum(found) <= MAX_PAGE_BYTES + MAX_ITEM_BYTES
    assert after == 4 * KIB


def test_an_item_that_is_too_large_by_itself_is_a_page() -> None:
    assert filled([2 * MAX_PAGE_BYTES, 1]) == ([2 * MAX_PAGE_BYTES], 1, 1)


@pytest.mark.parametrize(
    ("limit", "rows", "asked"),
    [
        (1, 1000, [(0, 2)]),
        (99, 1000, [(0, 100)]),
        (100, 1000, [(0, 100), (100, 1)]),
        (250, 1000, [(0, 100), (100, 100), (200, 51)]),
        (1000, 130, [(0, 100), (100, 100)]),
    ],
)
def test_rows_are_asked_for_up_to_one_further_than_the_limit_or_to_their_end(
    limit: int, rows: int, asked: list[tuple[int, int]]
) -> None:
    counts = []

    def ask(after: int, count: int) -> Sequence[int]:
        counts.append((after, count))
        return numbers(rows)[after : after + count]

    page = read_page(ask, int, 0, limit, lambda _: b"")
    assert (len(page.items), page.after) == ((limit, limit) if limit < rows else (rows, None))
    assert counts == asked


def test_rows_are_asked_for_as_they_are_needed() -> None:
    asked = []

    def ask(after: int, count: int) -> Sequence[int]:
        asked.append(after)
        return numbers(1000)[after : after + count]

    page = read_page(ask, int, 0, 1000, lambda _: bytes(MAX_ITEM_BYTES))
    assert page.after == 4
    assert asked == [0]


def test_a_row_that_cannot_be_rendered_fails_the_page() -> None:
    def render(_row: int) -> bytes:
        raise ServiceUnavailable("storage is away")

    with pytest.raises(ServiceUnavailable):
        read_page(lambda _after, _count: numbers(9), int, 0, 9, render, 4)


def test_as_many_pages_are_in_memory_as_have_40_mib() -> None:
    memory = PageMemory(timedelta(0))
    pages = [memory.acquire() for _ in range(8)]
    with pytest.raises(ServiceUnavailable, match="large lists"):
        memory.acquire()
    pages[0].release()
    pages[0].release()  # safe to repeat
    memory.acquire()
    with pytest.raises(ServiceUnavailable):
        memory.acquire()


def test_a_page_has_only_the_memory_that_it_needs() -> None:
    memory = PageMemory(timedelta(0))
    held = [memory.acquire() for _ in range(8)]
    for page in held:
        page.keep(1000)
        page.keep(2 * MAX_PAGE_BYTES)
    more = [memory.acquire() for _ in range(7)]
    with pytest.raises(ServiceUnavailable):
        memory.acquire()
    for page in (*held, *more):
        page.release()
    assert len([memory.acquire() for _ in range(8)]) == 8


def test_who_waits_for_memory_gets_it_in_turn() -> None:
    memory = PageMemory(timedelta(seconds=60))
    held = [memory.acquire() for _ in range(8)]
    turns: list[int] = []

    def wait(number: int) -> None:
        page = memory.acquire()
        turns.append(number)
        page.release()

    waiting = []
    for number in range(4):
        waiting.append(threading.Thread(target=wait, args=[number]))
        waiting[-1].start()
        while len(memory._line) <= number:
            threading.Event().wait(0.001)
    assert turns == []
    held[0].release()
    for thread in waiting:
        thread.join(60)
    assert turns == [0, 1, 2, 3]


def test_who_gives_up_is_in_nobodys_way() -> None:
    memory = PageMemory(timedelta(0))
    held = [memory.acquire() for _ in range(8)]
    with pytest.raises(ServiceUnavailable):
        memory.acquire()
    held[0].release()
    assert memory.acquire()
