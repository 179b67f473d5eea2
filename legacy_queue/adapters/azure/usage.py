"""Who calls what, in Azure Table Storage."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from legacy_queue.adapters.azure.client import unavailable_when_down
from legacy_queue.adapters.azure.entities import of_kind
from legacy_queue.adapters.azure.rows import ExpiringRows, page, readable
from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage import HOUR, KEPT, Calls, CountedUse, Use
from legacy_queue.ports import UsagePage, UsageStore

_MOST_ROWS = 100  # in a batch


class AzureUsageStore(ExpiringRows, UsageStore):
    """A partition for each hour of a process, a row for each use that it has counted, written in batches.

    Azurite takes the longer for a row the more there are in its partition.
    """

    def put(self, counted: Sequence[CountedUse]) -> None:
        partitions: dict[str, list[Any]] = defaultdict(list)
        for row in map(_row, counted):
            partitions[row["PartitionKey"]].append(("upsert", row, {"mode": "replace"}))
        for changes in partitions.values():
            for start in range(0, len(changes), _MOST_ROWS):
                with unavailable_when_down():
                    self._table.submit_transaction(changes[start : start + _MOST_ROWS])

    def since(
        self, hour: datetime, provisioner_id: str | None, worker_type: str | None, after: str, limit: int
    ) -> UsagePage:
        query, parameters = "PartitionKey ge @hour", {"hour": format_time(hour)}
        for name, value in (("provisionerId", provisioner_id), ("workerType", worker_type)):
            if value is not None:
                query += f" and ({name} eq @{name} or {name} eq '')"
                parameters[name] = value
        rows, further = page(self._table, query, parameters, after, limit)
        return UsagePage([*readable(rows, _counted)], further)


def _row(counted: CountedUse) -> dict[str, Any]:
    use = counted.use
    words = [use.provisioner_id, use.worker_type, use.method, use.caller, *use.missing]
    digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]  # a clientId may hold a /
    return {
        "PartitionKey": f"{format_time(counted.hour)} {counted.process}",
        "RowKey": digest,
        "process": counted.process,
        "hour": counted.hour,
        "provisionerId": use.provisioner_id,
        "workerType": use.worker_type,
        "method": use.method,
        "caller": use.caller,
        "missing": json.dumps(use.missing),
        "count": counted.calls.count,
        "last": counted.calls.last,
        "expires": counted.hour + HOUR + KEPT,
    }


def _counted(row: dict[str, Any]) -> CountedUse:
    missing = tuple(of_kind(str, one) for one in of_kind(list, json.loads(row["missing"])))
    names = ("provisionerId", "workerType", "method", "caller")
    provisioner_id, worker_type, method, caller = (of_kind(str, row[name]) for name in names)
    use = Use(provisioner_id, worker_type, method, caller, missing)
    calls = Calls(of_kind(int, row["count"]), of_kind(datetime, row["last"]))
    return CountedUse(of_kind(str, row["process"]), of_kind(datetime, row["hour"]), use, calls)
