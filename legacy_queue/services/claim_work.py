"""claimWork: a long poll on the queues that legacy workers poll themselves, and what is claimed there."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import PRIORITIES, WorkQueue, work_queues
from legacy_queue.domain.task import Worker
from legacy_queue.ports import Clock
from legacy_queue.services.claims import Claims
from legacy_queue.services.concurrency import Threads, map_concurrently
from legacy_queue.services.gate import Gate
from legacy_queue.services.usage import Usage
from legacy_queue.services.work_messages import WorkMessages
from legacy_queue.services.work_poller import Polled, Wait, WorkPoller
from legacy_queue.services.workers import Workers
from legacy_queue.stores import WorkQueues

log = structlog.get_logger()

Claim = Mapping[str, Any]

_LOOK_EVERY = timedelta(seconds=0.9)  # with polling and claiming, the work of others is found within a second
_POLLS = 200  # a second, at most, for all that is waited for in vain
_BRIEFLY = timedelta(seconds=1)  # enough for one look, where too many wait already
_TRY_AGAIN = timedelta(seconds=2)  # a message that could not be claimed now
_REMEMBERED = 1000  # worker types


class ClaimWork:
    """``longest`` is how long a request waits for work."""

    def __init__(
        self,
        queues: WorkQueues,
        messages: WorkMessages,
        claims: Claims,
        usage: Usage,
        workers: Workers,
        clock: Clock,
        longest: timedelta,
        stopping: threading.Event,
        gate: Gate,
        max_waiting: int,
        threads: Threads,
    ) -> None:
        """Once ``stopping`` is set, whoever waits is answered that there is no work.

        While ``max_waiting`` requests wait, any other waits for a second at most: each holds a connection.
        """
        self._queues, self._messages, self._claims = queues, messages, claims
        self._usage, self._workers, self._clock = usage, workers, clock
        self._longest, self._stopping, self._gate = longest, stopping, gate
        self._threads = threads
        self._places = threading.Semaphore(max_waiting)
        self._pollers: dict[tuple[str, str], WorkPoller] = {}
        self._lock = threading.Lock()
        messages.offered = self.offered

    def claim(
        self,
        provisioner_id: str,
        worker_type: str,
        worker: Worker,
        count: int,
        is_gone: Callable[[], bool],
        names_task_queue: bool = False,
        waits: bool = True,
    ) -> Mapping[str, Any]:
        """Up to ``count`` claims for the worker as soon as there are any, else none after a while: the body
        that claimWork answers.

        A worker in quarantine waits in vain. ``is_gone``: whether the client has hung up; then nothing stays
        claimed. ``names_task_queue``: it calls by taskQueueId. Unless the worker ``waits``, the answer comes
        after one look at each queue. Raises ServiceUnavailable.
        """
        self._usage.record_claim_work(provisioner_id, worker_type, worker, names_task_queue)
        self._workers.seen(provisioner_id, worker_type, worker)

        def is_quarantined() -> bool:
            return self._workers.is_quarantined(provisioner_id, worker_type, worker)

        request = Wait(0 if is_quarantined() else count, is_gone, self._clock.wall_time(), is_brief=not waits)
        poller = self._poller(provisioner_id, worker_type)
        has_place = self._places.acquire(blocking=False)
        try:
            longest = self._longest if has_place else min(self._longest, _BRIEFLY)
            claims = self._wait(poller, request, request.since + longest, worker, is_quarantined)
        finally:
            if has_place:
                self._places.release()
        if claims:
            runs = [(claim["status"]["taskId"], claim["runId"]) for claim in claims]
            self._workers.claimed(provisioner_id, worker_type, worker, runs)
        return {"tasks": claims}

    def _wait(
        self,
        poller: WorkPoller,
        request: Wait,
        end: datetime,
        worker: Worker,
        is_quarantined: Callable[[], bool],
    ) -> Sequence[Claim]:
        while not self._stopping.is_set():
            polled = poller.wait(request, end - self._clock.wall_time())
            if not polled:
                break
            if request.is_gone() or is_quarantined():
                for queue, message in polled:
                    self._messages.put_back(queue, message)
                break
            claims = self._claimed(polled, worker)
            if claims and request.is_gone():
                self._take_back(claims, worker)
                break
            if claims:
                return claims
        return []

    def offered(self, queue: WorkQueue) -> None:
        """There is a visible message in that queue: whoever waits for it is fed at once."""
        poller = self._pollers.get((queue.provisioner_id, queue.worker_type))
        if poller:
            poller.offered(queue)

    def waiting(self) -> int:
        """How many requests wait for work now."""
        return sum(one.waiting for one in self._pollers.values())

    def look_again(self) -> None:
        """Whoever waits looks for work at once: the clock was moved."""
        for poller in self._pollers.values():
            poller.look_again()

    def wake(self) -> None:
        """Whoever waits is answered, once ``stopping`` is set."""
        for poller in self._pollers.values():
            poller.wake()

    def _poller(self, provisioner_id: str, worker_type: str) -> WorkPoller:
        pool = provisioner_id, worker_type
        with self._lock:
            if len(self._pollers) >= _REMEMBERED:
                self._pollers = {name: one for name, one in self._pollers.items() if not one.is_idle}
            if pool not in self._pollers:
                poller = WorkPoller(
                    work_queues(*pool),
                    self._queues,
                    self._messages.put_back,
                    self.look_every,
                    self._clock,
                    self._stopping,
                    self._gate,
                )
                self._pollers = {**self._pollers, pool: poller}  # another one: somebody may be counting
            return self._pollers[pool]

    def look_every(self) -> timedelta:
        """For how long an empty queue is left alone: longer where very many worker types are waited for."""
        polled = sum(not one.is_idle for one in self._pollers.values())
        return max(_LOOK_EVERY, timedelta(seconds=len(PRIORITIES) * polled / _POLLS))

    def _claimed(self, polled: Sequence[Polled], worker: Worker) -> list[Claim]:
        def claim(one: Polled) -> Claim | None:
            queue, message = one
            try:
                return self._claims.claim_polled(queue, message, worker)
            except ServiceUnavailable as error:
                log.info("work-not-claimed", message_id=message.lease.message_id, why=error.message)
                self._messages.put_back(queue, message, _TRY_AGAIN)
            except Exception:
                log.exception("work-not-claimed", message_id=message.lease.message_id)  # it comes again
            return None

        return [claim for claim in map_concurrently(claim, polled, self._threads) if claim]

    def _take_back(self, claims: Sequence[Claim], worker: Worker) -> None:
        for claim in claims:
            try:
                self._claims.release_claim(claim, worker)
            except ServiceUnavailable:
                log.warning("claim-not-released", task_id=claim["status"]["taskId"])  # it expires
