"""The worker's loop: find work, claim it, run it.

One thread polls and claims, as ``azure_polling`` or ``claim_work`` describes it; each task runs in a thread
of its own. The protocols differ in how work is found, and in nothing else.
"""

import threading
from typing import Any

from legacy_queue.worker.azure_polling import AzurePolling
from legacy_queue.worker.claim_work import ClaimWork
from legacy_queue.worker.clock import Clock
from legacy_queue.worker.http import Http
from legacy_queue.worker.live_log import LiveLogs
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.settings import Protocol, WorkerSettings
from legacy_queue.worker.steps import OnStep, Step, log_step
from legacy_queue.worker.task_log import Output
from legacy_queue.worker.task_run import TaskRun

MOST_AT_ONCE = 32  # messages that Azure gives to one poll, and tasks that the queue gives to one claimWork


class Worker:
    """A worker that runs up to ``settings.capacity`` tasks at once.

    ``on_step(step, fields)`` is told each step as it happens, by whichever thread takes it but never by
    two at once; it must return soon and may call ``stop``. What the commands print goes to ``output``
    as well as to their logs; None is this process's own standard output.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        on_step: OnStep = log_step,
        clock: Clock | None = None,
        output: Output = None,
    ) -> None:
        self._settings = settings
        self._on_step = on_step
        self._clock = clock or Clock()
        self._output = output
        self._stopping = threading.Event()
        self._telling = threading.RLock()
        self._changed = threading.Condition()  # guards the next two
        self._running: dict[tuple[str, int], TaskRun] = {}
        self._taken = 0  # tasks started so far
        self._live_logs: LiveLogs | None = None
        polling = ClaimWork if settings.protocol is Protocol.CLAIMWORK else AzurePolling
        self._polling = polling(settings, self._clock, self._stopping, self._tell, self._start)

    def run(self) -> int:
        """Work until ``stop`` or ``max_tasks``; returns how many tasks were started, all of them ended.

        Raises QueueRefused when the queue refuses to be polled, after the tasks at hand have ended.
        """
        if self._settings.live_log:
            self._live_logs = LiveLogs()
        try:
            while (room := self._wait_for_room()) > 0:
                if pause := self._polling.poll(room).total_seconds():
                    self._clock.wait(self._stopping, pause)
        finally:
            with self._changed:
                self._changed.wait_for(lambda: not self._running)
            self._polling.close()
            if self._live_logs:
                self._live_logs.close()
        return self._taken

    def stop(self) -> None:
        """Claim nothing more, stop the tasks at hand and report them worker-shutdown. Does not wait."""
        self._stopping.set()
        self._polling.hang_up()
        with self._changed:
            for task_run in self._running.values():
                task_run.shut_down()
            self._changed.notify_all()

    def kill(self) -> None:
        """Kill the commands at hand, for a process that is about to exit without reporting anything."""
        for task_run in list(self._running.values()):
            task_run.kill()

    def _wait_for_room(self) -> int:
        """How many more tasks may be claimed now, waiting until there is room for one; 0 is the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping.is_set() or len(self._running) < self._settings.capacity
            )
            if self._stopping.is_set():
                return 0
            room = self._settings.capacity - len(self._running)
            if self._settings.max_tasks is not None:
                room = min(room, self._settings.max_tasks - self._taken)
            return min(room, MOST_AT_ONCE)

    def _start(self, claim: Claim) -> None:
        """Run the claimed task in a thread. A second message of a run that is running here starts nothing:
        the queue gives the same worker the same claim again.
        """
        key = claim.task_id, claim.run_id
        task_run = TaskRun(claim, self._connect, self._clock, self._tell, self._output, self._live_logs)
        with self._changed:
            already_running = key in self._running
            if not already_running:
                if self._stopping.is_set():
                    task_run.shut_down()
                threading.Thread(target=self._see_through, args=[key, task_run], daemon=True).start()
                self._running[key] = task_run
                self._taken += 1
        if already_running:
            self._tell(Step.ALREADY_RUNNING, task_id=claim.task_id, run_id=claim.run_id)

    def _see_through(self, key: tuple[str, int], task_run: TaskRun) -> None:
        try:
            task_run.see_through()
        finally:
            with self._changed:
                del self._running[key]
                self._changed.notify_all()

    def _connect(self, give_up: threading.Event) -> QueueClient:
        return QueueClient(self._settings.base_url, Http(self._clock, give_up), self._clock)

    def _tell(self, step: Step, **fields: Any) -> None:
        with self._telling:
            self._on_step(step, fields)
