"""Stores the artifacts of each run, without their bytes."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from legacy_queue.domain.artifact import KINDS, Artifact, BaseArtifact
from legacy_queue.ports.table import Condition, Row, Table, Value
from legacy_queue.stores.table_rows import between, json_in, json_values, page, properties, read

_MAX_NAME = 400  # characters of the name in a key, which may have 512 in all
# these escapes keep the order of the names
_ESCAPES = str.maketrans({character: f"{chr(ord(character) - 1)}~" for character in "/\\#?%'"})
_END = "!"  # the character after the space, which ends a runId


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact, and the ETag of this version for a conditional write."""

    artifact: Artifact
    etag: str


class ArtifactStore:
    """A row for each artifact. The partition is the taskId, the key ``<runId> <name>  <SHA-256 of it>``.

    In the key, the name is escaped and cut: it only gives the order. The whole name is a property.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def load(self, task_id: str, run_id: int, name: str) -> StoredArtifact | None:
        """Reads the artifact. Returns None if it does not exist."""
        row = self._table.get(task_id, _key(run_id, name))
        return read(row, _stored) if row else None

    def insert(self, artifact: Artifact) -> StoredArtifact:
        """Store a new artifact. Raises AlreadyExists."""
        return StoredArtifact(artifact, self._table.insert(*_keys(artifact), _values(artifact)))

    def replace(self, stored: StoredArtifact, artifact: Artifact) -> StoredArtifact:
        """Store the artifact if ``stored`` is still the current version. Raises Changed."""
        return StoredArtifact(artifact, self._table.merge(*_keys(artifact), _values(artifact), stored.etag))

    def remove(self, stored: StoredArtifact) -> None:
        """Delete the artifact if ``stored`` is still the current version. Raises Changed. Safe to repeat."""
        self._table.delete(*_keys(stored.artifact), stored.etag)

    def list(self, task_id: str, run_id: int, after: str, limit: int) -> Sequence[Artifact]:
        """Returns up to ``limit`` of the run's artifacts after the name ``after`` ("" for all).

        They are in the order of the keys, which is nearly that of the names. Only the last page is short.
        """
        run = _run_key(run_id)
        first = _key(run_id, after) if after else f"{run} "
        return between(self._table, task_id, first, run + _END, limit, _artifact)

    def incomplete(self, task_id: str, run_id: int, now: datetime) -> Artifact | None:
        """Returns the first artifact of the run that is neither complete nor expired, or None."""
        run = _run_key(run_id)
        conditions = Condition("isComplete", "eq", False), Condition("expires", "gt", now)
        artifacts = between(self._table, task_id, run, run + _END, 1, _artifact, conditions=conditions)
        return artifacts[0] if artifacts else None

    def expired(self, now: datetime, after: str, limit: int) -> tuple[Sequence[StoredArtifact], str | None]:
        """Returns a page of the artifacts that expired before ``now``, and the next ``after``."""
        return page(self._table, [Condition("expires", "lt", now)], after, limit, _stored)


def _run_key(run_id: int) -> str:
    return f"{run_id:04}"


def _keys(artifact: Artifact) -> tuple[str, str]:
    return artifact.task_id, _key(artifact.run_id, artifact.name)


def _key(run_id: int, name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{_run_key(run_id)} {name.translate(_ESCAPES)[:_MAX_NAME]}  {digest}"


def _values(artifact: Artifact) -> Mapping[str, Value]:
    own = {name: getattr(artifact, name) for name in _own_fields(type(artifact))}
    return {
        "runId": artifact.run_id,
        "name": artifact.name,
        "storageType": artifact.storage_type,
        "contentType": artifact.content_type,
        "expires": artifact.expires,
        "isComplete": artifact.is_complete,
        **json_values("details", own),
    }


def _artifact(row: Row) -> Artifact:
    run_id, name, storage_type = properties(row, runId=int, name=str, storageType=str)
    content_type, expires, is_complete = properties(row, contentType=str, expires=datetime, isComplete=bool)
    kind = KINDS[storage_type]
    own = json_in("details", row)
    return kind(
        task_id=row.partition,
        run_id=run_id,
        name=name,
        content_type=content_type,
        expires=expires,
        is_complete=is_complete,
        # another version of the program may have stored more fields
        **{name: own[name] for name in _own_fields(kind) if name in own},
    )


def _own_fields(kind: type[Artifact]) -> Sequence[str]:
    """Returns the names of the fields that not every artifact has."""
    return [field.name for field in fields(kind) if field not in fields(BaseArtifact)]


def _stored(row: Row) -> StoredArtifact:
    return StoredArtifact(_artifact(row), row.etag)
