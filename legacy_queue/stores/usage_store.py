"""Who calls what, as the processes have counted it."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime

from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage_key import HOUR, KEPT, Calls, CountedUsage, UsageKey
from legacy_queue.ports.table import PARTITION, Change, Condition, Row
from legacy_queue.stores.rows import ExpiringRows, of_kind, page, properties

_MAX_ROWS = 100  # in a batch
_PAGE = 1000


class UsageStore(ExpiringRows):
    """Kept for ``KEPT`` after its hour: a partition for each hour of a process, a row for each use.

    Azurite takes the longer for a row the more there are in its partition.
    """

    def put(self, process: str, counted: Sequence[CountedUsage]) -> None:
        """Keep each, in the place of what is there of the same process, hour and use. Safe to repeat."""
        hours: dict[datetime, list[Change]] = defaultdict(list)
        for one in counted:
            hours[one.hour].append(_change(one))
        for hour, changes in hours.items():
            for start in range(0, len(changes), _MAX_ROWS):
                self._table.batch(f"{format_time(hour)} {process}", changes[start : start + _MAX_ROWS])

    def since(
        self, hour: datetime, provisioner_id: str | None, worker_type: str | None
    ) -> Iterator[CountedUsage]:
        """What all processes have counted from that hour on, read in pages as it is asked for.

        Of that provisionerId and that workerType, None being any; NOT_RECORDED belongs to each.
        """
        conditions = [Condition(PARTITION, "ge", format_time(hour))]
        for name, value in (("provisionerId", provisioner_id), ("workerType", worker_type)):
            if value is not None:
                conditions.append(Condition(name, "in", (value, "")))
        after: str | None = ""
        while after is not None:
            found, after = page(self._table, conditions, after, _PAGE, _counted)
            yield from found


def _change(counted: CountedUsage) -> Change:
    use, calls = counted.use, counted.calls
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
            "count": calls.count,
            "last": calls.last,
            "expires": counted.hour + HOUR + KEPT,
        },
    )


def _counted(row: Row) -> CountedUsage:
    provisioner, worker_type, method = properties(row, provisionerId=str, workerType=str, method=str)
    caller, missing, *calls = properties(row, caller=str, missing=str, count=int, last=datetime)
    names = tuple(of_kind(str, name) for name in of_kind(list, json.loads(missing)))
    use = UsageKey(provisioner, worker_type, method, caller, names)
    return CountedUsage(of_kind(datetime, row.values["hour"]), use, Calls(*calls))
