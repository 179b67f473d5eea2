"""An operation on embedded storage costs few rows and steps of SQLite, however much is stored."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.adapters.embedded import StorageFile
from legacy_queue.adapters.embedded.database import Database
from legacy_queue.adapters.embedded.embedded_queue import EmbeddedQueue
from legacy_queue.adapters.embedded.embedded_table import EmbeddedTable
from legacy_queue.adapters.embedded.sqlite_connection import connect
from legacy_queue.adapters.url_signer import UrlSigner
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports.account import SigningEndpoint
from legacy_queue.ports.table import KEY, PARTITION, Condition
from tests.domain.sample_tasks import HOUR, NOW
from tests.memory_server import FakeClock

MAX_STEPS, MAX_ROWS = 70_000, 1_000  # a few milliseconds on a slow machine
TENTHS = 10  # SQLite counts steps in tens

Act = Callable[[Database], object]


class CountingDatabase(Database):
    """Repeats each statement on a second connection, which counts the steps and the returned rows."""

    def __init__(self, file: StorageFile) -> None:
        super().__init__(file, FakeClock(NOW), SystemWaiter())
        self.steps = self.returned = 0
        self._counter = connect(file.path)
        self._counter.set_progress_handler(self._count, TENTHS)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        found = self._counter.execute(sql, values).fetchall()
        self.returned = max(self.returned, len(found))
        return found

    def read(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        found, is_end = work(self._counter)
        self.returned = max(self.returned, len(found))
        return found, is_end

    def _count(self) -> int:
        self.steps += TENTHS
        return 0

    def close(self) -> None:
        self._counter.close()
        super().close()


def queue(database: Database, name: str) -> EmbeddedQueue:
    return EmbeddedQueue(name, database, FakeClock(NOW), UrlSigner(SigningEndpoint("", "unused", "")))


def table(database: Database) -> EmbeddedTable:
    return EmbeddedTable(database, "t")


def where(name: str, operator: Any, value: Any) -> Condition:
    return Condition(name, operator, value)


def asked(*conditions: Condition, limit: int = 1000, properties: Sequence[str] | None = None) -> Act:
    return lambda db: table(db).page(conditions, "", limit, properties)


UNRESOLVED = where("state", "in", ("unscheduled", "pending", "running"))
EXPIRED = where("expires", "lt", NOW)
SOME_GROUP = where(PARTITION, "eq", "p00100")

# the queries of the stores
QUESTIONS: dict[str, Act] = {
    "the unresolved tasks": asked(UNRESOLVED),
    "ids of unresolved tasks": asked(where(PARTITION, "gt", "p00100"), UNRESOLVED, limit=9, properties=[]),
    "expired rows": asked(EXPIRED, properties=[]),
    "expired tasks": asked(EXPIRED, where("state", "in", ("failed", "barred")), properties=[]),
    "expired artifacts": asked(EXPIRED),
    "the rows of a partition": asked(SOME_GROUP, where(KEY, "gt", "a")),
    "the active members of all groups": asked(where(KEY, "gt", "active-"), where(KEY, "lt", "active.")),
    "an incomplete artifact": asked(SOME_GROUP, where("isComplete", "eq", False), limit=1),
    "the uses since then": asked(where("last", "ge", NOW)),
    "an empty queue": lambda db: queue(db, "empty").receive(32, HOUR),
    "a full queue": lambda db: queue(db, "full").receive(32, HOUR),
    "how many messages there are": lambda db: queue(db, "full").count(),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> StorageFile:
    """A file with 20,000 expired rows, every other one unresolved, and as many messages."""
    file = StorageFile(tmp_path_factory.mktemp("filled"))
    file.prepare()
    past, many = epoch_milliseconds(NOW - HOUR), range(20_000)
    content = json.dumps({"state": "spending", "expires": f"d{past}", "isComplete": True})
    with closing(connect(file.path)) as connection:
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO rows VALUES ('t', ?, 'task', ?, ?, 'e', ?)",
            [(f"p{number:05}", ("pending", None)[number % 2], past, content) for number in many],
        )
        connection.executemany("INSERT INTO queues VALUES (?, '{}')", [("empty",), ("full",)])
        connection.executemany(
            "INSERT INTO messages VALUES (?, 'full', 'r', 'text', 0, ?, ?, 0, ?)",
            [(f"m{number}", epoch_milliseconds(NOW + HOUR), past, number) for number in many],
        )
        connection.execute("COMMIT")
    return file


@pytest.fixture
def database(file: StorageFile) -> Iterator[CountingDatabase]:
    database = CountingDatabase(file)
    yield database
    database.close()


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_query_reads_more_than_a_page_of_rows(database: CountingDatabase, question: str) -> None:
    QUESTIONS[question](database)
    assert database.returned <= MAX_ROWS
    assert 0 < database.steps <= MAX_STEPS


def lengths(table: EmbeddedTable, conditions: Sequence[Condition], newest_first: bool = False) -> list[int]:
    """The number of rows on each page of the table."""
    found: list[int] = []
    after: str | None = ""
    while after is not None:
        page = table.page(conditions, after, 1000, newest_first=newest_first)
        found, after = [*found, len(page.rows)], page.after
    return found


def test_a_whole_table_is_read_in_many_short_pages(database: CountingDatabase) -> None:
    pages = lengths(table(database), [UNRESOLVED])
    assert (sum(pages), len(pages), database.returned) == (10_000, 41, 250)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_of_large_rows_ends_at_half_a_megabyte(newest_first: bool) -> None:
    large = EmbeddedTable(Database(None, FakeClock(NOW), SystemWaiter()), "t")
    for number in range(30):
        large.insert(f"p{number:02}", "task", {"state": "failed", "log": b"x" * 60 * 1024})
    pages = lengths(large, [where("state", "eq", "failed")], newest_first)
    assert (max(pages), sum(pages)) == (9, 30)


def test_an_idle_poll_writes_nothing(database: CountingDatabase) -> None:
    """If it wrote, it would wait for the lock that the other connection holds."""
    with closing(connect(database.file.path if database.file else None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert queue(database, "empty").receive(32, HOUR) == []
