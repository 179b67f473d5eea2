"""The connection of this process to the file, or to its memory.

A process has one connection, and all its greenlets and threads share it. So they also share what belongs to a
connection: the open transaction, and the prepared statements, which sqlite3 caches and reuses for the same
text. If one of them used the connection while another is using it, it would write into the other's
transaction, or take away rows that the other has not fetched yet. ``Database._lock`` prevents that, and
nothing else does. Each use holds the lock from its first statement until it has fetched its last row, and no
cursor is used outside of it.

Most operations are one statement. SQLite makes a single statement a transaction; a BEGIN and a COMMIT around
it would double its cost. Several processes can share a file, but only one writes at a time. The others wait
and try again here, so that their other greenlets go on. SQLite's own wait is in C and would stop them all.

What is ugly, and why it stays: SQLite runs in the thread of the event loop, so a long statement stops
everything. A thread for each statement would cost more than most statements do. So every statement is short
(a page reads at most 250 rows), and long work has its own connection and thread: see ``maintenance``.
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
# after this many operations other greenlets may run, as they would during a request to Azure
_YIELD_AFTER = 16
_REMOVE_AFTER = 256  # after this many changes in memory, expired rows are removed


class Database:
    """The database in a file. If ``file`` is None, it is in the memory of this process.

    The connection is made at the first use, and again after a fork, because processes cannot share one.
    Greenlets do not switch within a statement or a transaction. Every method may raise ServiceUnavailable.
    """

    def __init__(
        self,
        file: StorageFile | None,
        clock: Clock,
        waiter: Waiter,
        synchronous: str = "normal",
        observe: Observe = ignore,
    ) -> None:
        """``synchronous`` is SQLite's setting: full syncs each transaction, normal syncs each checkpoint.

        Raises UnusableStorage.
        """
        self.file = file
        # made before the fork, so that all processes compare with the same files
        self._watch = FileWatch(file.path, file.wal, file.shared_memory) if file else None
        self._clock = clock
        self.waiter = waiter
        self._synchronous = synchronous
        self._observe = observe
        # held during each use of the connection and its cached statements; nothing else makes that safe
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._maintenance: Maintenance | None = None
        self._is_closed = False
        self._operations = 0
        self._changes = 0
        self._last_rank = 0

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement and return its rows."""
        return self._run(lambda connection: connection.execute(sql, values).fetchall())

    def read(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return the result of ``work``, which must change nothing."""
        return self._run(work)

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, without a BEGIN, which would double its cost. Returns how many rows it changed."""
        self._before_change()
        return self._run(lambda connection: connection.execute(sql, values).rowcount)

    def change_rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement that changes rows, and return what it says about them (RETURNING)."""
        self._before_change()
        return self.rows(sql, values)

    def transaction(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Return the result of ``work``, which runs in a transaction. An error undoes it.

        While another process writes, ``work`` is tried again.
        """
        self._before_change()
        return self._run(lambda connection: in_transaction(connection, work))

    def rank(self, count: int = 1) -> int:
        """Return the first of ``count`` new numbers.

        They always grow within a process. Across processes they grow about as the clocks of these do.
        """
        first = max(self._last_rank + 1, time.time_ns())
        self._last_rank = first + count - 1
        return first

    def version(self) -> int:
        """Return a number that changes when another connection changes the file."""
        return int(self.rows("PRAGMA data_version")[0][0])

    def check(self) -> None:
        """Return if the file is still in its place and can be written."""
        if self._watch:
            self._watch.is_unchanged()
        self.change("INSERT OR REPLACE INTO meta VALUES ('checked', ?)", [self.rank()])

    def close(self) -> None:
        """Close the connection. After this every method raises ServiceUnavailable. Safe to repeat."""
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
                    raise ServiceUnavailable("the storage file was removed")
                with ExitStack() as undo:
                    connection = self._connect(undo)
                    if self.file and self._watch:
                        # connect here, after the check: later, its thread could create a WAL that was removed
                        self._maintenance = Maintenance(
                            self.file, self._watch, self._clock, self.waiter, self._connect(undo)
                        )
                    else:
                        create_tables(connection)
                    undo.pop_all()
                # not at exit, because a fork must not close what its parent has opened
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
        if not self._changes % _REMOVE_AFTER:  # in memory nothing else removes expired rows
            now = self._clock.now()
            wall = self._clock.wall_time()
            self._run(lambda connection: in_transaction(connection, lambda db: remove_expired(db, now, wall)))
