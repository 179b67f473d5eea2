"""The connection of this process to the file, or to its memory.

A process has one connection, and its greenlets and threads share it. So they share what belongs to a
connection: the open transaction, and the prepared statements, which sqlite3 keeps and hands out again for the
same text. A second use in the midst of a first would write into the other's transaction, or take away the
rows that the other has yet to fetch. Only ``Database._lock`` makes it safe: each use holds it from its first
statement until it has fetched its last row, and no cursor leaves it.

Most operations are one statement. SQLite makes that a transaction of its own; a BEGIN and a COMMIT around it
would cost as much again. Several processes share a file, and one of them writes at a time: the others wait
here and try again, so that their other greenlets go on. SQLite's own wait would be in C, and stop them all.

What is ugly, and stays: SQLite works in the thread of the event loop, so a long statement stops everything. A
thread for each statement would cost more than most statements do. So every statement is short (a page reads
250 rows at most), and what takes long has a connection and a thread of its own: see ``maintenance``.
"""

import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Any, TypeVar

import structlog

from legacy_queue.adapters.embedded.file_watch import FileWatch
from legacy_queue.adapters.embedded.maintenance import Maintenance, remove_expired
from legacy_queue.adapters.embedded.sqlite_connection import (
    connect,
    create_tables,
    error_code,
    error_name,
    in_transaction,
)
from legacy_queue.adapters.embedded.storage_file import StorageFile
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import Clock, Observe, Waiter, ignore

log = structlog.get_logger()

Result = TypeVar("Result")

_BUSY_TIMEOUT = 5.0  # seconds, while another process writes
_BUSY_PAUSE = 0.0005  # seconds
_YIELD_AFTER = 16  # operations: then other greenlets run, as they would during a request to Azure
_REMOVE_AFTER = 256  # changes in memory: then what has expired is removed


class Database:
    """A file, or with None the memory of this process.

    The connection is made on first use, and again after a fork: two processes cannot share one. No greenlet
    switches within a statement or a transaction. Every method may raise ServiceUnavailable.
    """

    def __init__(
        self,
        file: StorageFile | None,
        clock: Clock,
        waiter: Waiter,
        synchronous: str = "normal",
        observe: Observe = ignore,
    ) -> None:
        """``synchronous`` is SQLite's: full syncs each transaction, normal each checkpoint.

        Raises UnusableStorage.
        """
        self.file = file
        # before a fork
        self._watch = FileWatch(file.path, file.wal, file.shared_memory) if file else None
        self._clock = clock
        self.waiter = waiter
        self._synchronous = synchronous
        self._observe = observe
        # held during each use of the connection and of its cached statements: nothing else makes that safe
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._maintenance: Maintenance | None = None
        self._is_closed = False
        self._operations = 0
        self._changes = 0
        self._last_rank = 0

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """What the statement returns."""
        return self._run(lambda connection: connection.execute(sql, values).fetchall())

    def read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """The result of ``work``, which changes nothing."""
        return self._run(work)

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """How many rows the statement changed. It needs no BEGIN, which would cost as much again."""
        self._before_change()
        return self._run(lambda connection: connection.execute(sql, values).rowcount)

    def change_rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """What the statement returns of the rows that it changed."""
        self._before_change()
        return self.rows(sql, values)

    def transaction(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """The result of ``work``; what it raises undoes it. It is repeated while another process writes."""
        self._before_change()
        return self._run(lambda connection: in_transaction(connection, work))

    def rank(self, count: int = 1) -> int:
        """The first of ``count`` new numbers. They grow; between processes about as their clocks do."""
        first = max(self._last_rank + 1, time.time_ns())
        self._last_rank = first + count - 1
        return first

    def version(self) -> int:
        """Differs once another connection has changed the file."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def check(self) -> None:
        """Return if the file is in its place and can be written."""
        if self._watch:
            self._watch.is_unchanged()
        self.change("INSERT OR REPLACE INTO meta VALUES ('checked', ?)", [self.rank()])

    def close(self) -> None:
        """From now on every method raises ServiceUnavailable. Safe to repeat."""
        self._is_closed = True
        if self._connection and self._pid == os.getpid():
            if self._maintenance:
                self._maintenance.stop()
            with self._lock:
                self._connection.close()
        self._connection = None

    def _run(self, act: Callable[[sqlite3.Connection], Result]) -> Result:
        self._operations += 1
        if not self._operations % _YIELD_AFTER:
            self.waiter.sleep(0)
        begun = time.perf_counter()
        is_answered = True
        try:
            while True:
                try:
                    connection = self._connection if self._pid == os.getpid() else self._open()
                    if self._is_closed or connection is None:
                        raise ServiceUnavailable("storage is closed, try again")
                    with self._lock:
                        return act(connection)
                except sqlite3.Error as error:
                    code = error_code(error)
                    if code == sqlite3.SQLITE_FULL and self._maintenance:
                        self._maintenance.free_space()
                    if code != sqlite3.SQLITE_BUSY or time.perf_counter() > begun + _BUSY_TIMEOUT:
                        log.error("storage-failed", error=error_name(error))
                        raise ServiceUnavailable(
                            "storage cannot be read or written now, try again"
                        ) from error
                self.waiter.sleep(_BUSY_PAUSE)
        except ServiceUnavailable:
            is_answered = False
            raise
        finally:
            self._observe("file", time.perf_counter() - begun, is_answered)

    def _open(self) -> sqlite3.Connection | None:
        with self._lock:
            if self._pid != os.getpid() and not self._is_closed:
                if self._watch and not self._watch.is_unchanged():
                    raise ServiceUnavailable("the file of the storage was removed")
                with ExitStack() as undo:
                    connection = self._connect(undo)
                    if self.file and self._watch:
                        # connected here, behind that check: its thread might make a removed WAL anew
                        self._maintenance = Maintenance(
                            self.file, self._watch, self._clock, self.waiter, self._connect(undo)
                        )
                    else:
                        create_tables(connection)
                    undo.pop_all()
                # not at exit: a fork must not close what its parent has opened
                weakref.finalize(self, connection.close).atexit = False
                self._connection = connection
                self._pid = os.getpid()
            return self._connection

    def _connect(self, undo: ExitStack) -> sqlite3.Connection:
        connection = connect(self.file.path if self.file else None, self._synchronous)
        undo.callback(connection.close)
        return connection

    def _before_change(self) -> None:
        if self._maintenance:
            self._maintenance.before_change()
        if self.file:
            return
        self._changes += 1
        if not self._changes % _REMOVE_AFTER:  # nothing else removes what has expired
            now = self._clock.now()
            wall = self._clock.wall_time()
            self._run(lambda connection: in_transaction(connection, lambda db: remove_expired(db, now, wall)))
