"""Who calls what."""

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from legacy_queue.adapters.memory.sorted_rows import Key, MemoryTable
from legacy_queue.domain.usage import HOUR, KEPT, CountedUse
from legacy_queue.ports import UsagePage, UsageStore


class MemoryUsageStore(UsageStore):
    def __init__(self) -> None:
        self._table = MemoryTable[CountedUse]()

    def put(self, counted: Sequence[CountedUse]) -> None:
        for one in counted:
            self._table.put(_key(one), one, one.hour + HOUR + KEPT)

    def since(
        self, hour: datetime, provisioner_id: str | None, worker_type: str | None, after: str, limit: int
    ) -> UsagePage:
        first, second = json.loads(after) if after else (hour.isoformat(), "")
        with self._table.lock:
            rows = self._table.after((first, second))
            counted = list(islice((one for one in rows if one.use.is_of(provisioner_id, worker_type)), limit))
        return UsagePage(counted, json.dumps(_key(counted[-1])) if len(counted) == limit else None)

    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        return self._table.remove_expired(now, after, limit)


def _key(counted: CountedUse) -> Key:
    use = counted.use
    words = [counted.process, use.provisioner_id, use.worker_type, use.method, use.caller, *use.missing]
    return counted.hour.isoformat(), json.dumps(words)
