"""Polls for the requests of this process that wait for work.

The rule
--------
Of the requests that wait for work of a pool, one polls for all: the leader. It asks the pool's queues in the
order of their priority, except those that are known to be empty, until each request has its messages. Each
message goes to the request that has the fewest. When the leader is answered, another request leads.

A queue is known to be empty once it was asked and had no message. This ends

- when this process offers a message there, or is told that another process has: the leader asks at once;
- when other processes may have offered messages (``poll_now``): the leader asks at once, too;
- 0.9 seconds after it was asked, or later if requests wait for many pools: somebody may not have told.

The theory
----------
There are no threads but those of the requests. So a pool costs the same for any number of requests, a process
that nobody asks for work does nothing, and the thread that has polled a task can claim it.

A message that a poll has missed was offered after its queue was asked. So a queue counts as empty from before
it is asked, and both an offer and a message take that back. No offer is lost while an answer is under way.

Polls that find nothing must not slow other calls. Two bounds see to that: how many pools are polled at a
time, and how many empty queues are asked in a second. An offer of this process goes around the first: behind
the polls of many idle pools, a worker would get its task seconds late.

What is ugly, and why it stays
------------------------------
- The flag of a request only says that its thread has something to do. The fields say what: it is answered,
  or it is to lead, or a queue is to be asked. A thread cannot wait for several flags.
- A leader that is answered leaves the rest of its poll to the next one. Otherwise, its worker would wait for
  the polls of the others. The queues that it has not asked are not known to be empty, so nothing is missed.
- The answer of a leader can be late by one operation of the storage. A thread of its own for each pool would
  prevent that, and would cost more than it gives.
- With ``polls_once`` a request polls for itself alone: it is promised a poll of each queue, also of those
  that are known to be empty, and the others must not wait for that.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.ports import Clock, LeaseLost, Waiter
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.process.offers import Offers
from legacy_queue.stores import WorkQueues

log = structlog.get_logger()

POLL_LEASE = timedelta(seconds=20)  # on a polled message: claiming takes less, retries to storage included
POLL_INTERVAL = timedelta(seconds=0.9)  # claiming included, other processes' work is found within a second
MAX_ASKED = 200  # empty queues in a second
MAX_ASKED_IF_TOLD = 1  # where other processes tell of their offers
_MARGIN = timedelta(seconds=0.1)  # queues that become due within it are asked together
_CHECK_INTERVAL = timedelta(seconds=5)  # of a connection: it is also checked before it gets a message
_MAX_MESSAGES = 32  # in a receive, by Azure
_MAX_IDLE = 1000  # pools that nobody waits for, whose empty queues are remembered
_ONE_POLL = timedelta(seconds=20)  # at most, for a request that does not wait
_NO_DELAY = timedelta(0)
_LONG = timedelta(days=1)

PoolId = tuple[str, str]  # provisionerId and workerType
QueueAndMessage = tuple[WorkQueue, QueuedMessage]


@dataclass(eq=False)
class WaitingRequest:
    """A request that waits for up to ``count`` messages. With 0 it only waits."""

    count: int
    # cheap, and safe to call from any thread
    is_disconnected: Callable[[], bool]
    since: timedelta
    # it does not wait: it gets what one poll of each queue finds
    polls_once: bool = False
    polled: list[QueueAndMessage] = field(default_factory=list)
    # it no longer waits
    is_answered: bool = False
    # why it cannot get any message
    failure: ServiceUnavailable | None = None
    # its thread has something to do
    flag: threading.Event = field(default_factory=threading.Event)

    @property
    def capacity(self) -> int:
        return self.count - len(self.polled)


@dataclass(eq=False)
class _Pool:
    id: PoolId
    # highest priority first
    queues: Sequence[WorkQueue]
    # in the order of their coming
    waiting: dict[WaitingRequest, None] = field(default_factory=dict)
    # one of these; None while the next one is about to lead, or if none wants messages
    leader: WaitingRequest | None = None
    # the queues that are known to be empty, and when each was asked
    empty: dict[WorkQueue, timedelta] = field(default_factory=dict)
    # when the leader last checked the connections of all
    checked: timedelta = _NO_DELAY
    # this process has offered a message since all queues were known to be empty
    has_offer: bool = False

    def wanted(self) -> int:
        """How many messages the requests wait for, counted up to the most that a receive may ask for."""
        count = 0
        for request in self.waiting:
            count += request.capacity
            if count >= _MAX_MESSAGES:
                return _MAX_MESSAGES
        return count

    def flag_leader(self) -> None:
        """The queues that are known to be empty are others than before."""
        if self.leader:
            self.leader.flag.set()


class WorkPoller:
    """Gives each message that it receives to one waiting request."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        waiter: Waiter,
        gate: BackgroundGate,
        max_polls: int = 4,
        offers: Offers | None = None,
    ) -> None:
        """It pauses while the gate is closed. While ``max_polls`` pools are polled, no other pool is but
        one with an offer. ``offers`` is None where processes do not tell each other what they offer.
        """
        self._queues = queues
        self._clock = clock
        self._waiter = waiter
        self._gate = gate
        self._max_polls = max_polls
        self._offers = offers
        # those that requests wait for
        self._pools: dict[PoolId, _Pool] = {}
        # those that requests waited for last: the next one asks no queue that was empty just now
        self._idle: dict[PoolId, _Pool] = {}
        # how many pools are polled now
        self._polls = 0
        # the leaders that wait until there are fewer, in the order of their coming
        self._held_up: dict[WaitingRequest, None] = {}
        self._has_ended = False
        # of pools and requests
        self._lock = threading.Lock()

    def wait(self, pool_id: PoolId, request: WaitingRequest, timeout: timedelta) -> Sequence[QueueAndMessage]:
        """The messages of the request, as soon as it has any: the caller is responsible for them.

        None after the timeout, which one that ``polls_once`` does not have, and when the client has
        disconnected. Raises ServiceUnavailable if it cannot get any.
        """
        pool = self._join(pool_id, request)
        try:
            self._wait(pool, request, _ONE_POLL if request.polls_once else timeout)
        finally:
            # from here on ``_distribute`` gives it no message: what it took out below would be hidden from
            # all workers until the end of the lease, if another came after it
            with self._lock:
                self._leave(pool, request)
        polled = request.polled
        request.polled = []
        if request.failure and not polled:
            raise request.failure
        return polled

    def on_offer(self, queue: WorkQueue, delay: timedelta = _NO_DELAY) -> None:
        """Poll the queue once its new message is visible, in any process, if a request waits for it."""
        if self._offers:
            self._offers.on_offer(queue, delay)
        if delay <= _NO_DELAY:
            self.offered(queue)

    def offered(self, queue: WorkQueue) -> None:
        """The queue has a visible message: poll it at once if a request of this process waits for it."""
        pool_id = queue.provisioner_id, queue.worker_type
        with self._lock:
            pool = self._pools.get(pool_id) or self._idle.get(pool_id)
            if pool:
                pool.empty.pop(queue, None)
                pool.has_offer = True
                pool.flag_leader()

    def poll_now(self) -> None:
        """Poll all queues for all waiting requests: there may be work that this process did not offer."""
        with self._lock:
            self._idle.clear()
            for pool in self._pools.values():
                pool.empty.clear()
                pool.flag_leader()

    def release(self, queue: WorkQueue, message: QueuedMessage, delay: timedelta = _NO_DELAY) -> None:
        """Make a polled message visible again after ``delay``, or at the end of its lease if that fails."""
        with suppress(LeaseLost, ServiceUnavailable):
            self._queues.hide(queue, message.lease, message.text, delay)
            if self._offers:
                self._offers.on_offer(queue, delay)
        if delay <= _NO_DELAY:
            self.offered(queue)

    def end(self) -> None:
        """Answer all requests that wait now or later: the process stops."""
        with self._lock:
            self._has_ended = True
        for pool in [*self._pools.values()]:
            self._answer(pool, [*pool.waiting])

    @property
    def pools(self) -> int:
        """For how many pools requests wait now."""
        return len(self._pools)

    def waiting(self) -> int:
        """How many requests wait now."""
        return sum(len(pool.waiting) for pool in [*self._pools.values()])

    def _join(self, pool_id: PoolId, request: WaitingRequest) -> _Pool:
        with self._lock:
            request.is_answered = self._has_ended
            if request.polls_once:
                return _Pool(pool_id, work_queues(*pool_id), {request: None}, request)
            pool = self._pools.get(pool_id) or self._idle.pop(pool_id, None)
            pool = pool or _Pool(pool_id, work_queues(*pool_id))
            self._pools[pool_id] = pool
            pool.waiting[request] = None
        return pool

    def _leave(self, pool: _Pool, request: WaitingRequest) -> None:
        """The request no longer waits. If it was the leader, another one is. Safe to repeat."""
        pool.waiting.pop(request, None)
        self._held_up.pop(request, None)
        self._flag_held_up()
        if pool.leader is request:
            pool.leader = None
        if not pool.leader and (next_one := next((each for each in pool.waiting if each.count), None)):
            next_one.flag.set()
        if not pool.waiting and self._pools.get(pool.id) is pool:
            del self._pools[pool.id]
            self._idle[pool.id] = pool
            if len(self._idle) > _MAX_IDLE:
                del self._idle[next(iter(self._idle))]

    def _flag_held_up(self) -> None:
        """Let the next leader poll if it may. It stays the next one until it polls or leaves."""
        if self._held_up and self._polls < self._max_polls:
            next(iter(self._held_up)).flag.set()

    def _answer(
        self, pool: _Pool, requests: Iterable[WaitingRequest], failure: ServiceUnavailable | None = None
    ) -> None:
        with self._lock:
            for request in requests:
                self._leave(pool, request)
                request.failure = failure
                request.is_answered = True
                request.flag.set()

    def _wait(self, pool: _Pool, request: WaitingRequest, timeout: timedelta) -> None:
        """Return when the request is answered, or its time is up, or its client has disconnected."""
        end = self._clock.monotonic() + timeout
        while True:
            request.flag.clear()  # first: it is set after what it stands for
            left = end - self._clock.monotonic()
            if request.is_answered or left <= _NO_DELAY:
                return
            self._check_connections(pool, request)
            pause = self._until_poll(pool, request)
            if pause <= _NO_DELAY:
                self._poll(pool, request, end)
                if request.polls_once:
                    return
                continue
            is_flagged = self._waiter.wait(request.flag, min(pause, left).total_seconds())
            if not is_flagged and (left <= pause or request.is_disconnected()):
                return

    def _check_connections(self, pool: _Pool, request: WaitingRequest) -> None:
        """Answer the requests whose clients have disconnected, if the request leads."""
        now = self._clock.monotonic()
        if pool.leader is request and pool.checked + _CHECK_INTERVAL <= now:
            pool.checked = now
            self._answer(pool, [each for each in [*pool.waiting] if each.is_disconnected()])

    def _until_poll(self, pool: _Pool, request: WaitingRequest) -> timedelta:
        """When the request must poll, if it leads; at the latest when it must check its connection. If that
        is now, its poll counts from now on.
        """
        with self._lock:
            if request.count and not pool.leader:
                pool.leader = request
            if pool.leader is not request:
                return _LONG if request.count else _CHECK_INTERVAL
            pause = self._until_due(pool)
            if pause <= _NO_DELAY and self._polls >= self._max_polls and not pool.has_offer:
                self._held_up[request] = None
                return _CHECK_INTERVAL
            self._held_up.pop(request, None)
            self._polls += pause <= _NO_DELAY
            self._flag_held_up()
            return min(_CHECK_INTERVAL, pause)

    def _until_due(self, pool: _Pool) -> timedelta:
        """When a queue of the pool must be asked. What is known for too long is forgotten."""
        now = self._clock.monotonic()
        since = min(pool.empty.values(), default=now)
        asked = MAX_ASKED_IF_TOLD if self._offers and self._offers.is_told(since) else MAX_ASKED
        # with more pools, each is polled less often
        interval = max(POLL_INTERVAL, timedelta(seconds=len(pool.queues) * len(self._pools) / asked))
        pool.empty = {queue: at for queue, at in pool.empty.items() if at + interval > now + _MARGIN}
        if len(pool.empty) < len(pool.queues):
            return _NO_DELAY
        pool.has_offer = False
        return since + interval - now

    def _poll(self, pool: _Pool, leader: WaitingRequest, end: timedelta) -> None:
        """Poll until the leader is answered, or its time is up, or all queues were asked."""
        failure = None
        try:
            with self._gate.pass_through():
                for queue in pool.queues:
                    self._receive(pool, queue)
                    if leader.is_answered or self._clock.monotonic() >= end:
                        return  # the next leader asks the others
        except ServiceUnavailable as error:
            failure = error
        except Exception:
            log.exception("poller-failed")
            failure = ServiceUnavailable("work cannot be polled now, try again")
        finally:
            with self._lock:
                self._polls -= 1
                self._flag_held_up()
        if failure:
            with self._lock:
                pool.empty.clear()
        self._answer(pool, [each for each in [*pool.waiting] if each.polled or failure], failure)

    def _receive(self, pool: _Pool, queue: WorkQueue) -> None:
        """Ask until no request wants a message, or the queue had fewer messages than were requested."""
        while True:
            with self._lock:
                if queue in pool.empty:
                    return
                count = pool.wanted()
                if not count:
                    return
                pool.empty[queue] = self._clock.monotonic()
            messages = self._queues.receive(queue, count, POLL_LEASE)
            if messages:
                with self._lock:
                    pool.empty.pop(queue, None)
                self._distribute(pool, queue, messages)
            # fewer than requested: the queue had no more, and the next one may
            if len(messages) < count:
                return

    def _distribute(self, pool: _Pool, queue: WorkQueue, messages: Sequence[QueuedMessage]) -> None:
        """Give each request a message in turn, unless its client has disconnected."""
        left = deque(messages)
        with self._lock:
            requests = deque(sorted(pool.waiting, key=lambda each: (len(each.polled), each.since)))
        while left and requests:
            request = requests.popleft()
            if request.is_disconnected():
                self._answer(pool, [request])
                continue
            with self._lock:
                # it wants none, or its time was just up: ``wait`` has taken its messages already
                if not request.capacity or request not in pool.waiting:
                    continue
                request.polled.append((queue, left.popleft()))
            # behind the others: ten workers get one task each before one gets ten
            if request.capacity:
                requests.append(request)
            else:
                self._answer(pool, [request])
        for message in left:
            self.release(queue, message)
