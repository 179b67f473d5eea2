"""Tells other processes what this one offers, and is told what they offer.

Where storage cannot show that another process has written, a process whose requests wait for work would have
to poll its queues all the time. Theory: each process writes a row with the queues of its last offers, and
those that wait read all rows. A message that a poll has missed was offered after it. So its process writes
its row later still, and whoever has read all rows since before the poll finds it there. Such a process need
poll an empty queue only seldom: work never depends on the rows. Every process writes its row every few
seconds anyway; if it no longer does, or the row is gone, it is dead, and the others poll: it may have held
messages, or not told its last offers. No clocks are compared.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Clock
from legacy_queue.stores import OfferStore

_KEPT = timedelta(seconds=20)  # an offer in its row
_TOLD_FOR = _KEPT / 2  # after it has read all rows
_WRITTEN = timedelta(seconds=5)
_DEAD_AFTER = timedelta(seconds=27)  # what it polled after it last wrote, hidden for 20 s, is visible again
_LOOKED = timedelta(minutes=1)  # where no request waits, to remove the rows of processes that died
_ROUNDING = timedelta(seconds=1)  # Azure hides messages for whole seconds
_LONG_AGO = _NOW = timedelta(0)


class Wakes:
    """The offers of this process and of others. A single thread calls ``exchange``, often."""

    def __init__(self, store: OfferStore, clock: Clock, new_name: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._new_name = new_name
        self._name = ""
        self._noted: SimpleQueue[tuple[timedelta, WorkQueue]] = SimpleQueue()  # when it is visible
        self._unwritten: set[tuple[timedelta, WorkQueue]] = set()
        self._offered: dict[WorkQueue, tuple[int, timedelta]] = {}
        self._number = 0
        self._written = _LONG_AGO
        self._told_since = _LONG_AGO
        self._read = _LONG_AGO
        self._seen: dict[str, tuple[str, timedelta, int]] = {}  # of each process: etag, since, last number

    def on_offer(self, queue: WorkQueue, delay: timedelta) -> None:
        """The queue has a message that is visible after ``delay``."""
        self._noted.put((self._clock.monotonic() + delay + _ROUNDING if delay else _NOW, queue))

    def is_told(self, since: timedelta) -> bool:
        """Whether this process is told of all that others have offered since then."""
        return self._told_since <= since and self._is_within(_TOLD_FOR, self._read)

    def exchange(
        self, poll: Callable[[WorkQueue], None], poll_all: Callable[[], None], *, waits: bool
    ) -> None:
        """Tell, and be told if requests wait. ``poll`` is called with queues that have new work, ``poll_all``
        where there may be some. Raises ServiceUnavailable: the next call makes up for it.
        """
        self._name = self._name or self._new_name()  # not before: each fork has its own
        now = self._clock.monotonic()
        while not self._noted.empty():
            self._unwritten.add(self._noted.get())
        offers = {offer for offer in self._unwritten if offer[0] <= now}
        if offers or not self._is_within(_WRITTEN, self._written):
            self._write(offers, now)
        for visible, queue in offers:
            if visible > _NOW:
                poll(queue)
        if waits or not self._is_within(_LOOKED, self._read):
            self._listen(now, poll, poll_all)

    def _write(self, offers: set[tuple[timedelta, WorkQueue]], now: timedelta) -> None:
        self._number += 1
        kept = {queue: offer for queue, offer in self._offered.items() if now - offer[1] < _KEPT}
        self._offered = {**kept, **{queue: (self._number, now) for _, queue in offers}}
        self._store.write(self._name, {queue: n for queue, (n, _) in self._offered.items()})
        self._written = now
        self._unwritten -= offers

    def _listen(
        self, now: timedelta, poll: Callable[[WorkQueue], None], poll_all: Callable[[], None]
    ) -> None:
        rows = self._store.read()
        if not self._is_within(_TOLD_FOR, self._read):
            self._told_since = now
        seen = {}
        if self._seen.keys() - {row.process for row in rows}:  # another process has removed them
            poll_all()
        for row in rows:
            etag, since, last = self._seen.get(row.process, ("", now, 0))
            if row.etag != etag:
                since = now
                for queue, number in row.numbers.items():
                    if number > last and row.process != self._name:
                        poll(queue)
            if now - since < _DEAD_AFTER:
                seen[row.process] = row.etag, since, max(row.numbers.values(), default=last)
            else:
                poll_all()
                with suppress(ServiceUnavailable):
                    self._store.remove(row)
        self._seen = seen
        self._read = now

    def _is_within(self, age: timedelta, time: timedelta) -> bool:
        return self._clock.monotonic() - time < age
