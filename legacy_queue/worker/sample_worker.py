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
    """A worker that runs up to ``capacity`` tasks at a time, each in a thread that finds its own.

    Calls ``on_step(step, fields)`` for each step as it happens, from any thread but never from two at once;
    it must return soon and may call ``stop``. Each log goes to standard output when its command has ended.
    """

    def __init__(self, settings: WorkerSettings, on_step: OnStep, clock: WorkerClock | None = None) -> None:
        self._settings, self._on_step = settings, on_step
        self._step_lock = threading.RLock()
        self._stopping = threading.Event()
        self._context = Context(settings, clock or WorkerClock(), self._notify, self._stopping)
        self._lock = threading.Lock()
        self._begun = 0  # tasks that were found or are being looked for
        self._task_runs: dict[str, TaskRun] = {}
        self._failure: Exception | None = None

    def run(self) -> None:
        """Work until ``stop`` or ``max_tasks``. Raises Refused if the queue refuses this worker."""
        loops = [threading.Thread(target=self._try_loop, daemon=True) for _ in range(self._settings.capacity)]
        for loop in loops:
            loop.start()
        for loop in loops:
            loop.join()
        if self._failure:
            raise self._failure

    def _try_loop(self) -> None:
        try:
            self._loop()
        except Exception as failure:  # noqa: BLE001  raised by run
            self._failure = failure
            self.stop()

    def _loop(self) -> None:
        with closing(QueueClient(self._settings, self._context.clock)) as client:
            find: Callable[[], Claim | None] = AzurePolling(self._context, client).claim
            if self._settings.protocol is Protocol.CLAIMWORK:
                find = partial(claim_work, self._context, client)
            while not self._stopping.is_set() and self._begin():
                try:
                    claim = find()
                except Unavailable as failure:
                    self._notify(Step.FAILURE, detail=str(failure))
                    claim = None
                if claim and claim.path not in self._task_runs:  # of a doubled message it would run twice
                    self._task_runs[claim.path] = TaskRun(self._context, client, claim)
                    self._task_runs[claim.path].run()
                    del self._task_runs[claim.path]
                else:
                    with self._lock:
                        self._begun -= 1
                    self._context.clock.wait(self._stopping, self._settings.poll_interval)

    def stop(self) -> None:
        """Claim nothing more, stop running tasks and report them worker-shutdown. Does not wait.

        A claimWork under way ends after its long poll; what it still claims is reported worker-shutdown.
        """
        self._stopping.set()
        for task_run in [*self._task_runs.values()]:
            task_run.kill()

    def _begin(self) -> bool:
        """Whether there may be one more task."""
        with self._lock:
            if self._begun == self._settings.max_tasks:
                return False
            self._begun += 1
            return True

    def _notify(self, step: Step, **fields: Any) -> None:
        with self._step_lock:
            self._on_step(step, fields)
