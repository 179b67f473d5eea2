"""What is known of artifacts."""

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice

from legacy_queue.adapters.memory.sorted_rows import Key, MemoryTable
from legacy_queue.domain.artifacts import Artifact
from legacy_queue.ports import AlreadyExists, ArtifactPage, ArtifactStore, Changed, StoredArtifact


class MemoryArtifactStore(ArtifactStore):
    """A partition for each run, in it a row for each name."""

    def __init__(self) -> None:
        self._table = MemoryTable[StoredArtifact]()
        self._etags = map(str, itertools.count(1))

    def load(self, task_id: str, run_id: int, name: str) -> StoredArtifact | None:
        return self._table.get((_partition(task_id, run_id), name))

    def insert(self, artifact: Artifact) -> StoredArtifact:
        with self._table.lock:
            if self._table.get(_key(artifact)):
                raise AlreadyExists
            return self._store(artifact)

    def replace(self, stored: StoredArtifact, artifact: Artifact) -> StoredArtifact:
        with self._table.lock:
            current = self._table.get(_key(artifact))
            if current is None or current.etag != stored.etag:
                raise Changed
            return self._store(artifact)

    def remove(self, stored: StoredArtifact) -> None:
        key = _key(stored.artifact)
        with self._table.lock:
            current = self._table.get(key)
            if current and current.etag != stored.etag:
                raise Changed
            self._table.remove(key)

    def list(self, task_id: str, run_id: int, after: str, limit: int) -> Sequence[Artifact]:
        with self._table.lock:
            return list(islice(self._of_run(task_id, run_id, after), limit))

    def incomplete(self, task_id: str, run_id: int, now: datetime) -> Artifact | None:
        with self._table.lock:
            artifacts = self._of_run(task_id, run_id, "")
            return next((one for one in artifacts if not one.is_complete and one.expires > now), None)

    def expired(self, now: datetime, after: str, limit: int) -> ArtifactPage:
        first, second = json.loads(after) if after else ("", "")
        with self._table.lock:
            rows = self._table.after((first, second))
            found = list(islice((row for row in rows if row.artifact.expires < now), limit))
        return ArtifactPage(found, json.dumps(_key(found[-1].artifact)) if len(found) == limit else None)

    def _of_run(self, task_id: str, run_id: int, after: str) -> Iterator[Artifact]:
        partition = _partition(task_id, run_id)
        return (stored.artifact for stored in self._table.after((partition, after), partition))

    def _store(self, artifact: Artifact) -> StoredArtifact:
        stored = StoredArtifact(artifact, next(self._etags))
        self._table.put(_key(artifact), stored, artifact.expires)
        return stored


def _partition(task_id: str, run_id: int) -> str:
    return f"{task_id}/{run_id}"


def _key(artifact: Artifact) -> Key:
    return _partition(artifact.task_id, artifact.run_id), artifact.name
