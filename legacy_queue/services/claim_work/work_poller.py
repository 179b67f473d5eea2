"""The poller of a pool: in this process, it polls for every request that waits for work.

What it does often costs the same for any number of requests. It polls the queues, highest priority first,
until each request has its messages. It does not poll an empty queue again for a while, unless this process
has offered a run there, or is told that another has. It ends when no request waits.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports import Clock, LeaseLost, Waiter
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.claim_work.wakes import Wakes
from legacy_queue.services.gate import Gate
from legacy_queue.stores import WorkQueues

log = structlog.get_logger()

POLL_LEASE = timedelta(seconds=20)  # on a polled message: claiming takes less, retries to storage included
POLL_INTERVAL = timedelta(seconds=0.9)  # claiming included, other processes' work is found within a second
MAX_POLLS = 200  # in a second, of all pollers that find no work
MAX_TOLD_POLLS = 1  # where other processes tell of their offers
_CHECK_INTERVAL = timedelta(seconds=5)  # of connections: each is also checked before it gets a message
_POLL_MARGIN = timedelta(seconds=0.1)  # queues that become due within it are polled together
_MAX_MESSAGES = 32  # in a receive, by Azure
_NO_DELAY = timedelta(0)

QueueAndMessage = tuple[WorkQueue, QueuedMessage]


@dataclass(eq=False)
class WaitingRequest:
    """A request that waits for up to ``count`` messages. With 0 it only waits.

    ``is_disconnected`` is cheap, and any thread may call it. With ``polls_once`` the wait ends after one poll
    of the queues. ``polled`` are the messages of the request. ``failure`` is why it cannot get any.
    ``ready`` is set when it no longer waits.
    """

    count: int
    is_disconnected: Callable[[], bool]
    since: timedelta
    polls_once: bool = False
    polled: list[QueueAndMessage] = field(default_factory=list)
    failure: ServiceUnavailable | None = None
    ready: threading.Event = field(default_factory=threading.Event)

    @property
    def capacity(self) -> int:
        return self.count - len(self.polled)


@dataclass(frozen=True)
class SharedPolling:
    """What the pollers of a process share. They end once ``stopping`` is set, and pause while the gate is
    closed. ``polls`` bounds how many poll at a time, but for those that this process has offered a run.
    ``wakes`` is None where processes do not tell each other what they offer.
    """

    work_queues: WorkQueues
    clock: Clock
    waiter: Waiter
    stopping: threading.Event
    gate: Gate
    polls: threading.BoundedSemaphore
    wakes: Wakes | None = None
    # the pollers that are not idle
    running: set["WorkPoller"] = field(default_factory=set)

    def interval(self, queues: int, since: timedelta) -> timedelta:
        """For how long a queue that was empty then is not polled: longer where many pools are polled,
        with so many queues each, and where this process is told what others offer.
        """
        polls = MAX_TOLD_POLLS if self.wakes and self.wakes.is_told(since) else MAX_POLLS
        return max(POLL_INTERVAL, timedelta(seconds=queues * len(self.running) / polls))

    def release(self, queue: WorkQueue, message: QueuedMessage, delay: timedelta) -> None:
        """Make a polled message visible again after ``delay``, or at the end of its lease if that fails."""
        with suppress(LeaseLost, ServiceUnavailable):
            self.work_queues.hide(queue, message.lease, message.text, delay)
            if self.wakes:
                self.wakes.on_offer(queue, delay)


class WorkPoller:
    """Polls ``queues``, and gives each message to one waiting request."""

    def __init__(self, queues: Sequence[WorkQueue], shared: SharedPolling) -> None:
        self._queues = queues
        self._shared = shared
        self._clock = shared.clock
        self._waiting: dict[WaitingRequest, None] = {}  # in the order of their coming
        self._empty: dict[WorkQueue, timedelta] = {}  # when they were found empty
        self._offers: Counter[WorkQueue] = Counter()
        self._has_offer = False  # since the last poll
        self._polls_once: list[WaitingRequest] = []  # that await their poll
        self._served: list[WaitingRequest] = []  # that got messages in this poll
        self._checked_connections = timedelta(0)
        self._lock = threading.Lock()
        self._wake = threading.Event()

    @property
    def is_idle(self) -> bool:
        return self not in self._shared.running

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def wait(self, request: WaitingRequest, timeout: timedelta, *, starts: bool) -> Sequence[QueueAndMessage]:
        """The messages of the request, as soon as it has any: the caller is responsible for them.

        ``starts`` is what ``add`` returned. Raises ServiceUnavailable if it cannot get any.
        """
        if starts:
            try:
                threading.Thread(target=self._run, daemon=True).start()
            except RuntimeError:  # the system has no thread left: the next request tries again
                self._shared.running.discard(self)
                self._finish([*self._waiting], ServiceUnavailable("work cannot be polled now, try again"))
        self._shared.waiter.wait(request.ready, max(0.0, timeout.total_seconds()))
        # from here on ``_distribute`` gives it no message: what it took out below would be hidden from all
        # workers until the end of the lease, if another came after it
        self.remove(request)
        polled = request.polled
        request.polled = []
        if request.failure and not polled:
            raise request.failure
        return polled

    def add(self, request: WaitingRequest) -> bool:
        """The request waits from now on. Returns whether the caller must start the poller."""
        request.ready.clear()
        with self._lock:
            self._waiting[request] = None
            if request.polls_once:
                self._polls_once.append(request)
            # under the lock, as the end of ``_run`` is: a poller that has just found no request waiting ends,
            # and one that is seen as running polls for this request, too
            starts = self.is_idle
            self._shared.running.add(self)
        self._wake.set()
        return starts

    def remove(self, request: WaitingRequest) -> None:
        """The request gets no more messages."""
        with self._lock:
            self._waiting.pop(request, None)
            if not self._waiting:
                self._wake.set()

    def on_offer(self, queue: WorkQueue) -> None:
        """The queue has a visible message: poll it at once."""
        with self._lock:
            self._offers[queue] += 1
            self._empty.pop(queue, None)
            self._has_offer = True
        self._wake.set()

    def poll_now(self) -> None:
        """Poll all queues next, also those that were empty just now: others may have work."""
        with self._lock:
            self._offers.update(self._queues)
            self._empty.clear()
        self._wake.set()

    def end(self) -> None:
        """Answer the requests that wait now: the process stops."""
        self._finish([*self._waiting])
        self._wake.set()

    def poll_once(self) -> None:
        """Poll for the requests that wait now. Raises ServiceUnavailable."""
        with self._lock:
            self._has_offer = False
            polled_once = self._polls_once
            self._polls_once = []
            # such a request is promised a poll of each queue, also of those that were empty just now
            if polled_once:
                self._empty.clear()
        if self._left(self._checked_connections, _CHECK_INTERVAL) <= _POLL_MARGIN:
            self._checked_connections = self._clock.monotonic()
            self._finish([request for request in [*self._waiting] if request.is_disconnected()])
        try:
            for queue in self._queues:
                self._poll(queue)
        finally:
            served = self._served
            self._served = []
            self._finish([request for request in served if request.polled])
        self._finish(polled_once)

    def seconds_until_next_poll(self) -> float:
        """Until a queue is to be polled, or connections are to be checked."""
        with self._lock:
            if not any(request.capacity for request in self._waiting):
                return POLL_INTERVAL.total_seconds()
            untils = [self._until_due(queue) for queue in self._queues]
        return min(_CHECK_INTERVAL, *untils).total_seconds()

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._shared.stopping.is_set():
                self._finish([*self._waiting])
            # an offer of this process is polled without a turn: behind the polls of many idle pools, a
            # worker would get its task seconds late
            bound = nullcontext() if self._has_offer else self._shared.polls
            pause = 0.0
            try:
                with bound, self._shared.gate.pass_through():
                    self.poll_once()
                pause = self.seconds_until_next_poll()
            except ServiceUnavailable as error:
                self._finish([*self._waiting], error)
            except Exception:
                log.exception("poller-failed")
                self._finish([*self._waiting], ServiceUnavailable("work cannot be polled now, try again"))
            with self._lock:
                # a request that comes now finds the poller either running or ended, never in between
                if not self._waiting:
                    self._shared.running.discard(self)
                    return
            # ``_wake`` was cleared before the poll: what has set it since may have come too late for that
            self._shared.waiter.wait(self._wake, pause)

    def _by_need(self) -> list[WaitingRequest]:
        """The waiting requests: the fewest messages first, then the longest wait."""
        with self._lock:
            return sorted(self._waiting, key=lambda request: (len(request.polled), request.since))

    def _capacity(self) -> int:
        """How many messages the requests wait for."""
        with self._lock:
            return sum(request.capacity for request in self._waiting)

    def _finish(self, requests: Sequence[WaitingRequest], failure: ServiceUnavailable | None = None) -> None:
        with self._lock:
            for request in requests:
                self._waiting.pop(request, None)
                request.failure = failure
                request.ready.set()

    def _poll(self, queue: WorkQueue) -> None:
        """Poll until no request wants a message, or the queue had fewer messages than were requested."""
        is_full = True
        while is_full and self._until_due(queue) <= _POLL_MARGIN and (capacity := self._capacity()):
            # a run that is offered during the receive may be missing in its answer: then the queue does not
            # count as empty, and it was empty when it was asked, not when the answer came
            asked = self._clock.monotonic()
            offers = self._offers[queue]
            messages = self._shared.work_queues.receive(queue, min(capacity, _MAX_MESSAGES), POLL_LEASE)
            with self._lock:
                if not messages and self._offers[queue] == offers:
                    self._empty[queue] = asked
            self._distribute(queue, messages)
            # fewer than requested: the queue had no more, and the next one may
            is_full = len(messages) == min(capacity, _MAX_MESSAGES)

    def _distribute(self, queue: WorkQueue, messages: Sequence[QueuedMessage]) -> None:
        """Give each request a message in turn, unless its client has disconnected."""
        if not messages:
            return
        left = deque(messages)
        requests = deque(request for request in self._by_need() if request.capacity)
        while left and requests:
            request = requests.popleft()
            if request.is_disconnected():
                self._finish([request])
                continue
            with self._lock:
                # it has just timed out: ``wait`` has taken its messages already
                if request not in self._waiting:
                    continue
                request.polled.append((queue, left.popleft()))
                self._served.append(request)
            # behind the others: ten workers get one task each before one gets ten
            if request.capacity:
                requests.append(request)
            else:
                self._finish([request])
        for message in left:
            self._shared.release(queue, message, _NO_DELAY)
            self.on_offer(queue)

    def _until_due(self, queue: WorkQueue) -> timedelta:
        """How long the queue is not polled, since it was found empty."""
        empty = self._empty.get(queue)
        return self._left(empty, self._shared.interval(len(self._queues), empty)) if empty else _NO_DELAY

    def _left(self, since: timedelta, interval: timedelta) -> timedelta:
        """What is left of the interval since then."""
        return max(_NO_DELAY, since + interval - self._clock.monotonic())
