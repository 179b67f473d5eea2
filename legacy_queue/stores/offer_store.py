"""What each process has offered lately, for the others. All of it is a hint, which may be lost."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from typing import NamedTuple

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Changed
from legacy_queue.ports.table import PARTITION, Condition, Row, Table
from legacy_queue.stores.rows import first_of, json_in, json_values

_PARTITION = "offers"


class Offers(NamedTuple):
    """Of a process: the number of each queue's last offer."""

    process: str
    numbers: Mapping[WorkQueue, int]
    etag: str  # another after each write


class OfferStore:
    """A row for each process, all in one partition."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def write(self, process: str, numbers: Mapping[WorkQueue, int]) -> None:
        offers = [(*astuple(queue), number) for queue, number in numbers.items()]
        self._table.put(_PARTITION, process, json_values("offers", {"offers": offers}))

    def read(self) -> Sequence[Offers]:
        return first_of(self._table, [Condition(PARTITION, "eq", _PARTITION)], sys.maxsize, _offers)

    def remove(self, offers: Offers) -> None:
        """Remove the row, unless its process has written since."""
        with suppress(Changed):
            self._table.delete(_PARTITION, offers.process, offers.etag)


def _offers(row: Row) -> Offers:
    written = json_in("offers", row)
    numbers = {WorkQueue(*names): number for *names, number in written["offers"]}
    return Offers(row.key, numbers, row.etag)
