"""What this process offers and what it is told of the offers of others, by the rows of the processes.

The rule: where storage cannot show that another process has written, a process whose requests wait for work
would have to ask its queues all the time. So the row of each process says in which queues it has offered
messages lately, and each offer there has a number. A process whose requests wait reads the rows often, and
asks a queue at once whose number has grown.

A message that a poll has missed was offered after that poll, and its process writes its row later still. So
whoever has read all rows since before the poll finds the offer there, and need ask an empty queue only
seldom. No work depends on it: what nobody has told is found a little later.

If a process has died, it may have held messages, or not told its last offers: so the others ask all queues
when they notice, and again when each message is visible that it had polled.
"""

from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Clock
from legacy_queue.services.process.liveness import BEAT, DEAD_AFTER
from legacy_queue.services.process.processes import Processes

# How long the row says an offer, and how long ago others may have read the rows that are told of all offers.
_KEPT = timedelta(seconds=20)
_TOLD_FOR = _KEPT / 2
# After a process is found dead: what it polled just before it should have beaten again, hidden for 20 s, is
# visible by then.
_UNTIL_VISIBLE = timedelta(seconds=20) + BEAT - DEAD_AFTER + timedelta(seconds=1)
_ROUNDING = timedelta(seconds=1)  # Azure hides messages for whole seconds
_LONG_AGO = _NOW = timedelta(0)


class Offers:
    """The offers of this process and of others. A single thread calls ``exchange``, often."""

    def __init__(self, processes: Processes, clock: Clock) -> None:
        self._processes = processes
        self._clock = clock
        # offers that are not in the row yet, and when each message is visible
        self._noted: SimpleQueue[tuple[timedelta, WorkQueue]] = SimpleQueue()
        self._untold: set[tuple[timedelta, WorkQueue]] = set()
        # what the row says: the number of the last offer in each queue, and when it was made
        self._told: dict[WorkQueue, tuple[int, timedelta]] = {}
        self._number = 0
        # since when this process has heard all offers of others, and when it last read them
        self._heard_since = _LONG_AGO
        self._heard = _LONG_AGO
        # of each other process: the number of its last offer that is known
        self._numbers: dict[str, int] = {}
        self._departures = 0
        # when messages are visible again that a dead process had polled
        self._polls_all_at: list[timedelta] = []

    def on_offer(self, queue: WorkQueue, delay: timedelta) -> None:
        """The queue has a message that is visible after ``delay``."""
        self._noted.put((self._clock.monotonic() + delay + _ROUNDING if delay else _NOW, queue))

    def is_told(self, since: timedelta) -> bool:
        """Whether this process has been told of all that others have offered since then."""
        return self._heard_since <= since and self._is_within(_TOLD_FOR, self._heard)

    def exchange(
        self, poll: Callable[[WorkQueue], None], poll_all: Callable[[], None], *, waits: bool
    ) -> None:
        """Tell, and hear what others tell if requests wait. ``poll`` is called with queues that have new
        work, ``poll_all`` where there may be some. Raises ServiceUnavailable: the next call makes up for it.
        """
        now = self._clock.monotonic()
        while not self._noted.empty():
            self._untold.add(self._noted.get())
        offers = {offer for offer in self._untold if offer[0] <= now}
        if offers:
            self._tell(offers, now)
        for visible, queue in offers:
            if visible > _NOW:
                poll(queue)
        if waits:
            self._hear(now, poll, poll_all)

    def _tell(self, offers: set[tuple[timedelta, WorkQueue]], now: timedelta) -> None:
        self._number += 1
        kept = {queue: offer for queue, offer in self._told.items() if now - offer[1] < _KEPT}
        self._told = {**kept, **{queue: (self._number, now) for _, queue in offers}}
        self._processes.tell({queue: number for queue, (number, _) in self._told.items()})
        self._untold -= offers

    def _hear(self, now: timedelta, poll: Callable[[WorkQueue], None], poll_all: Callable[[], None]) -> None:
        self._processes.read_others()
        if not self._is_within(_TOLD_FOR, self._heard):
            self._heard_since = now
        self._heard = now
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
