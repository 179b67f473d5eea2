"""Announces new messages to the other processes, and reads their announcements, in the rows of the processes.

A process *offers* a run by putting a message into a queue. On some storages a process cannot see that another
has written. Then a process whose requests wait for work would have to poll its queues all the time.

The rule: the row of each process names the queues into which it has lately put messages, and each of these
offers has a number. A process whose requests wait for work reads the rows often. If the number of a queue has
grown, it polls the queue at once.

If a poll misses a message, the message was put after that poll, and its process writes its row later still.
So a process that has read all rows since before the poll will find the offer there, and needs to poll an
empty queue only seldom. No work depends on this: a message that nobody announced is found a little later.

If a process dies, it may have held messages, or not have announced its last offers. So the others poll all
queues when they notice its death, and once more when every message that it had received is visible again.
"""

from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Clock
from legacy_queue.services.process.liveness import BEAT, DEAD_AFTER
from legacy_queue.services.process.processes import Processes

# How long an offer stays in the row. A process that has read the rows within half of that has missed none.
_KEPT = timedelta(seconds=20)
_COMPLETE_FOR = _KEPT / 2
# When a process is found dead, all messages that it had received are visible again after this time. It may
# have received one, hidden for 20 s, just before its next beat was due.
_UNTIL_VISIBLE = timedelta(seconds=20) + BEAT - DEAD_AFTER + timedelta(seconds=1)
_ROUNDING = timedelta(seconds=1)  # Azure hides messages for whole seconds
_LONG_AGO = _NOW = timedelta(0)


class Offers:
    """Exchanges offers with the other processes. A single thread calls ``exchange``, and does so often."""

    def __init__(self, processes: Processes, clock: Clock) -> None:
        self._processes = processes
        self._clock = clock
        # offers that are not in the row yet, and when the message of each is visible
        self._noted: SimpleQueue[tuple[timedelta, WorkQueue]] = SimpleQueue()
        self._unannounced: set[tuple[timedelta, WorkQueue]] = set()
        # what the row says: for each queue the number of the last offer, and when it was made
        self._announced: dict[WorkQueue, tuple[int, timedelta]] = {}
        self._number = 0
        # since when this process knows all offers of the others, and when it last read them
        self._complete_since = _LONG_AGO
        self._read_at = _LONG_AGO
        # the number of the last known offer of each other process
        self._numbers: dict[str, int] = {}
        self._departures = 0
        # when to poll all queues: then messages that a dead process had received are visible again
        self._polls_all_at: list[timedelta] = []

    def on_offer(self, queue: WorkQueue, delay: timedelta) -> None:
        """Record that the queue has a new message, which is visible after ``delay``."""
        self._noted.put((self._clock.monotonic() + delay + _ROUNDING if delay else _NOW, queue))

    def knows_offers_since(self, since: timedelta) -> bool:
        """Whether this process knows all that the others have offered since then."""
        return self._complete_since <= since and self._is_within(_COMPLETE_FOR, self._read_at)

    def exchange(
        self, poll: Callable[[WorkQueue], None], poll_all: Callable[[], None], *, waits: bool
    ) -> None:
        """Announce new offers. If requests wait for work, also read what others have announced.

        Calls ``poll`` for each queue that has new work, and ``poll_all`` if any queue may have some. If this
        raises ServiceUnavailable, the next call does what is missing.
        """
        now = self._clock.monotonic()
        while not self._noted.empty():
            self._unannounced.add(self._noted.get())
        offers = {offer for offer in self._unannounced if offer[0] <= now}
        if offers:
            self._announce(offers, now)
        for visible, queue in offers:
            if visible > _NOW:
                poll(queue)
        if waits:
            self._read_announcements(now, poll, poll_all)

    def _announce(self, offers: set[tuple[timedelta, WorkQueue]], now: timedelta) -> None:
        self._number += 1
        kept = {queue: offer for queue, offer in self._announced.items() if now - offer[1] < _KEPT}
        self._announced = {**kept, **{queue: (self._number, now) for _, queue in offers}}
        self._processes.announce({queue: number for queue, (number, _) in self._announced.items()})
        self._unannounced -= offers

    def _read_announcements(
        self, now: timedelta, poll: Callable[[WorkQueue], None], poll_all: Callable[[], None]
    ) -> None:
        self._processes.read_others()
        if not self._is_within(_COMPLETE_FOR, self._read_at):
            self._complete_since = now
        self._read_at = now
        numbers = {}
        for row in self._processes.others():
            last = self._numbers.get(row.process, 0)
            for queue, number in row.offers.items():
                if number > last:
                    poll(queue)
            numbers[row.process] = max(row.offers.values(), default=last)
        self._numbers = numbers
        departures = self._processes.departures
        if departures > self._departures:
            self._departures = departures
            self._polls_all_at += [now, now + _UNTIL_VISIBLE]
        if any(time <= now for time in self._polls_all_at):
            self._polls_all_at = [time for time in self._polls_all_at if time > now]
            poll_all()

    def _is_within(self, age: timedelta, time: timedelta) -> bool:
        return self._clock.monotonic() - time < age
