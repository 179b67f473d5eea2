"""What is known of artifacts, in Azure Table Storage."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableClient, TableEntity, UpdateMode

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.azure.entities import chunked, joined, of_kind
from legacy_queue.adapters.azure.rows import between, page, read, readable
from legacy_queue.domain.artifacts import Artifact
from legacy_queue.ports import AlreadyExists, ArtifactPage, ArtifactStore, Changed, StoredArtifact

_LONGEST_PREFIX = 400  # characters of a key, which may have 512
_UNFIT = {character: f"{chr(ord(character) - 1)}~" for character in "/\\#?%'"}  # in keys; sorted as before
_END = "!"  # the character behind the space, which ends a runId


class AzureArtifactStore(ArtifactStore):
    """A row for each artifact. PartitionKey is the taskId, RowKey ``<runId> <name>  <its SHA-256>``.

    The name is escaped and cut there, so that it is for the order alone; whole, it is a property.
    """

    def __init__(self, table: TableClient) -> None:
        self._table = table

    def load(self, task_id: str, run_id: int, name: str) -> StoredArtifact | None:
        try:
            with unavailable_when_down():
                row = self._table.get_entity(task_id, _row_key(run_id, name))
        except ResourceNotFoundError:
            return None
        return read(row, _stored)

    def insert(self, artifact: Artifact) -> StoredArtifact:
        try:
            with unavailable_when_down():
                metadata = self._table.create_entity(_entity(artifact))
        except ResourceExistsError:
            raise AlreadyExists from None
        return StoredArtifact(artifact, str(metadata["etag"]))

    def replace(self, stored: StoredArtifact, artifact: Artifact) -> StoredArtifact:
        try:
            with unavailable_when_down():
                metadata = self._table.update_entity(
                    _entity(artifact),
                    mode=UpdateMode.REPLACE,
                    etag=stored.etag,
                    match_condition=MatchConditions.IfNotModified,
                )
        except (ResourceModifiedError, ResourceNotFoundError):
            raise Changed from None
        return StoredArtifact(artifact, str(metadata["etag"]))

    def remove(self, stored: StoredArtifact) -> None:
        artifact = stored.artifact
        try:
            with unavailable_when_down():
                self._table.delete_entity(
                    artifact.task_id,
                    _row_key(artifact.run_id, artifact.name),
                    etag=stored.etag,
                    match_condition=MatchConditions.IfNotModified,
                )
        except ResourceModifiedError:
            raise Changed from None

    def list(self, task_id: str, run_id: int, after: str, limit: int) -> Sequence[Artifact]:
        run = _run_key(run_id)
        first = _row_key(run_id, after) if after else f"{run} "
        return between(self._table, task_id, first, run + _END, limit, _artifact)

    def incomplete(self, task_id: str, run_id: int, now: datetime) -> Artifact | None:
        run = _run_key(run_id)
        with unavailable_when_down():
            rows = self._table.query_entities(
                "PartitionKey eq @task and RowKey gt @first and RowKey lt @end and isComplete eq false "
                "and expires gt @now",
                parameters={"task": task_id, "first": run, "end": run + _END, "now": now},
                results_per_page=1,
            )
            return next(readable(rows, _artifact), None)

    def expired(self, now: datetime, after: str, limit: int) -> ArtifactPage:
        rows, further = page(self._table, "expires lt @now", {"now": now}, after, limit)
        return ArtifactPage([*readable(rows, _stored)], further)


def _run_key(run_id: int) -> str:
    return f"{run_id:04}"


def _row_key(run_id: int, name: str) -> str:
    fit = "".join(_UNFIT.get(character, character) for character in name)
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{_run_key(run_id)} {fit[:_LONGEST_PREFIX]}  {digest}"


def _entity(artifact: Artifact) -> dict[str, Any]:
    return {
        "PartitionKey": artifact.task_id,
        "RowKey": _row_key(artifact.run_id, artifact.name),
        "runId": artifact.run_id,
        "name": artifact.name,
        "storageType": artifact.storage_type,
        "contentType": artifact.content_type,
        "expires": artifact.expires,
        "isComplete": artifact.is_complete,
        **chunked("details", json.dumps(dict(artifact.details), separators=(",", ":")).encode()),
    }


def _artifact(row: TableEntity) -> Artifact:
    return Artifact(
        task_id=row["PartitionKey"],
        run_id=of_kind(int, row["runId"]),
        name=of_kind(str, row["name"]),
        storage_type=of_kind(str, row["storageType"]),
        content_type=of_kind(str, row["contentType"]),
        expires=of_kind(datetime, row["expires"]),
        details=of_kind(dict, json.loads(joined("details", row))),
        is_complete=of_kind(bool, row["isComplete"]),
    )


def _stored(row: TableEntity) -> StoredArtifact:
    return StoredArtifact(_artifact(row), str(row.metadata["etag"]))
