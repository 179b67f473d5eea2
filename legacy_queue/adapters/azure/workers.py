"""Provisioners, worker types and workers in Azure Table Storage."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import UpdateMode

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.azure.entities import chunked, joined, of_kind
from legacy_queue.adapters.azure.rows import ExpiringRows, between, read
from legacy_queue.domain.workers import Known, Path, parent_of
from legacy_queue.ports import AlreadyExists, Changed, StoredKnown, WorkerStore

_QUARANTINED = "quarantined"
_SEPARATOR = "!"  # before every character of an identifier, so that keys are in the order of the paths
_END = "~"  # behind every key


class AzureWorkerStore(ExpiringRows, WorkerStore):
    """A partition for the provisioners, one for the worker types of each, one for the workers of each.

    What is known is JSON in binary properties. Quarantines have a partition of their own.
    """

    def load(self, path: Path) -> StoredKnown | None:
        try:
            with unavailable_when_down():
                entity = self._table.get_entity(_partition(parent_of(path)), _row_key(path))
        except ResourceNotFoundError:
            return None
        return StoredKnown(read(entity, _known), str(entity.metadata["etag"]))

    def insert(self, known: Known) -> StoredKnown:
        try:
            with unavailable_when_down():
                metadata = self._table.create_entity(_entity(known))
        except ResourceExistsError:
            raise AlreadyExists from None
        return StoredKnown(known, str(metadata["etag"]))

    def replace(self, stored: StoredKnown, known: Known) -> StoredKnown:
        try:
            with unavailable_when_down():
                metadata = self._table.update_entity(
                    _entity(known),
                    mode=UpdateMode.REPLACE,
                    etag=stored.etag,
                    match_condition=MatchConditions.IfNotModified,
                )
        except (ResourceModifiedError, ResourceNotFoundError):
            raise Changed from None
        return StoredKnown(known, str(metadata["etag"]))

    def list(self, parent: Path, after: Path, limit: int) -> Sequence[Known]:
        return between(self._table, _partition(parent), _row_key(after), _END, limit, _known)

    def quarantine(self, worker: Path, until: datetime) -> None:
        entity = {"PartitionKey": _QUARANTINED, "RowKey": _row_key(worker), "expires": until}
        with unavailable_when_down():
            self._table.upsert_entity(entity)

    def quarantined(self) -> Mapping[Path, datetime]:
        return dict(between(self._table, _QUARANTINED, "", _END, sys.maxsize, _quarantine))


def _partition(parent: Path) -> str:
    return _SEPARATOR.join(("known", *parent))


def _row_key(path: Path) -> str:
    return _SEPARATOR.join(path)


def _entity(known: Known) -> dict[str, Any]:
    wire = json.dumps(known.to_wire(), ensure_ascii=False).encode()
    return {
        "PartitionKey": _partition(parent_of(known.path)),
        "RowKey": _row_key(known.path),
        "expires": known.kept_until,
        **chunked("known", wire),
    }


def _known(entity: dict[str, Any]) -> Known:
    known = Known.from_wire(of_kind(dict, json.loads(joined("known", entity))))
    if (
        _partition(parent_of(known.path)) != entity["PartitionKey"]
        or _row_key(known.path) != entity["RowKey"]
    ):
        raise ValueError("it is known of another")
    for text in (known.description, known.stability, *(task_id for task_id, _ in known.recent_claims)):
        of_kind(str, text)
    for one in known.actions:
        of_kind(str, of_kind(dict, one)["context"])
    for _, run_id in known.recent_claims:
        of_kind(int, run_id)
    return known


def _quarantine(row: dict[str, Any]) -> tuple[Path, datetime]:
    return tuple(row["RowKey"].split(_SEPARATOR)), of_kind(datetime, row["expires"])
