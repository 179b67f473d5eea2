"""Who calls what, as the processes have counted it."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime

from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage import HOUR, KEPT, Calls, CountedUse, Use
from legacy_queue.ports.table import PARTITION, Change, Condition, Row
from legacy_queue.stores.rows import ExpiringRows, matching, of_kind, readable

_MAX_ROWS = 100  # in a batch
_PAGE = 1000


class UsageStore(ExpiringRows):
    """Kept for ``KEPT`` after its hour: a partition for each hour of a process, a row for each use.

    Azurite takes the longer for a row the more there are in its partition.
    """

    def put(self, process: str, counted: Sequence[CountedUse]) -> None:
        """Keep each, in the place of what is there of the same process, hour and use. Safe to repeat."""
        hours: dict[datetime, list[Change]] = defaultdict(list)
        for one in counted:
            hours[one.hour].append(_change(one))
        for hour, changes in hours.items():
            for start in range(0, len(changes), _MAX_ROWS):
                self._table.batch(f"{format_time(hour)} {process}", changes[start : start + _MAX_ROWS])

    def since(
        self, hour: datetime, provisioner_id: str | None, worker_type: str | None
    ) -> Iterator[CountedUse]:
        """What all processes have counted from that hour on, read in pages as it is asked for.

        Of that provisionerId and that workerType, None being any; NOT_RECORDED belongs to each.
        """
        conditions = [Condition(PARTITION, "ge", format_time(hour))]
        for name, value in (("provisionerId", provisioner_id), ("workerType", worker_type)):
            if value is not None:
                conditions.append(Condition(name, "in", (value, "")))
        return readable(matching(self._table, conditions, _PAGE), _counted)


def _change(counted: CountedUse) -> Change:
    use = counted.use
    words = [use.provisioner_id, use.worker_type, use.method, use.caller, *use.missing]
    digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]  # a clientId may hold a /
    return Change(
        "put",
        digest,
        {
            "hour": counted.hour,
            "provisionerId": use.provisioner_id,
            "workerType": use.worker_type,
            "method": use.method,
            "caller": use.caller,
            "missing": json.dumps(use.missing),
            "count": counted.calls.count,
            "last": counted.calls.last,
            "expires": counted.hour + HOUR + KEPT,
        },
    )


def _counted(row: Row) -> CountedUse:
    values = row.values
    names = ("provisionerId", "workerType", "method", "caller", "missing")
    provisioner_id, worker_type, method, caller, text = (of_kind(str, values[name]) for name in names)
    missing = tuple(of_kind(str, one) for one in of_kind(list, json.loads(text)))
    return CountedUse(
        of_kind(datetime, values["hour"]),
        Use(provisioner_id, worker_type, method, caller, missing),
        Calls(of_kind(int, values["count"]), of_kind(datetime, values["last"])),
    )
