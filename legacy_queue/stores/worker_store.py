"""Records of provisioners, worker types and workers, and which workers are quarantined."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.worker_record import Path, WorkerRecord, parent_of
from legacy_queue.ports.table import Row, Value
from legacy_queue.stores.rows import ExpiringRows, between, json_in, json_values, of_kind, properties, read

_QUARANTINED = "quarantined"
_SEPARATOR = "!"  # sorts before every character of an identifier, so keys are in the order of paths
_END = "~"  # behind every key
_PAGE = 100  # provisioners


@dataclass(frozen=True)
class StoredWorkerRecord:
    """The record of a worker, worker type or provisioner, and the version that a conditional write names."""

    record: WorkerRecord
    etag: str


class WorkerStore(ExpiringRows):
    """A partition for the provisioners, one for the worker types of each, one for the workers of each.

    Quarantines are also in a partition of their own until they end, so that they are read quickly.
    """

    def load(self, path: Path) -> StoredWorkerRecord | None:
        """The record as it is now."""
        row = self._table.get(*_keys(path))
        return StoredWorkerRecord(read(row, _record), row.etag) if row else None

    def insert(self, record: WorkerRecord) -> StoredWorkerRecord:
        """Store a new record; raises AlreadyExists."""
        return StoredWorkerRecord(record, self._table.insert(*_keys(record.path), _values(record)))

    def replace(self, stored: StoredWorkerRecord, record: WorkerRecord) -> StoredWorkerRecord:
        """Store the record if it is still the version ``stored``; raises Changed."""
        etag = self._table.merge(*_keys(record.path), _values(record), stored.etag)
        return StoredWorkerRecord(record, etag)

    def list(self, parent: Path, after: Path, limit: int) -> Sequence[WorkerRecord]:
        """Up to ``limit`` children of ``parent``, () for provisioners, behind the path ``after``.

        In the order of their paths; ``after`` is () for the first page. Only the last page is short.
        """
        return between(self._table, _partition(parent), _SEPARATOR.join(after), _END, limit, _record)

    def worker_types(self, after: Path, limit: int) -> Sequence[WorkerRecord]:
        """As ``list``, the worker types of all provisioners."""
        records = [*self.list(after[:1], after, limit)] if after else []
        behind: Path | None = after[:1]
        while behind is not None and len(records) < limit:
            provisioners = self.list((), behind, _PAGE)
            for provisioner in provisioners:
                records += (
                    self.list(provisioner.path, (), limit - len(records)) if len(records) < limit else ()
                )
            behind = provisioners[-1].path if len(provisioners) == _PAGE else None
        return records

    def quarantine(self, worker: Path, until: datetime) -> None:
        """Quarantine the worker until then; replaces an earlier quarantine. Safe to repeat."""
        self._table.put(_QUARANTINED, _SEPARATOR.join(worker), {"expires": until})

    def quarantined(self) -> Mapping[Path, datetime]:
        """Each worker that is or was recently quarantined, and until when."""
        return dict(between(self._table, _QUARANTINED, "", _END, sys.maxsize, _quarantine))


def _partition(parent: Path) -> str:
    return _SEPARATOR.join(("record", *parent))


def _keys(path: Path) -> tuple[str, str]:
    return _partition(parent_of(path)), _SEPARATOR.join(path)


def _values(record: WorkerRecord) -> Mapping[str, Value]:
    return {"expires": record.kept_until, **json_values("record", record.to_wire())}


def _record(row: Row) -> WorkerRecord:
    record = WorkerRecord.from_wire(json_in("record", row))
    if _keys(record.path) != (row.partition, row.key):
        raise ValueError("the record of another path")
    contexts = [of_kind(dict, action)["context"] for action in record.actions]
    for text in (record.description, record.stability, *contexts):
        of_kind(str, text)
    for task_id, run_id in record.recent_claims:
        of_kind(str, task_id), of_kind(int, run_id)
    return record


def _quarantine(row: Row) -> tuple[Path, datetime]:
    (until,) = properties(row, expires=datetime)
    return tuple(row.key.split(_SEPARATOR)), until
