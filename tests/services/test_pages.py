"""Pages: limited in items and in bytes, and a few at a time."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from legacy_queue.services.pages import MAX_ITEM_BYTES, MAX_PAGE_BYTES, Page, read_page, read_rows

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
