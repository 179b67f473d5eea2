"""Rows in the order of their keys, each kept until a time of its own."""

import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from threading import RLock
from typing import Generic, TypeVar

from legacy_queue.ports import Expiring

Key = tuple[str, str]  # partition and row, as in Azure
Row = TypeVar("Row")


class MemoryTable(Expiring, Generic[Row]):
    """Hold ``lock`` for as long as several steps must see the same rows."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._rows: dict[Key, tuple[Row, datetime]] = {}
        self._keys: list[Key] = []

    def get(self, key: Key) -> Row | None:
        row, _ = self._rows.get(key, (None, None))
        return row

    def put(self, key: Key, row: Row, expires: datetime) -> None:
        """Keep the row, in the place of the one that is there."""
        with self.lock:
            if key not in self._rows:
                insort(self._keys, key)
            self._rows[key] = (row, expires)

    def remove(self, key: Key) -> None:
        """Forget the row if it is there."""
        with self.lock:
            if self._rows.pop(key, None):
                del self._keys[bisect_left(self._keys, key)]

    def after(self, key: Key, partition: str | None = None) -> Iterator[Row]:
        """The rows with a greater key, of that partition or of all; for whoever holds the lock."""
        for found in self._keys_after(key):
            if partition is not None and found[0] != partition:
                return
            yield self._rows[found][0]

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        first, second = json.loads(after) if after else ("", "")
        with self.lock:
            keys = (key for key in self._keys_after((first, second)) if self._rows[key][1] < now)
            expired = list(islice(keys, limit))
            for key in expired:
                self.remove(key)
        return json.dumps(expired[-1]) if len(expired) == limit else None

    def _keys_after(self, key: Key) -> Iterator[Key]:
        for index in range(bisect_right(self._keys, key), len(self._keys)):
            yield self._keys[index]
