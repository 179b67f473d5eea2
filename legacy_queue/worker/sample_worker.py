"""The worker's loop: find work, claim it, run it.

The calling thread polls and claims (``finding``); each task runs in a thread of its own.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from legacy_queue.worker.finding import AzurePolling, claim_work
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.task_log import LiveLogs, Output
from legacy_queue.worker.task_run import TaskRun
from legacy_queue.worker.worker_settings import (
    Context,
    OnStep,
    Protocol,
    Step,
    WorkerClock,
    WorkerSettings,
    log_step,
)

MAX_CLAIMS = 32  # messages that Azure gives to one poll, and tasks that the queue gives to one claimWork


class SampleWorker:
    """A worker that runs up to ``settings.capacity`` tasks at once.

    Calls ``on_step(step, fields)`` for each step as it happens, from any thread but never from two at once;
    it must return soon and may call ``stop``. The output of the commands goes to their logs and to
    ``output``; None is this process's standard output.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        on_step: OnStep = log_step,
        clock: WorkerClock | None = None,
        output: Output = None,
    ) -> None:
        self._settings, self._on_step, self._output = settings, on_step, output
        self._step_lock = threading.RLock()
        self._stopping = threading.Event()
        self._context = Context(settings, clock or WorkerClock(), self._notify, self._stopping)
        self._client = QueueClient(self._context, give_up=self._stopping)
        self._changed = threading.Condition()  # guards the next two
        self._running: dict[tuple[str, int], TaskRun] = {}
        self._started = 0  # tasks so far
        self._live_logs: LiveLogs | None = None

    def run(self) -> None:
        """Work until ``stop`` or ``max_tasks``, and until all started tasks have ended.

        Raises QueueRefused if the queue refuses this worker, after the running tasks have ended.
        """
        if self._settings.protocol is Protocol.CLAIMWORK:
            find: Callable[[int], Iterator[Claim]] = partial(claim_work, self._context, self._client)
        else:
            find = AzurePolling(self._context, self._client).claims
        if self._settings.live_log:
            self._live_logs = LiveLogs()
        try:
            while (free := self._wait_for_capacity()) > 0:
                for claim in find(free):
                    self._start(claim)
        finally:
            with self._changed:
                self._changed.wait_for(lambda: not self._running)
            self._client.close()
            if self._live_logs:
                self._live_logs.close()

    def stop(self) -> None:
        """Claim nothing more, stop the running tasks and report them worker-shutdown. Does not wait.

        Disconnects a claimWork under way. That loses no claim: the queue notices it. A request to an Azure
        queue is not disconnected: it is answered at once, and the worker may have a message to delete.
        """
        self._stopping.set()
        if self._settings.protocol is Protocol.CLAIMWORK:
            self._client.http.disconnect()
        with self._changed:
            for task_run in self._running.values():
                task_run.shut_down()
            self._changed.notify_all()

    def kill(self) -> None:
        """Kill the running commands, for a process that exits without a report."""
        for task_run in list(self._running.values()):
            task_run.kill()

    def _wait_for_capacity(self) -> int:
        """Wait until a task may be claimed; returns how many tasks may be claimed, 0 for the end."""
        with self._changed:
            capacity, max_tasks = self._settings.capacity, self._settings.max_tasks
            self._changed.wait_for(lambda: self._stopping.is_set() or len(self._running) < capacity)
            if self._stopping.is_set():
                return 0
            left = MAX_CLAIMS if max_tasks is None else max_tasks - self._started
            return min(capacity - len(self._running), left, MAX_CLAIMS)

    def _start(self, claim: Claim) -> None:
        """Run the claimed task in a thread, unless this worker runs it already.

        The queue gives the same worker the same claim again, for a second message of the run.
        """
        key = claim.task_id, claim.run_id
        if key in self._running:  # only this thread adds to it
            self._notify(Step.ALREADY_RUNNING, **claim.run)
            return
        task_run = TaskRun(self._context, claim, self._output, self._live_logs)
        with self._changed:
            if self._stopping.is_set():
                task_run.shut_down()
            threading.Thread(target=self._run_task, args=[key, task_run], daemon=True).start()
            self._running[key] = task_run
            self._started += 1

    def _run_task(self, key: tuple[str, int], task_run: TaskRun) -> None:
        try:
            task_run.run()
        finally:
            with self._changed:
                del self._running[key]
                self._changed.notify_all()

    def _notify(self, step: Step, **fields: Any) -> None:
        with self._step_lock:
            self._on_step(step, fields)
