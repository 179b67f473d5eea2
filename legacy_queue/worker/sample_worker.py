"""The worker's loop: find work, claim it, run it, and begin again."""

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from legacy_queue.worker.finding import AzurePolling, claim_work
from legacy_queue.worker.http_client import Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.task_run import TaskRun
from legacy_queue.worker.worker_settings import Context, OnStep, Protocol, Step, WorkerClock, WorkerSettings


class SampleWorker:
    """A worker that runs one task at a time.

    Calls ``on_step(step, fields)`` for each step as it happens, from any thread but never from two at once;
    it must return soon and may call ``stop``. Each log goes to standard output when its command has ended.
    """

    def __init__(self, settings: WorkerSettings, on_step: OnStep, clock: WorkerClock | None = None) -> None:
        self._settings, self._on_step = settings, on_step
        self._step_lock = threading.RLock()
        self._stopping = threading.Event()
        self._context = Context(settings, clock or WorkerClock(), self._notify, self._stopping)
        self._task_run: TaskRun | None = None

    def run(self) -> None:
        """Work until ``stop`` or ``max_tasks``. Raises Refused if the queue refuses this worker."""
        started = 0
        with closing(QueueClient(self._settings, self._context.clock)) as client:
            find: Callable[[], Claim | None] = AzurePolling(self._context, client).claim
            if self._settings.protocol is Protocol.CLAIMWORK:
                find = partial(claim_work, self._context, client)
            while not self._stopping.is_set() and started != self._settings.max_tasks:
                try:
                    claim = find()
                except Unavailable as failure:
                    self._notify(Step.FAILURE, detail=str(failure))
                    claim = None
                if claim:
                    started += 1
                    self._task_run = TaskRun(self._context, client, claim)
                    self._task_run.run()
                else:
                    self._context.clock.wait(self._stopping, self._settings.poll_interval)

    def stop(self) -> None:
        """Claim nothing more, stop a running task and report it worker-shutdown. Does not wait.

        A claimWork under way ends after its long poll; what it still claims is reported worker-shutdown.
        """
        self._stopping.set()
        if self._task_run:
            self._task_run.kill()

    def _notify(self, step: Step, **fields: Any) -> None:
        with self._step_lock:
            self._on_step(step, fields)
