"""Opens a connection to the file or to memory, and creates its tables."""

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

_PAGE_SIZE = 2048  # bytes; small, because a change writes whole pages
_CACHE = 16_000  # KiB
VERSION = FIRST_VERSION + len(STEPS)  # the version of the tables, which is in the header of the file
_READ_TIMEOUT = 5.0  # seconds to wait while another process recovers the WAL


def connect(path: Path | None, synchronous: str = "normal", busy_timeout: int = 0) -> sqlite3.Connection:
    """Return a connection to an existing file, or to new memory if ``path`` is None. Raises sqlite3.Error.

    ``path`` is absolute. ``synchronous`` is SQLite's setting. ``busy_timeout`` is in milliseconds; it must be
    0 for the connection of the event loop, which must not wait.
    """
    name = f"{_url(path)}?mode=rw" if path else ":memory:"
    connection = sqlite3.connect(
        name, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        connection.execute("PRAGMA busy_timeout = 5000")
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        for pragma in (
            # These are for a new file only. In an existing file they have no effect, but auto_vacuum would
            # write. Then on a full disk there would be no connection, not even for reading.
            *(() if pages else (f"page_size = {_PAGE_SIZE}", "auto_vacuum = INCREMENTAL")),
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            f"cache_size = -{_CACHE}",
            "secure_delete = OFF",  # Debian's default would overwrite everything that is deleted with zeros
            "wal_autocheckpoint = 0",  # Maintenance makes the checkpoints, outside of the event loop
            f"busy_timeout = {busy_timeout}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def read_only(path: Path, *, alone: bool = False) -> sqlite3.Connection:
    """Return a connection that changes neither the file nor the WAL. Raises sqlite3.Error.

    With ``alone`` it reads the file without its WAL, and creates no other file.
    """
    name = f"{_url(path)}?mode=ro{'&immutable=1' if alone else ''}"
    return sqlite3.connect(name, timeout=_READ_TIMEOUT, uri=True)


def _url(path: Path) -> str:
    return f"file://{quote(os.fsencode(path))}"


def create_tables(connection: sqlite3.Connection, steps: Sequence[str] = STEPS) -> None:
    """Create tables and key, or migrate older tables by ``steps``: all or nothing. Raises sqlite3.Error."""
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
    """Return the version of the tables, or 0 if there are none."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def error_code(error: Exception) -> int:
    """Return SQLite's primary error code, or 0 for any other error."""
    return int(getattr(error, "sqlite_errorcode", 0) & 0xFF)


def error_name(error: Exception) -> str:
    """Return the name of the error for the log. Its message is not logged: it may quote what a user sent."""
    name = errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)
    return str(getattr(error, "sqlite_errorname", name))


def in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Result]) -> Result:
    """Return the result of ``work``, which runs in one transaction. An error undoes it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has undone it already
            connection.execute("ROLLBACK")
        raise
    return result
