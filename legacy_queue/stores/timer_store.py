"""Timers, in rows of the table ``<prefix>timers``, in the order of their times.

The partition is ``<bucket>-<owner>``: when the row is due, in units of 8 s, and the process that inserted it,
so that no two processes fill one partition. The key is ``<taskId>.<owner>.<number>``. A row is inserted and
deleted, never changed. Its times ``inserted`` and ``due`` are by the clock of the storage: those of the
processes differ.
"""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeVar
from zlib import crc32

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timer import Timer
from legacy_queue.domain.times import epoch_milliseconds
from legacy_queue.ports import Changed, Clock, Corrupt
from legacy_queue.ports.table import PARTITION, Change, Condition, Row, Table, Value
from legacy_queue.stores.rows import let_others_run, properties, read, slugid_in, yielding

Item = TypeVar("Item")

_BUCKET = 8_000  # milliseconds
_BATCH = 100  # rows
_PAGE = 1000
_YIELD_AFTER = 50
# In which the process that inserted a timer without missing effects handles it. Longer, and claims would end
# late of a process that has ended; where many are due at once, others take their share of those that wait.
_GRACE = timedelta(seconds=1)
_SET_ASIDE = "unreadable"  # the partition of rows that are not read again: it is behind all digits


@dataclass(frozen=True)
class TimerRow:
    """A stored timer. Its times are by the clock of this process."""

    partition: str
    key: str
    timer: Timer


class TimerStore:
    """Rows stay until they are removed, or taken by another process."""

    def __init__(self, table: Table, clock: Clock, owner: str = "") -> None:
        """``owner`` names this process, a new name by default."""
        self._table = table
        self._clock = clock
        self._given = owner
        self._numbers = itertools.count()

    @cached_property
    def _owner(self) -> str:
        """It is made when it is first used, which is after any fork: processes of one name would replace each
        other's rows.
        """
        return self._given or slugid()[:8]

    def put(self, timers: Sequence[Timer]) -> list[TimerRow]:
        """Insert a row for each, in their order: one operation for up to 100 of one bucket."""
        now = self._table.now()
        # Where a process looks for rows is decided by the storage's clock. A bucket by the clock of a machine
        # that is a minute ahead would be found a minute late.
        skew = now - self._clock.now()
        rows = [
            TimerRow(f"{_bucket(timer.due + skew):010d}-{self._owner}", self._key(timer), timer)
            for timer in timers
        ]
        for partition, batch in _by_partition(rows, lambda row: row.partition, _BATCH):
            if len(batch) == 1:  # costs half of a batch
                self._table.put(partition, batch[0].key, _values(batch[0].timer, skew, now))
            else:  # safe to repeat, too
                changes = [Change("put", row.key, _values(row.timer, skew, now)) for row in batch]
                self._table.batch(partition, changes)
                let_others_run()  # a batch takes Azure's SDK 40 ms
        return rows

    def due(self, limit: int) -> list[TimerRow]:
        """About ``limit`` rows of all processes whose time has come, those of the earliest buckets first.

        A row that cannot be read is set aside.
        """
        end = f"{_bucket(self._table.now()) + 1:010d}"
        found: list[TimerRow] = []
        after: str | None = ""
        while after is not None and len(found) < limit:
            page = self._table.page([Condition(PARTITION, "lt", end)], after, _PAGE)
            now = self._table.now()
            for row in yielding(page.rows, _YIELD_AFTER):
                try:
                    found_row, wait = read(row, stored)
                except Corrupt:
                    self._set_aside(row)
                    continue
                # both times are the storage's: by the clocks of two machines, a call that has just begun
                # could be taken for dead
                if now - row.changed >= wait:
                    found.append(found_row)
            after = page.after
        return found

    def take(self, found: Sequence[tuple[TimerRow, Timer]]) -> Iterator[Sequence[tuple[TimerRow, TimerRow]]]:
        """Replace each row by a row of this process that says its timer; the rows, and the new rows.

        They come as they are taken: the caller may fail between.
        The rows that another process has taken are left out, and with them up to 49 others, which are still
        due. The new row is in the place of the old one, so that both are changed in one step: whoever handles
        it may die at once.
        """
        now = self._table.now()
        skew = now - self._clock.now()
        batches = [*_by_partition(found, lambda pair: pair[0].partition, _BATCH // 2)]
        # Each process begins elsewhere: of two with the same order, one would lose each batch to the other.
        first = crc32(self._owner.encode()) % max(1, len(batches))
        for partition, batch in (*batches[first:], *batches[:first]):
            pairs = [(row, TimerRow(partition, self._key(timer), timer)) for row, timer in batch]
            deleted = [Change("delete", row.key, {}) for row, _ in pairs]
            inserted = [Change("put", new.key, _values(new.timer, skew, now)) for _, new in pairs]
            # Changed also where the adapter has repeated it: then the new rows are found when they are due
            with suppress(Changed):
                self._table.batch(partition, [*deleted, *inserted])
                yield pairs

    def remove(self, rows: Sequence[TimerRow]) -> None:
        """Delete the rows, if that is possible. A row that stays is handled again, which is harmless."""
        with suppress(ServiceUnavailable):
            for partition, batch in _by_partition(rows, lambda row: row.partition, _BATCH):
                self._delete(partition, batch)
                let_others_run()

    def _delete(self, partition: str, rows: Sequence[TimerRow]) -> None:
        if len(rows) == 1:
            self._table.delete(partition, rows[0].key)
            return
        try:
            self._table.batch(partition, [Change("delete", row.key, {}) for row in rows])
        except Changed:  # another process has taken one
            half = len(rows) // 2
            self._delete(partition, rows[:half])
            self._delete(partition, rows[half:])

    def _key(self, timer: Timer) -> str:
        return f"{timer.task_id}.{self._owner}.{next(self._numbers)}"

    def _set_aside(self, row: Row) -> None:
        was = f"{row.partition}/{row.key} {row.values!r}"  # as text, since a value may be of any kind
        self._table.put(_SET_ASIDE, hashlib.sha256(was.encode()).hexdigest(), {"was": was[:10_000]})
        self._table.delete(row.partition, row.key)


def _bucket(time: datetime) -> int:
    return epoch_milliseconds(time) // _BUCKET


def _by_partition(
    items: Iterable[Item], partition: Callable[[Item], str], limit: int
) -> Iterator[tuple[str, list[Item]]]:
    """The items of each partition, up to ``limit`` at a time."""
    partitions = defaultdict(list)
    for item in items:
        partitions[partition(item)].append(item)
    for name, found in partitions.items():
        for start in range(0, len(found), limit):
            yield name, found[start : start + limit]


def _values(timer: Timer, skew: timedelta, now: datetime) -> dict[str, Value]:
    since: dict[str, Value] = {"since": timer.since} if timer.since else {}
    times = {"inserted": now, "due": timer.due + skew}
    # hasArtifacts is what 0.1.0 reads: whether to publish artifact-created, too
    return {**times, **since, "taskGroupId": timer.task_group_id, "hasArtifacts": True}


def stored(row: Row) -> tuple[TimerRow, timedelta]:
    """The row, and how old it is when its time has come."""
    inserted, due, group = properties(row, inserted=datetime, due=datetime, taskGroupId=str)
    since = properties(row, since=datetime)[0] if "since" in row.values else None
    group = slugid_in(group) if group else ""
    timer = Timer(slugid_in(row.key.partition(".")[0]), due, since, group)
    return TimerRow(row.partition, row.key, timer), due - inserted + (timedelta(0) if since else _GRACE)
