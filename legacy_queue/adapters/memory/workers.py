"""Provisioners, worker types and workers."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice

from legacy_queue.adapters.memory.sorted_rows import Key, MemoryTable
from legacy_queue.domain.workers import Known, Path, parent_of
from legacy_queue.ports import AlreadyExists, Changed, StoredKnown, WorkerStore

_SEPARATOR = "!"  # before every character of an identifier, so that keys are in the order of the paths


class MemoryWorkerStore(WorkerStore):
    def __init__(self) -> None:
        self._table = MemoryTable[StoredKnown]()
        self._quarantines: dict[Path, datetime] = {}
        self._etags = map(str, itertools.count(1))

    def load(self, path: Path) -> StoredKnown | None:
        return self._table.get(_key(parent_of(path), path))

    def insert(self, known: Known) -> StoredKnown:
        with self._table.lock:
            if self.load(known.path):
                raise AlreadyExists
            return self._store(known)

    def replace(self, stored: StoredKnown, known: Known) -> StoredKnown:
        with self._table.lock:
            current = self.load(known.path)
            if current is None or current.etag != stored.etag:
                raise Changed
            return self._store(known)

    def list(self, parent: Path, after: Path, limit: int) -> Sequence[Known]:
        first = _key(parent, after)
        with self._table.lock:
            return [stored.known for stored in islice(self._table.after(first, first[0]), limit)]

    def quarantine(self, worker: Path, until: datetime) -> None:
        with self._table.lock:
            self._quarantines[worker] = until

    def quarantined(self) -> Mapping[Path, datetime]:
        with self._table.lock:
            return dict(self._quarantines)

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        with self._table.lock:
            self._quarantines = {path: until for path, until in self._quarantines.items() if until >= now}
        return self._table.remove_expired(now, after, limit)

    def _store(self, known: Known) -> StoredKnown:
        stored = StoredKnown(known, next(self._etags))
        self._table.put(_key(parent_of(known.path), known.path), stored, known.kept_until)
        return stored


def _key(parent: Path, path: Path) -> Key:
    return _SEPARATOR.join(parent), _SEPARATOR.join(path)
