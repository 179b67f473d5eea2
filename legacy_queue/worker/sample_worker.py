"""The worker's loop: find work, claim it, run it, and begin again.

The calling thread alone finds and claims; each task runs in a thread of its own. So after a stop at most one
claim arrives, and no run is claimed twice. No task is reported worker-shutdown before that: its retry would
be claimed here.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

from legacy_queue.worker.finding import AzurePolling, claim_work
from legacy_queue.worker.http_client import Refused
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.task_run import TaskRun
from legacy_queue.worker.worker_settings import Context, OnStep, Protocol, Step, WorkerClock, WorkerSettings


class SampleWorker:
    """A worker that runs up to ``capacity`` tasks at a time.

    Calls ``on_step(step, fields)`` for each step as it happens, from any thread but never from two at once;
    it must return soon and may call ``stop``. Each log goes to standard output when its task is reported.
    """

    def __init__(self, settings: WorkerSettings, on_step: OnStep, clock: WorkerClock | None = None) -> None:
        self._settings = settings
        self._on_step = on_step
        self._step_lock = threading.RLock()
        self._context = Context(settings, clock or WorkerClock(), self._notify)
        self._stopping = self._context.stopping
        self._client = QueueClient(self._context)
        self._free = threading.Semaphore(settings.capacity)
        self._running: dict[tuple[str, int], TaskRun] = {}  # only the loop adds to it
        self._claim: Callable[[], Claim | None] = AzurePolling(self._context, self._client).claim
        if settings.protocol is Protocol.CLAIMWORK:
            self._claim = partial(claim_work, self._context, self._client)

    def run(self) -> None:
        """Work until ``stop`` or ``max_tasks``, and until all started tasks have ended.

        Raises Refused if the queue refuses this worker, after the running tasks have ended.
        """
        with closing(self._client), ThreadPoolExecutor(self._settings.capacity) as threads:
            try:
                self._claim_tasks(threads)
            finally:
                self._context.no_more_claims.set()

    def stop(self) -> None:
        """Claim nothing more, stop running tasks and report them worker-shutdown. Does not wait."""
        self._stopping.set()
        self._free.release()  # the loop waits for it
        for task_run in list(self._running.values()):
            task_run.kill()

    def _claim_tasks(self, threads: ThreadPoolExecutor) -> None:
        started = 0
        max_tasks = self._settings.max_tasks
        while started != max_tasks and self._free.acquire() and not self._stopping.is_set():
            claim = self._find()
            if claim and (run := (claim.task_id, claim.run_id)) not in self._running:
                self._running[run] = TaskRun(self._context, claim)
                threads.submit(self._run_task, run)
                started += 1
            else:
                self._free.release()
                self._context.clock.wait(self._stopping, self._settings.poll_interval)

    def _find(self) -> Claim | None:
        try:
            return self._claim()
        except Refused:
            raise
        except Exception as failure:  # noqa: BLE001  whatever the queue has answered, it is asked again
            if not self._stopping.is_set():
                self._notify(Step.FAILURE, detail=f"{type(failure).__name__}: {failure}")
            return None

    def _run_task(self, run: tuple[str, int]) -> None:
        try:
            self._running[run].run()
        finally:
            del self._running[run]
            self._free.release()

    def _notify(self, step: Step, **fields: Any) -> None:
        with self._step_lock:
            self._on_step(step, fields)
