"""claimWork: a long poll on the queues that legacy workers poll themselves, and claims with its messages."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.task import Worker
from legacy_queue.domain.usage_key import CLAIM_WORK, TODAYS_CLAIM_WORK
from legacy_queue.ports import Clock
from legacy_queue.services.claims import Claims
from legacy_queue.services.concurrency import Threads, map_concurrently
from legacy_queue.services.poller_registry import PollerRegistry
from legacy_queue.services.usage import Usage
from legacy_queue.services.work_poller import PolledMessage, WaitingRequest, WorkPoller
from legacy_queue.services.workers import Workers

log = structlog.get_logger()

Claim = Mapping[str, Any]

_RETRY_AFTER = timedelta(seconds=2)  # for a message that could not be claimed


class ClaimWork:
    """A request waits for work until ``timeout``."""

    def __init__(
        self,
        pollers: PollerRegistry,
        claims: Claims,
        usage: Usage,
        workers: Workers,
        clock: Clock,
        timeout: timedelta,
        stopping: threading.Event,
        threads: Threads,
    ) -> None:
        """Once ``stopping`` is set, every waiting request gets an empty answer."""
        self._pollers, self._claims = pollers, claims
        self._usage, self._workers, self._clock = usage, workers, clock
        self._timeout, self._stopping, self._threads = timeout, stopping, threads

    def claim(
        self,
        provisioner_id: str,
        worker_type: str,
        worker: Worker,
        count: int,
        is_disconnected: Callable[[], bool],
        names_task_queue: bool = False,
        waits: bool = True,
    ) -> Mapping[str, Any]:
        """The body that claimWork answers: up to ``count`` claims as soon as there are any, none after the
        timeout.

        A quarantined worker gets none. When the client has disconnected, nothing stays claimed.
        ``names_task_queue``: the client called by taskQueueId. Unless the worker ``waits``, the answer comes
        after one poll of each queue. Raises ServiceUnavailable.
        """
        method = TODAYS_CLAIM_WORK if names_task_queue else CLAIM_WORK
        self._usage.record(provisioner_id, worker_type, method, worker.full_id)
        self._workers.record_activity(provisioner_id, worker_type, worker)

        def is_quarantined() -> bool:
            return self._workers.quarantined_until(provisioner_id, worker_type, worker) is not None

        now, wanted = self._clock.wall_time(), 0 if is_quarantined() else count
        request = WaitingRequest(wanted, is_disconnected, now, polls_once=not waits)
        poller = self._pollers.poller(provisioner_id, worker_type)
        claims = self._wait(poller, request, now + self._timeout, worker, is_quarantined)
        if claims:
            runs = [(claim["status"]["taskId"], claim["runId"]) for claim in claims]
            self._workers.record_claims(provisioner_id, worker_type, worker, runs)
        return {"tasks": claims}

    def _wait(
        self,
        poller: WorkPoller,
        request: WaitingRequest,
        end: datetime,
        worker: Worker,
        is_quarantined: Callable[[], bool],
    ) -> Sequence[Claim]:
        claims: list[Claim] = []
        while not self._stopping.is_set():
            try:
                polled = poller.wait(request, end - self._clock.wall_time())
            except ServiceUnavailable:
                if not claims:
                    raise
                break  # the claims must reach the worker
            if not polled:
                break
            if request.is_disconnected() or is_quarantined():
                for queue, message in polled:
                    self._pollers.release(queue, message)
                break
            claimed = self._claim_polled(polled, worker)
            claims += claimed
            if len(claimed) == len(polled):
                break
            if claims:  # a duplicate has left room: for what is there now, without a wait
                request.count, request.polls_once = request.count - len(claimed), True
        if claims and request.is_disconnected():
            self._release_claims(claims, worker)
            return []
        return claims

    def _claim_polled(self, polled: Sequence[PolledMessage], worker: Worker) -> list[Claim]:
        def claim(queue_and_message: PolledMessage) -> Claim | None:
            queue, message = queue_and_message
            try:
                return self._claims.claim_polled(queue, message, worker)
            except ServiceUnavailable as error:
                log.info("work-not-claimed", message_id=message.lease.message_id, why=error.message)
                self._pollers.release(queue, message, _RETRY_AFTER)
            except Exception:
                log.exception("work-not-claimed", message_id=message.lease.message_id)  # it is visible again
            return None

        return [claim for claim in map_concurrently(claim, polled, self._threads) if claim]

    def _release_claims(self, claims: Sequence[Claim], worker: Worker) -> None:
        for claim in claims:
            try:
                self._claims.release_claim(claim, worker)
            except ServiceUnavailable:
                log.warning("claim-not-released", task_id=claim["status"]["taskId"])  # it expires
