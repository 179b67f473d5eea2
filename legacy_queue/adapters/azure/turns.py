"""Whose turn it is, in Azure Table Storage."""

from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import TableClient, TableEntity, UpdateMode

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.azure.entities import of_kind
from legacy_queue.adapters.azure.rows import read
from legacy_queue.ports import Changed, Clock, Corrupt, Turn, Turns

_ROW_KEY = "turn"


class AzureTurns(Turns):
    """A row for each turn; whoever writes it on its ETag has it. One that cannot be read begins anew."""

    def __init__(self, table: TableClient, clock: Clock) -> None:
        self._table, self._clock = table, clock

    def take(self, name: str, until: datetime) -> Turn | datetime:
        while True:
            stored = self._load(name)
            if stored and stored[1] > self._clock.now():
                return stored[1]
            try:
                return self._take(name, stored[0] if stored else None, until)
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

    def _take(self, name: str, turn: Turn | None, until: datetime) -> Turn:
        if turn:
            return self.keep(turn, until, turn.cursor, turn.since)
        try:
            with unavailable_when_down():
                metadata = self._table.create_entity(_entity(name, until, "", None))
        except ResourceExistsError:
            raise Changed from None
        return Turn(name, "", None, str(metadata["etag"]))

    def _load(self, name: str) -> tuple[Turn, datetime] | None:
        """The turn as it was left, and until when it is taken."""
        try:
            with unavailable_when_down():
                row = self._table.get_entity(name, _ROW_KEY)
        except ResourceNotFoundError:
            return None
        try:
            return read(row, _stored)
        except Corrupt:
            return Turn(name, "", None, str(row.metadata["etag"])), datetime.min.replace(tzinfo=UTC)


def _stored(row: TableEntity) -> tuple[Turn, datetime]:
    since = of_kind(datetime, row["since"]) if "since" in row else None
    turn = Turn(row["PartitionKey"], of_kind(str, row["cursor"]), since, str(row.metadata["etag"]))
    return turn, of_kind(datetime, row["until"])


def _entity(name: str, until: datetime, cursor: str, since: datetime | None) -> dict[str, Any]:
    entity = {"PartitionKey": name, "RowKey": _ROW_KEY, "until": until, "cursor": cursor}
    return {**entity, "since": since} if since else entity
