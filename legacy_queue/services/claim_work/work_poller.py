"""Polls the queues for the requests of this process that wait for work.

The rule
--------
One of the requests that wait for work of a pool polls for all of them. It is the leader. The leader polls the
queues of the pool in the order of their priority until each request has its messages. It leaves out the
queues that are known to be empty. Each message goes to the request that has the fewest. When the leader is
answered, another request leads.

A queue is known to be empty when a poll has found no message there. It is no longer known to be empty

- when this process offers a message there, or learns that another process has: the leader polls at once;
- when other processes may have offered messages (``poll_now``): the leader polls at once, too;
- 0.9 seconds after the poll, or later if requests wait for many pools: an offer may not have been announced.

The theory
----------
There are no threads except those of the requests. So the cost of a pool does not depend on the number of its
requests. A process does nothing if nobody asks it for work. And the thread that receives a message can claim.

If a poll misses a message, the message was offered after the poll began. So a queue counts as empty from the
time before its poll, and both an offer and a received message take that back. No offer is lost during a poll.

Polls that find nothing must not make other calls slow. So there are two limits: how many pools are polled at
the same time, and how many empty queues are polled in a second. An offer of this process ignores the first
limit: otherwise a worker could wait for seconds behind the polls of many idle pools.

What is ugly, and why it stays
------------------------------
- The flag of a request only says that its thread has something to do. The fields say what: the request is
  answered, or it must lead, or a queue must be polled. A thread cannot wait for several flags.
- A leader that is answered leaves the rest of its poll to the next leader. Otherwise its worker would wait
  for the polls of the others. The queues that it has not polled are not known to be empty, so nothing is
  missed.
- The answer to a leader can be late by one operation of the storage. One more thread for each pool would
  prevent that, but it would cost more than it is worth.
- A request with ``polls_once`` polls only for itself. It must poll each queue, even the ones that are known
  to be empty, and the others must not wait for that.
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

POLL_LEASE = timedelta(seconds=20)  # of a polled message; a claim takes less, even with retries
POLL_INTERVAL = timedelta(seconds=0.9)  # so work from other processes is found and claimed in a second
MAX_EMPTY_POLLS = 200  # empty queues that are polled in a second
MAX_EMPTY_POLLS_IF_ANNOUNCED = 1  # the same, if other processes announce their offers
_MARGIN = timedelta(seconds=0.1)  # queues that become due within this time are polled together
_CHECK_INTERVAL = timedelta(seconds=5)  # how often a connection is checked, besides before each message
_MAX_MESSAGES = 32  # Azure's limit for one receive
_MAX_IDLE = 1000  # pools without requests whose empty queues are remembered
_ONE_POLL = timedelta(seconds=20)  # time limit of a request that does not wait
_NO_DELAY = timedelta(0)
_LONG = timedelta(days=1)

PoolId = tuple[str, str]  # provisionerId and workerType
QueueAndMessage = tuple[WorkQueue, QueuedMessage]


@dataclass(eq=False)
class WaitingRequest:
    """A request that waits for up to ``count`` messages. If that is 0, it only waits."""

    count: int
    # must be cheap, and callable from any thread
    is_disconnected: Callable[[], bool]
    since: timedelta
    # whether it does not wait, and gets only what one poll of each queue finds
    polls_once: bool = False
    polled: list[QueueAndMessage] = field(default_factory=list)
    # whether it no longer waits
    is_answered: bool = False
    # why it cannot get any message
    failure: ServiceUnavailable | None = None
    # set when its thread has something to do
    flag: threading.Event = field(default_factory=threading.Event)

    @property
    def capacity(self) -> int:
        return self.count - len(self.polled)


@dataclass(eq=False)
class _Pool:
    id: PoolId
    # highest priority first
    queues: Sequence[WorkQueue]
    # in the order in which they came
    waiting: dict[WaitingRequest, None] = field(default_factory=dict)
    # one of the waiting requests; None until the next one leads, or if none wants messages
    leader: WaitingRequest | None = None
    # the queues that are known to be empty, and when each was polled
    empty: dict[WorkQueue, timedelta] = field(default_factory=dict)
    # when the leader last checked the connections of all requests
    checked: timedelta = _NO_DELAY
    # whether this process has offered a message since all queues were known to be empty
    has_offer: bool = False

    def wanted(self) -> int:
        """How many messages the requests wait for, but at most as many as one receive may ask for."""
        count = 0
        for request in self.waiting:
            count += request.capacity
            if count >= _MAX_MESSAGES:
                return _MAX_MESSAGES
        return count

    def flag_leader(self) -> None:
        """Wake the leader, because the set of queues that are known to be empty has changed."""
        if self.leader:
            self.leader.flag.set()


class WorkPoller:
    """Receives messages, and gives each to one waiting request."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        waiter: Waiter,
        gate: BackgroundGate,
        max_polls: int = 4,
        offers: Offers | None = None,
    ) -> None:
        """No queue is polled while the gate is closed.

        While ``max_polls`` pools are polled, another pool is polled only if this process has an offer for it.
        ``offers`` is None if processes do not announce their offers.
        """
        self._queues = queues
        self._clock = clock
        self._waiter = waiter
        self._gate = gate
        self._max_polls = max_polls
        self._offers = offers
        # the pools that requests wait for
        self._pools: dict[PoolId, _Pool] = {}
        # pools that requests have waited for: the next request need not poll queues that were empty just now
        self._idle: dict[PoolId, _Pool] = {}
        # how many pools are polled now
        self._polls = 0
        # the leaders that wait until fewer pools are polled, in the order in which they came
        self._held_up: dict[WaitingRequest, None] = {}
        self._has_ended = False
        # protects pools and requests
        self._lock = threading.Lock()

    def wait(self, pool_id: PoolId, request: WaitingRequest, timeout: timedelta) -> Sequence[QueueAndMessage]:
        """Returns messages for the request as soon as there are any. Then the caller is responsible for them.

        Returns none after the timeout, or when the client has disconnected. The timeout does not apply to a
        request that ``polls_once``. Raises ServiceUnavailable if no message can be got.
        """
        pool = self._join(pool_id, request)
        try:
            self._wait(pool, request, _ONE_POLL if request.polls_once else timeout)
        finally:
            # From here on ``_distribute`` gives it no message. One that came after ``request.polled`` is
            # taken below would be hidden from all workers until the end of its lease.
            with self._lock:
                self._leave(pool, request)
        polled = request.polled
        request.polled = []
        if request.failure and not polled:
            raise request.failure
        return polled

    def on_offer(self, queue: WorkQueue, delay: timedelta = _NO_DELAY) -> None:
        """Once the new message is visible, poll the queue in any process in which a request waits for it."""
        if self._offers:
            self._offers.on_offer(queue, delay)
        if delay <= _NO_DELAY:
            self.offered(queue)

    def offered(self, queue: WorkQueue) -> None:
        """Poll the queue at once if a request of this process waits for it: it has a visible message."""
        pool_id = queue.provisioner_id, queue.worker_type
        with self._lock:
            pool = self._pools.get(pool_id) or self._idle.get(pool_id)
            if pool:
                pool.empty.pop(queue, None)
                pool.has_offer = True
                pool.flag_leader()

    def poll_now(self) -> None:
        """Poll all queues for all waiting requests, because other processes may have offered work."""
        with self._lock:
            self._idle.clear()
            for pool in self._pools.values():
                pool.empty.clear()
                pool.flag_leader()

    def release(self, queue: WorkQueue, message: QueuedMessage, delay: timedelta = _NO_DELAY) -> None:
        """Make a polled message visible again after ``delay``. If that fails, its lease ends by itself."""
        with suppress(LeaseLost, ServiceUnavailable):
            self._queues.hide(queue, message.lease, message.text, delay)
            if self._offers:
                self._offers.on_offer(queue, delay)
        if delay <= _NO_DELAY:
            self.offered(queue)

    def end(self) -> None:
        """Answer all requests that wait now or later, because the process stops."""
        with self._lock:
            self._has_ended = True
        for pool in [*self._pools.values()]:
            self._answer(pool, [*pool.waiting])

    @property
    def pools(self) -> int:
        """How many pools have waiting requests now."""
        return len(self._pools)

    def waiting(self) -> int:
        """Returns how many requests wait now."""
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
        """Remove the request. If it was the leader, wake another one to lead. Safe to repeat."""
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
        """Wake the next held-up leader if it may poll. It stays the next one until it polls or leaves."""
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
        """Wait until the request is answered, its time is up, or its client has disconnected."""
        end = self._clock.monotonic() + timeout
        while True:
            request.flag.clear()  # before the fields are read, because it is set after they change
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
        """If the request leads, answer the requests whose clients have disconnected."""
        now = self._clock.monotonic()
        if pool.leader is request and pool.checked + _CHECK_INTERVAL <= now:
            pool.checked = now
            self._answer(pool, [each for each in [*pool.waiting] if each.is_disconnected()])

    def _until_poll(self, pool: _Pool, request: WaitingRequest) -> timedelta:
        """Returns how long the request may wait until it must poll, if it leads, or check its connection.

        If it must poll now, its poll counts from now on.
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
        """Returns how long until a queue must be polled. Forgets which queues were empty long ago."""
        now = self._clock.monotonic()
        since = min(pool.empty.values(), default=now)
        asked = (
            MAX_EMPTY_POLLS_IF_ANNOUNCED
            if self._offers and self._offers.knows_offers_since(since)
            else MAX_EMPTY_POLLS
        )
        # with more pools, each is polled less often
        interval = max(POLL_INTERVAL, timedelta(seconds=len(pool.queues) * len(self._pools) / asked))
        pool.empty = {queue: at for queue, at in pool.empty.items() if at + interval > now + _MARGIN}
        if len(pool.empty) < len(pool.queues):
            return _NO_DELAY
        pool.has_offer = False
        return since + interval - now

    def _poll(self, pool: _Pool, leader: WaitingRequest, end: timedelta) -> None:
        """Poll until the leader is answered, its time is up, or all queues have been polled."""
        failure = None
        try:
            with self._gate.pass_through():
                for queue in pool.queues:
                    self._receive(pool, queue)
                    if leader.is_answered or self._clock.monotonic() >= end:
                        return  # the next leader polls the others
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
        """Receive until no request wants a message, or the queue has fewer messages than were asked for."""
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
            # If it had fewer than asked for, it is empty, and the next queue may have more.
            if len(messages) < count:
                return

    def _distribute(self, pool: _Pool, queue: WorkQueue, messages: Sequence[QueuedMessage]) -> None:
        """Give each request one message after the other, unless its client has disconnected."""
        left = deque(messages)
        with self._lock:
            requests = deque(sorted(pool.waiting, key=lambda each: (len(each.polled), each.since)))
        while left and requests:
            request = requests.popleft()
            if request.is_disconnected():
                self._answer(pool, [request])
                continue
            with self._lock:
                # it wants no more, or its time was up just now and ``wait`` has already taken its messages
                if not request.capacity or request not in pool.waiting:
                    continue
                request.polled.append((queue, left.popleft()))
            # it goes to the end of the line: ten workers get one task each before one worker gets ten
            if request.capacity:
                requests.append(request)
            else:
                self._answer(pool, [request])
        for message in left:
            self.release(queue, message)
