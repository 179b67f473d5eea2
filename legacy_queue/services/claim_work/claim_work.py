"""claimWork: polls the queues of legacy workers on behalf of a worker, and claims what it finds."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import structlog

from legacy_queue.domain.call_statistics import CLAIM_WORK, TODAYS_CLAIM_WORK
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.task import Worker
from legacy_queue.domain.worker_record import WorkerPath, worker_path
from legacy_queue.ports import Clock
from legacy_queue.services.claim_work.work_poller import QueueAndMessage, WaitingRequest, WorkPoller
from legacy_queue.services.concurrency import Threads, map_concurrently
from legacy_queue.services.tasks.claims import Claims
from legacy_queue.services.workers.workers import Workers

log = structlog.get_logger()

ClaimAnswer = Mapping[str, Any]  # the body of an answer of claimTask

_RETRY_AFTER = timedelta(seconds=2)  # when a message is visible again after its claim has failed


class ClaimWork:
    """Answers claimWork. A request waits for work until the ``timeout``."""

    def __init__(
        self,
        poller: WorkPoller,
        claims: Claims,
        workers: Workers,
        clock: Clock,
        timeout: timedelta,
        stopping: threading.Event,
        threads: Threads,
    ) -> None:
        """Once ``stopping`` is set, every waiting request gets an empty answer."""
        self._poller = poller
        self._claims = claims
        self._workers = workers
        self._clock = clock
        self._timeout = timeout
        self._stopping = stopping
        self._threads = threads

    def claim(
        self,
        provisioner_id: str,
        worker_type: str,
        worker: Worker,
        count: int,
        is_disconnected: Callable[[], bool],
        names_task_queue: bool = False,
        max_wait: timedelta | None = None,
    ) -> Mapping[str, Any]:
        """Returns the body for the answer: up to ``count`` claims, as soon as there are any.

        After the timeout there are none. A quarantined worker gets none. If the client has disconnected,
        nothing stays claimed. ``names_task_queue``: the client called by taskQueueId. If the timeout or
        ``max_wait`` is 0, the answer comes after one poll of each queue. Raises ServiceUnavailable.
        """
        method = TODAYS_CLAIM_WORK if names_task_queue else CLAIM_WORK
        wait = self._timeout if max_wait is None else min(max_wait, self._timeout)
        path = worker_path(provisioner_id, worker_type, worker)
        with self._workers.call(path, (method, ())) as claimed:
            now = self._clock.monotonic()
            wanted = 0 if self._workers.quarantined_until(path) else count
            request = WaitingRequest(wanted, is_disconnected, now, polls_once=not wait)
            claims = self._wait(request, now + wait, worker, path)
            claimed += [(claim["status"]["taskId"], claim["runId"]) for claim in claims]
        return {"tasks": claims}

    def _wait(
        self,
        request: WaitingRequest,
        end: timedelta,
        worker: Worker,
        path: WorkerPath,
    ) -> Sequence[ClaimAnswer]:
        claims: list[ClaimAnswer] = []
        while not self._stopping.is_set():
            try:
                polled = self._polled(request, end, path)
            except Exception as error:
                if not claims:
                    raise
                log.info("work-not-claimed", why=repr(error))
                break  # the claims that exist must reach the worker
            if not polled:
                break
            claimed = self._claim_polled(polled, worker)
            claims += claimed
            if len(claimed) == len(polled):
                break
            if claims:  # a duplicate was not claimed: try to fill its place, but without waiting
                request.count = request.count - len(claimed)
                request.polls_once = True
        if claims and request.is_disconnected():
            self._release_claims(claims, worker)
            return []
        return claims

    def _polled(self, request: WaitingRequest, end: timedelta, path: WorkerPath) -> Sequence[QueueAndMessage]:
        """Returns messages to claim now; if there are none, answer the request. Raises ServiceUnavailable."""
        pool_id = path.provisioner_id, path.worker_type
        polled = self._poller.wait(pool_id, request, end - self._clock.monotonic())
        with ExitStack() as undo:
            for queue, message in polled:
                undo.callback(self._poller.release, queue, message)
            if polled and not (request.is_disconnected() or self._workers.quarantined_until(path)):
                undo.pop_all()
                return polled
        return []

    def _claim_polled(self, polled: Sequence[QueueAndMessage], worker: Worker) -> list[ClaimAnswer]:
        def claim(queue_and_message: QueueAndMessage) -> ClaimAnswer | None:
            queue, message = queue_and_message
            try:
                return self._claims.claim_polled(queue, message, worker)
            except ServiceUnavailable as error:
                log.info("work-not-claimed", message_id=message.lease.message_id, why=error.message)
                self._poller.release(queue, message, _RETRY_AFTER)
            except Exception:
                # it becomes visible again
                log.exception("work-not-claimed", message_id=message.lease.message_id)
            return None

        return [claim for claim in map_concurrently(claim, polled, self._threads) if claim]

    def _release_claims(self, claims: Sequence[ClaimAnswer], worker: Worker) -> None:
        for claim in claims:
            try:
                self._claims.release_claim(claim, worker)
            except ServiceUnavailable:
                log.warning("claim-not-released", task_id=claim["status"]["taskId"])  # it expires
            except Exception:
                log.exception("claim-not-released", task_id=claim["status"]["taskId"])
