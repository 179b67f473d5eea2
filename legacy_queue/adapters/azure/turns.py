"""Whose turn it is, in Azure Table Storage."""

from datetime import datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableClient, UpdateMode

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.ports import Changed, Clock, Turn, Turns

_ROW_KEY = "turn"


class AzureTurns(Turns):
    """A row for each turn; whoever writes it on its ETag has it."""

    def __init__(self, table: TableClient, clock: Clock) -> None:
        self._table, self._clock = table, clock

    def take(self, name: str, until: datetime) -> Turn | datetime:
        while True:
            row = self._load(name)
            if row and row["until"] > self._clock.now():
                taken_until: datetime = row["until"]
                return taken_until
            try:
                return self._take(name, row, until)
            except Changed:
                continue

    def keep(self, turn: Turn, until: datetime, cursor: str, since: datetime | None) -> Turn:
        entity = _entity(turn.name, until, cursor, since)
        try:
            with unavailable_when_down():
                metadata = self._table.update_entity(
                    entity,
                    mode=UpdateMode.REPLACE,
                    etag=turn.etag,
                    match_condition=MatchConditions.IfNotModified,
                )
        except (ResourceModifiedError, ResourceNotFoundError):
            raise Changed from None
        return Turn(turn.name, cursor, since, str(metadata["etag"]))

    def _take(self, name: str, row: Any, until: datetime) -> Turn:
        if row:
            turn = Turn(name, row["cursor"], row.get("since"), str(row.metadata["etag"]))
            return self.keep(turn, until, turn.cursor, turn.since)
        try:
            with unavailable_when_down():
                metadata = self._table.create_entity(_entity(name, until, "", None))
        except ResourceExistsError:
            raise Changed from None
        return Turn(name, "", None, str(metadata["etag"]))

    def _load(self, name: str) -> Any:
        try:
            with unavailable_when_down():
                return self._table.get_entity(name, _ROW_KEY)
        except ResourceNotFoundError:
            return None


def _entity(name: str, until: datetime, cursor: str, since: datetime | None) -> dict[str, Any]:
    entity = {"PartitionKey": name, "RowKey": _ROW_KEY, "until": until, "cursor": cursor}
    return {**entity, "since": since} if since else entity
