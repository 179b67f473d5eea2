"""Who calls what, as the processes have counted it."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage import HOUR, KEPT, Calls, CountedUse, Use
from legacy_queue.ports.table import PARTITION, Change, Condition, Row
from legacy_queue.stores.rows import ExpiringRows, of_kind, page, readable

_MAX_ROWS = 100  # in a batch


@dataclass(frozen=True)
class UsagePage:
    """Some of what was asked for; ``after`` continues, None at the end."""

    counted: Sequence[CountedUse]
    after: str | None


class UsageStore(ExpiringRows):
    """Kept for ``KEPT`` after its hour: a partition for each hour of a process, a row for each use.

    Azurite takes the longer for a row the more there are in its partition.
    """

    def put(self, counted: Sequence[CountedUse]) -> None:
        """Keep each, in the place of what is there of the same process, hour and use. Safe to repeat."""
        partitions: dict[str, list[Change]] = defaultdict(list)
        for one in counted:
            partitions[f"{format_time(one.hour)} {one.process}"].append(_change(one))
        for partition, changes in partitions.items():
            for start in range(0, len(changes), _MAX_ROWS):
                self._table.batch(partition, changes[start : start + _MAX_ROWS])

    def since(
        self, hour: datetime, provisioner_id: str | None, worker_type: str | None, after: str, limit: int
    ) -> UsagePage:
        """Up to ``limit`` of what was counted from that hour on, from where ``after`` says, "" the beginning.

        Of that provisionerId and that workerType, None being any; NOT_RECORDED belongs to each. A page may be
        empty and not the last.
        """
        conditions = [Condition(PARTITION, "ge", format_time(hour))]
        for name, value in (("provisionerId", provisioner_id), ("workerType", worker_type)):
            if value is not None:
                conditions.append(Condition(name, "in", (value, "")))
        found = page(self._table, conditions, after, limit)
        return UsagePage([*readable(found.rows, _counted)], found.after)


def _change(counted: CountedUse) -> Change:
    use = counted.use
    words = [use.provisioner_id, use.worker_type, use.method, use.caller, *use.missing]
    digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]  # a clientId may hold a /
    return Change(
        "put",
        digest,
        {
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
        },
    )


def _counted(row: Row) -> CountedUse:
    values = row.values
    missing = json.loads(of_kind(str, values["missing"]))
    names = ("provisionerId", "workerType", "method", "caller")
    provisioner_id, worker_type, method, caller = (of_kind(str, values[name]) for name in names)
    callers = tuple(of_kind(str, one) for one in of_kind(list, missing))
    use = Use(provisioner_id, worker_type, method, caller, callers)
    calls = Calls(of_kind(int, values["count"]), of_kind(datetime, values["last"]))
    return CountedUse(of_kind(str, values["process"]), of_kind(datetime, values["hour"]), use, calls)
