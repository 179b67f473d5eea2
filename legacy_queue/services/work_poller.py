"""The one poller of a worker type in this process: it polls for every request that waits for work.

What it costs does not grow with the requests. It polls the queues, highest priority first, until each request
has what it asked for. A queue that was seen empty is left alone for a while, unless this process has offered
something there meanwhile. When nobody waits any more, it ends.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Clock
from legacy_queue.services.gate import Gate
from legacy_queue.stores import ReceivedMessage, WorkQueues

log = structlog.get_logger()

LEASE = timedelta(seconds=20)  # on a polled message: claiming takes less, retries to storage included
_A_LOOK = timedelta(seconds=0.1)  # queues whose time comes within one are asked together
_LONGEST_SLEEP = 1.0  # seconds: somebody may hang up, and the process may end
_MOST = 32  # messages that Azure gives at once

Polled = tuple[WorkQueue, ReceivedMessage]


@dataclass(eq=False)
class Wait:
    """A request that waits for up to ``count`` messages, 0 for one that is only to wait.

    ``is_gone``: whether its client has hung up; cheap, and safe to ask from any thread. ``is_brief``: a look
    at the queues that finds nothing ends the wait. ``polled`` is what it got, and ``failure`` why it cannot
    get anything; ``ready`` is set once it waits no longer.
    """

    count: int
    is_gone: Callable[[], bool]
    since: datetime
    is_brief: bool = False
    polled: list[Polled] = field(default_factory=list)
    failure: ServiceUnavailable | None = None
    ready: threading.Event = field(default_factory=threading.Event)

    @property
    def room(self) -> int:
        return self.count - len(self.polled)


class WorkPoller:
    """``put_back`` is given what nobody waits for any more."""

    def __init__(
        self,
        queues: Sequence[WorkQueue],
        work_queues: WorkQueues,
        put_back: Callable[[WorkQueue, ReceivedMessage], None],
        look_every: Callable[[], timedelta],
        clock: Clock,
        stopping: threading.Event,
        gate: Gate,
    ) -> None:
        """For these queues, highest priority first. Once ``stopping`` is set, everybody goes with nothing.

        ``look_every`` says for how long an empty queue is left alone, at present. While the gate is closed,
        nothing is polled.
        """
        self._queues, self._work_queues, self._put_back = queues, work_queues, put_back
        self._look_every, self._clock, self._stopping = look_every, clock, stopping
        self._gate = gate
        self._waiting: set[Wait] = set()
        self._pause = look_every()
        self._empty: dict[WorkQueue, datetime] = {}  # when they were seen so
        self._offers: Counter[WorkQueue] = Counter()
        self._looked_for_gone: datetime | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_running = False

    @property
    def is_idle(self) -> bool:
        return not self._is_running

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def wait(self, request: Wait, timeout: timedelta) -> Sequence[Polled]:
        """What the request got in that time, at once when it got anything: the caller sees to it from here.

        Raises ServiceUnavailable where it cannot get anything.
        """
        if self.enter(request):
            threading.Thread(target=self._run, daemon=True).start()
        request.ready.wait(max(0.0, timeout.total_seconds()))
        self.leave(request)
        polled, request.polled = request.polled, []
        if request.failure and not polled:
            raise request.failure
        return polled

    def enter(self, request: Wait) -> bool:
        """The request waits from now on; whether there is nobody yet who looks for it."""
        request.ready.clear()
        with self._lock:
            self._waiting.add(request)
            starts, self._is_running = not self._is_running, True
        self._wake.set()
        return starts

    def leave(self, request: Wait) -> None:
        """Nothing is handed to the request any more."""
        with self._lock:
            self._waiting.discard(request)
            if not self._waiting:
                self._wake.set()

    def offered(self, queue: WorkQueue) -> None:
        """There is a visible message in that queue."""
        with self._lock:
            self._offers[queue] += 1
            self._empty.pop(queue, None)
        self._wake.set()

    def look_again(self) -> None:
        """Look at once, at queues that were empty just now too: the clock was moved."""
        for queue in self._queues:
            self.offered(queue)

    def wake(self) -> None:
        """Look at once."""
        self._wake.set()

    def look(self) -> None:
        """Poll once for those that wait now. Raises ServiceUnavailable."""
        self._pause = self._look_every()
        brief = [one for one in self._line() if one.is_brief]
        if brief:
            with self._lock:
                self._empty.clear()
        if not self._is_recent(self._looked_for_gone):
            self._looked_for_gone = self._clock.wall_time()
            self._send_away([one for one in self._line() if one.is_gone()])
        try:
            for queue in self._queues:
                self._poll(queue)
        finally:
            self._send_away([one for one in self._line() if one.polled or one in brief])

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._stopping.is_set():
                self._send_away(self._line())
            try:
                with self._gate.pass_through():
                    self.look()
            except ServiceUnavailable as error:
                self._send_away(self._line(), error)
            except Exception:
                log.exception("poller-failed")
                self._send_away(self._line(), ServiceUnavailable("work cannot be polled now, try again"))
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
            self._wake.wait(min(_LONGEST_SLEEP, self.until_next_look()))

    def _line(self) -> list[Wait]:
        """Who waits: who has the fewest messages first, then who has waited longest."""
        with self._lock:
            return sorted(self._waiting, key=lambda one: (len(one.polled), one.since))

    def _room(self) -> int:
        """How many messages are waited for."""
        with self._lock:
            return sum(one.room for one in self._waiting)

    def _send_away(self, requests: Sequence[Wait], failure: ServiceUnavailable | None = None) -> None:
        with self._lock:
            for one in requests:
                self._waiting.discard(one)
                one.failure = failure
                one.ready.set()

    def _poll(self, queue: WorkQueue) -> None:
        """Until nobody has room, or the queue had fewer messages than were asked for."""
        is_full = True
        while is_full and not self._is_recent(self._empty.get(queue)) and (room := self._room()):
            asked, offers = self._clock.wall_time(), self._offers[queue]
            messages = self._work_queues.receive(queue, min(room, _MOST), LEASE)
            with self._lock:
                if not messages and self._offers[queue] == offers:
                    self._empty[queue] = asked
            self._hand_out(queue, messages)
            is_full = len(messages) == min(room, _MOST)

    def _hand_out(self, queue: WorkQueue, messages: Sequence[ReceivedMessage]) -> None:
        """One message for each in turn; none for who is gone."""
        left, line = deque(messages), deque(one for one in self._line() if one.room)
        while left and line:
            one = line.popleft()
            if one.is_gone():
                self._send_away([one])
                continue
            with self._lock:
                if one not in self._waiting:  # its time was over in this moment
                    continue
                one.polled.append((queue, left.popleft()))
            if one.room:
                line.append(one)
            else:
                self._send_away([one])
        for message in left:
            self._put_back(queue, message)

    def _is_recent(self, seen: datetime | None) -> bool:
        """Whether that was looked at so lately that it is left alone."""
        return seen is not None and timedelta(0) <= self._clock.wall_time() - seen < self._pause - _A_LOOK

    def until_next_look(self) -> float:
        """Seconds until a queue is to be asked again, or the hung up to be looked for."""
        if not self._room():
            return self._pause.total_seconds()
        now = self._clock.wall_time()
        with self._lock:
            oldest = min(self._empty.get(queue, now - self._pause) for queue in self._queues)
        return min(self._pause, max(timedelta(0), oldest + self._pause - now)).total_seconds()
