"""Stores a row for each server process in the table ``<prefix>processes``. Each row has its own partition.

The row names the tasks that its process still owes effects to. A living process writes its row every few
seconds. So if the ETag of a row stays the same for long, its process is dead.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime
from typing import Any

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import epoch_milliseconds, format_time, parse_time
from legacy_queue.ports import Clock, Corrupt
from legacy_queue.ports.table import Row, Table
from legacy_queue.stores.table_rows import (
    first_of,
    json_in,
    json_values,
    of_kind,
    properties,
    read,
    slugid_in,
)

_KEY = "process"


@dataclass(frozen=True)
class NamedTask:
    """A task that a process names in its row. Effects of its transitions since ``since`` may be missing."""

    task_id: str
    since: datetime
    # the group that the task joins while it is created; "" for none
    task_group_id: str = ""

    def includes(self, other: "NamedTask") -> bool:
        """Whether repeating the effects of this name also repeats those of the other."""
        return self.since <= other.since and other.task_group_id in ("", self.task_group_id)


@dataclass(frozen=True)
class ProcessRow:
    """What a process says about itself."""

    process: str
    # the tasks that its calls may be about to write, or whose effects it still owes
    names: Sequence[NamedTask] = ()
    # the effects of all its writes up to this number are applied
    settled: int = 0
    # the dead processes whose work it continues, with the number of the last settled write of each
    inherited: Mapping[str, int] = field(default_factory=dict)
    # the queues into which it has lately put messages, with the number of its last offer in each
    offers: Mapping[WorkQueue, int] = field(default_factory=dict)
    # whether it has ended, so that the others need not wait until it has been silent for long
    has_ended: bool = False
    etag: str = field(default="", compare=False)


class ProcessStore:
    """The rows of all processes."""

    def __init__(self, table: Table, clock: Clock, process: str = "") -> None:
        """``process`` is the name of this process. By default it gets a new one."""
        self._table = table
        self._clock = clock
        self._process = process

    @property
    def process(self) -> str:
        """The name of this process. It is made when it is first used, which is after any fork.

        It begins with that time. So the oldest process has the lowest name, unless clocks differ.
        """
        if not self._process:
            self._process = f"{epoch_milliseconds(self._clock.now()):013}-{slugid()[:8]}"
        return self._process

    def write(self, row: ProcessRow) -> None:
        """Write the row of this process, even if another process has removed it. Safe to repeat."""
        names = [(name.task_id, format_time(name.since), name.task_group_id) for name in row.names]
        offers = [(*astuple(queue), number) for queue, number in row.offers.items()]
        content = {
            "names": names,
            "settled": row.settled,
            "inherited": dict(row.inherited),
            "offers": offers,
        }
        values = {**json_values("owed", content), "hasEnded": row.has_ended}
        self._table.put(self.process, _KEY, values)

    def load(self, process: str) -> ProcessRow | None:
        """Reads the row of another process. Returns None if it has none."""
        row = self._table.get(process, _KEY)
        return read(row, _stored) if row else None

    def others(self) -> Sequence[ProcessRow]:
        """Returns the rows of the other processes.

        A row that cannot be read only shows that there was a process, so that others take over for it.
        """
        rows = first_of(self._table, [], sys.maxsize, _readable)
        return [row for row in rows if row.process != self.process]

    def remove(self, row: ProcessRow) -> None:
        """Remove the row of another process. Raises Changed if that process has written it since."""
        self._table.delete(row.process, _KEY, row.etag)


def _readable(row: Row) -> ProcessRow:
    try:
        return read(row, _stored)
    except Corrupt:  # the row has been logged
        return ProcessRow(row.partition, etag=row.etag)


def _stored(row: Row) -> ProcessRow:
    content: dict[str, Any] = json_in("owed", row)
    (has_ended,) = properties(row, hasEnded=bool)
    names = [
        NamedTask(slugid_in(task_id), parse_time(since), group and slugid_in(group))
        for task_id, since, group in of_kind(list, content["names"])
    ]
    settled = of_kind(int, content["settled"])
    inherited = {process: of_kind(int, upto) for process, upto in of_kind(dict, content["inherited"]).items()}
    offers = {WorkQueue(*queue): of_kind(int, number) for *queue, number in of_kind(list, content["offers"])}
    return ProcessRow(row.partition, names, settled, inherited, offers, has_ended, row.etag)
