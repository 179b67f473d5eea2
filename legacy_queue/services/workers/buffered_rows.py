"""Buffers changes to the rows of workers and clients. Calls change them at once, or a little later.

If a buffered change cannot be written, no call fails. In the original queue, such an error made claims fail
that had already been stored.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial, reduce
from threading import Lock
from typing import Generic, TypeVar

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.stores import AnyRow, WorkerStore
from legacy_queue.stores.lru_cache import SharedLruCache

log = structlog.get_logger()

_MAX_ATTEMPTS = 10
_MAX_AGE = timedelta(seconds=5)  # how old the row may be that a call reads
_MAX_CACHED = 10_000  # rows in the cache
_MAX_NOTED = 1000  # buffered changes of a row

Key = TypeVar("Key")


class BufferedRows(Generic[Key, AnyRow]):
    """Collects the changes that calls ``note``. ``flush`` writes all changes of a row in one write."""

    def __init__(
        self,
        load: Callable[[Key], AnyRow | None],
        new: Callable[[Key, datetime], AnyRow],
        store: WorkerStore,
        clock: Clock,
    ) -> None:
        self._load = load
        self._new = new
        self._store = store
        self._clock = clock
        self._noted: dict[Key, list[Callable[[AnyRow], AnyRow]]] = {}
        self._lock = Lock()
        self._writes = Lock()
        # the last known row, and when it was read or written
        self._cached: SharedLruCache[Key, tuple[AnyRow | None, timedelta]] = SharedLruCache(_MAX_CACHED)

    def note(self, key: Key, change: Callable[[AnyRow], AnyRow]) -> None:
        """Keep the change until ``flush`` writes it."""
        with self._lock:
            self._noted.setdefault(key, []).append(change)

    def flush(self) -> None:
        """Write the noted changes. Raises nothing: while storage is away, the changes are kept."""
        with self._writes:
            with self._lock:
                noted = self._noted
                self._noted = {}
            for key, changes in noted.items():
                self._write(key, changes)

    def _write(self, key: Key, changes: list[Callable[[AnyRow], AnyRow]]) -> None:
        try:
            self.change(key, partial(reduce, lambda row, change: change(row), changes))
        except Corrupt:
            pass  # the row is logged
        except ServiceUnavailable as error:
            if len(changes) > _MAX_NOTED:
                log.warning("worker-not-recorded", path=_path(key), why=error.message)
                return
            with self._lock:
                self._noted[key] = [*changes, *self._noted.get(key, ())]
        except Exception:
            log.exception("worker-not-recorded", path=_path(key))

    def cached(self, key: Key) -> AnyRow | None:
        """Returns the row as this process last wrote or read it."""
        row, _ = self._cached.get(key) or (None, None)
        return row

    def recent(self, key: Key) -> AnyRow | None:
        """Returns the row as it was at most five seconds ago. Raises ServiceUnavailable."""
        now = self._clock.monotonic()
        row, known_at = self._cached.get(key) or (None, None)
        if known_at is None or now - known_at >= _MAX_AGE:
            row = None
            with suppress(Corrupt):  # the row is logged and left as it is
                row = self._load(key)
            self._cached.put(key, (row, now))
        return row

    def change(self, key: Key, change: Callable[[AnyRow], AnyRow]) -> AnyRow:
        """Store the changed row at once, even if the record is unknown or expired.

        A cached row is not read again: if it is outdated, the write fails. Raises ServiceUnavailable,
        Corrupt.
        """
        now = self._clock.now()
        stored = self.cached(key)
        for _ in range(_MAX_ATTEMPTS):
            stored = stored or self._load(key)
            row = change(stored or self._new(key, now))
            try:
                if row != stored:
                    row = self._store.replace(row) if stored else self._store.insert(row)
            except (AlreadyExists, Changed):
                stored = None
                continue
            self._cached.put(key, (row, self._clock.monotonic()))
            return row
        raise ServiceUnavailable(f"{_path(key)} is being changed by many callers, try again")


def _path(key: object) -> str:
    return "/".join(key) if isinstance(key, tuple) else str(key)
