"""A connection to the file or to memory, and its tables."""

import errno
import os
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from legacy_queue.adapters.embedded.schema import ADDED, APPLICATION_ID, FIRST_VERSION, STEPS, TABLES

Result = TypeVar("Result")

_PAGE_SIZE = 2048  # bytes: a change writes whole pages
_CACHE = 16_000  # KiB
VERSION = FIRST_VERSION + len(STEPS)  # of the tables, in the header of the file
_READ_TIMEOUT = 5.0  # seconds, while another process recovers the WAL


def connect(path: Path | None, synchronous: str = "normal", busy_timeout: int = 0) -> sqlite3.Connection:
    """A connection to an existing file, or with None to new memory; raises sqlite3.Error.

    ``path`` is absolute. ``synchronous`` is SQLite's. ``busy_timeout`` is in milliseconds: the connection of
    the loop must not wait.
    """
    name = f"{_url(path)}?mode=rw" if path else ":memory:"
    connection = sqlite3.connect(
        name, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        connection.execute("PRAGMA busy_timeout = 5000")
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        for pragma in (
            # These are for a new file. In any other they change nothing, but auto_vacuum writes: on a full
            # disk there would be no connection, and so no reads.
            *(() if pages else (f"page_size = {_PAGE_SIZE}", "auto_vacuum = INCREMENTAL")),
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            f"cache_size = -{_CACHE}",
            "secure_delete = OFF",  # Debian's default writes zeros over all that is deleted
            "wal_autocheckpoint = 0",  # Maintenance does it, outside of the loop
            f"busy_timeout = {busy_timeout}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def read_only(path: Path, *, alone: bool = False) -> sqlite3.Connection:
    """A connection that changes neither file nor WAL; raises sqlite3.Error.

    ``alone``: it reads the file without the WAL, and makes nothing beside it.
    """
    name = f"{_url(path)}?mode=ro{'&immutable=1' if alone else ''}"
    return sqlite3.connect(name, timeout=_READ_TIMEOUT, uri=True)


def _url(path: Path) -> str:
    return f"file://{quote(os.fsencode(path))}"


def create_tables(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Create the tables and the signing key, or bring the tables of an earlier version forward by ``steps``.

    All or nothing. Raises sqlite3.Error.
    """
    version = version_of(connection)
    newest = FIRST_VERSION + len(steps)
    if version == newest:
        connection.executescript(ADDED)
        return
    if version:
        script = "".join(steps[version - FIRST_VERSION :])
    else:
        script = f"{TABLES} INSERT INTO meta VALUES ('signing key', x'{secrets.token_hex(64)}');"
    connection.executescript(
        f"BEGIN IMMEDIATE; {script} {ADDED} PRAGMA application_id = {APPLICATION_ID};"
        f"PRAGMA user_version = {newest}; COMMIT"
    )


def version_of(connection: sqlite3.Connection) -> int:
    """The version of its tables; 0 where there are none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def error_code(error: Exception) -> int:
    """SQLite's primary code; 0 for another error."""
    return int(getattr(error, "sqlite_errorcode", 0) & 0xFF)


def error_name(error: Exception) -> str:
    """For the log: the message may hold what a user has sent."""
    name = errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)
    return str(getattr(error, "sqlite_errorname", name))


def in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Result]) -> Result:
    """The result of ``work``, in one transaction: what it raises undoes it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has undone it already
            connection.execute("ROLLBACK")
        raise
    return result
