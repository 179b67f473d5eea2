"""Provisioners, worker types and workers: what is known of them, and which workers are quarantined."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.worker_record import Path, WorkerRecord, parent_of
from legacy_queue.ports.table import Row, Value
from legacy_queue.stores.rows import ExpiringRows, between, json_in, json_values, of_kind, properties, read

_QUARANTINED = "quarantined"
_SEPARATOR = "!"  # before every character of an identifier, so that keys are in the order of the paths
_END = "~"  # behind every key
_PROVISIONERS = 100  # that are read at once


@dataclass(frozen=True)
class StoredWorkerRecord:
    """A worker, worker type or provisioner, and the version of it that a conditional write names."""

    record: WorkerRecord
    etag: str


class WorkerStore(ExpiringRows):
    """A partition for the provisioners, one for the worker types of each, one for the workers of each.

    Quarantines are also kept apart, in a partition of their own, until they end: so it is quickly read which
    workers get no work.
    """

    def load(self, path: Path) -> StoredWorkerRecord | None:
        """What is known of them now."""
        row = self._table.get(*_keys(path))
        return StoredWorkerRecord(read(row, _known), row.etag) if row else None

    def insert(self, known: WorkerRecord) -> StoredWorkerRecord:
        """Store what was not there; raises AlreadyExists."""
        return StoredWorkerRecord(known, self._table.insert(*_keys(known.path), _values(known)))

    def replace(self, stored: StoredWorkerRecord, known: WorkerRecord) -> StoredWorkerRecord:
        """Store it if it is still the version ``stored``; raises Changed."""
        return StoredWorkerRecord(known, self._table.merge(*_keys(known.path), _values(known), stored.etag))

    def list(self, parent: Path, after: Path, limit: int) -> Sequence[WorkerRecord]:
        """Up to ``limit`` of those right below ``parent``, which for provisioners is ().

        In the order of their paths, behind the path ``after``, () being the beginning; fewer at the end only.
        """
        return between(self._table, _partition(parent), _SEPARATOR.join(after), _END, limit, _known)

    def worker_types(self, after: Path, limit: int) -> Sequence[WorkerRecord]:
        """Up to ``limit`` worker types of all provisioners, as ``list``."""
        found = [*self.list(after[:1], after, limit)] if after else []
        behind: Path | None = after[:1]
        while behind is not None and len(found) < limit:
            provisioners = self.list((), behind, _PROVISIONERS)
            for known in provisioners:
                found += self.list(known.path, (), limit - len(found)) if len(found) < limit else ()
            behind = provisioners[-1].path if len(provisioners) == _PROVISIONERS else None
        return found

    def quarantine(self, worker: Path, until: datetime) -> None:
        """The worker is quarantined until then, whatever was said before. Safe to repeat."""
        self._table.put(_QUARANTINED, _SEPARATOR.join(worker), {"expires": until})

    def quarantined(self) -> Mapping[Path, datetime]:
        """Each worker that is, or was until lately, quarantined, and until when."""
        return dict(between(self._table, _QUARANTINED, "", _END, sys.maxsize, _quarantine))


def _partition(parent: Path) -> str:
    return _SEPARATOR.join(("known", *parent))


def _keys(path: Path) -> tuple[str, str]:
    return _partition(parent_of(path)), _SEPARATOR.join(path)


def _values(known: WorkerRecord) -> Mapping[str, Value]:
    return {"expires": known.kept_until, **json_values("known", known.to_wire())}


def _known(row: Row) -> WorkerRecord:
    known = WorkerRecord.from_wire(json_in("known", row))
    if _keys(known.path) != (row.partition, row.key):
        raise ValueError("it is known of another")
    contexts = [of_kind(dict, action)["context"] for action in known.actions]
    for text in (known.description, known.stability, *contexts):
        of_kind(str, text)
    for task_id, run_id in known.recent_claims:
        of_kind(str, task_id), of_kind(int, run_id)
    return known


def _quarantine(row: Row) -> tuple[Path, datetime]:
    (until,) = properties(row, expires=datetime)
    return tuple(row.key.split(_SEPARATOR)), until
