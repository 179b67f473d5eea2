"""One claimed run, from the claim to the report, in a thread of its own.

The run's command, the queue's clock and the worker's end each may have the last word. What must never
happen: that a task runs on after its claim is lost, or that a run is left without report or reclaim.
"""

import queue
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from pathlib import Path
from typing import Any

from legacy_queue.worker.clock import Clock, reclaim_delay
from legacy_queue.worker.command import Command, Output
from legacy_queue.worker.http import Unavailable
from legacy_queue.worker.payload import MalformedPayload, Payload
from legacy_queue.worker.queue_client import Claim, QueueClient, QueueRefused
from legacy_queue.worker.steps import Step

Tell = Callable[..., None]


@dataclass(frozen=True)
class Outcome:
    """What is reported of a run."""

    result: str
    reason: str | None = None


COMPLETED = Outcome("completed")
FAILED = Outcome("failed")
MALFORMED_PAYLOAD = Outcome("exception", "malformed-payload")
INTERNAL_ERROR = Outcome("exception", "internal-error")
WORKER_SHUTDOWN = Outcome("exception", "worker-shutdown")


class _Event(Enum):
    EXITED = auto()
    SHUT_DOWN = auto()


class TaskRun:
    """A run that this worker holds. ``see_through`` does it all; the rest may be called by any thread."""

    def __init__(self, claim: Claim, client: QueueClient, clock: Clock, tell: Tell, output: Output) -> None:
        self._claim = claim
        self._client = client
        self._clock = clock
        self._tell_step = tell
        self._output = output
        self._reclaim_at = self._next_reclaim()
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._shutting_down = threading.Event()
        self._command: Command | None = None

    def see_through(self) -> None:
        """Run the task while reclaiming it, and report what came of it, unless the claim is lost."""
        try:
            outcome = self._execute()
        except Exception as failure:  # noqa: BLE001  whatever it is, the queue must be told
            self._tell(Step.INTERNAL_ERROR, detail=f"{type(failure).__name__}: {failure}")
            outcome = INTERNAL_ERROR
        if outcome:
            self._report(outcome)
        self._client.close()

    def shut_down(self) -> None:
        """Stop the task and report worker-shutdown, unless its command has already ended."""
        self._shutting_down.set()
        self._events.put(_Event.SHUT_DOWN)

    def kill(self) -> None:
        """Kill the command, for a worker that has no time to report anything."""
        if self._command:
            self._command.kill()

    def _execute(self) -> Outcome | None:
        """What to report; None when the claim is lost and the run is to be forgotten."""
        if self._shutting_down.is_set():
            return WORKER_SHUTDOWN
        with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as directory:
            names = {"TASK_ID": self._claim.task_id, "RUN_ID": str(self._claim.run_id)}
            try:
                payload = Payload.from_wire(self._claim.payload)
                command = Command.start(payload, names, Path(directory), self._output)
            except MalformedPayload as malformed:
                self._tell(Step.PAYLOAD_MALFORMED, detail=str(malformed))
                return MALFORMED_PAYLOAD
            self._command = command
            try:
                return self._watch(command, payload.max_run_time)
            finally:
                command.end()

    def _watch(self, command: Command, max_run_time: timedelta | None) -> Outcome | None:
        """Wait for whatever comes first: the command's end, the worker's, maxRunTime, time to reclaim."""
        limit = max_run_time.total_seconds() if max_run_time else float("inf")
        ends_at = self._clock.monotonic() + limit
        command.call_at_exit(lambda: self._events.put(_Event.EXITED))
        self._tell(Step.RUN)
        while True:
            match self._next_event(ends_at):
                case _Event.EXITED:
                    exit_code = command.end()
                    self._tell(Step.EXITED, exit_code=exit_code)
                    return FAILED if exit_code else COMPLETED
                case _Event.SHUT_DOWN:
                    return WORKER_SHUTDOWN
            if self._clock.monotonic() >= ends_at:
                self._tell(Step.TIME_OVER, max_run_time=limit)
                return FAILED
            if self._clock.monotonic() >= self._reclaim_at and not self._reclaim():
                return None

    def _next_event(self, ends_at: float) -> _Event | None:
        patience = min(self._reclaim_at, ends_at) - self._clock.monotonic()
        try:
            return self._events.get(timeout=max(patience, 0))
        except queue.Empty:
            return None

    def _next_reclaim(self) -> float:
        """When to reclaim, as the monotonic clock counts: a time of day that jumps changes nothing."""
        left = self._claim.taken_until - self._clock.now()
        return self._clock.monotonic() + reclaim_delay(left).total_seconds()

    def _reclaim(self) -> bool:
        """Extend the claim. False when it is lost: refused (409: resolved, canceled or too late), or
        out of time with no answer from the queue. Until then a reclaim that failed is tried again.
        """
        try:
            self._claim = self._client.reclaim_task(self._claim)
        except QueueRefused as refused:
            self._tell(Step.CLAIM_LOST, detail=str(refused))
            return False
        except Unavailable as failure:
            if self._clock.now() >= self._claim.taken_until:
                self._tell(Step.CLAIM_LOST, detail=f"takenUntil is over; {failure}")
                return False
            self._reclaim_at = self._next_reclaim()
            self._tell(Step.RECLAIM_FAILED, detail=str(failure))
        else:
            self._reclaim_at = self._next_reclaim()
            self._tell(Step.RECLAIM, taken_until=self._claim.taken_until)
        return True

    def _report(self, outcome: Outcome) -> None:
        """Tell the queue, with the latest credentials. A report that is refused is not repeated."""
        fields = {"result": outcome.result} | ({"reason": outcome.reason} if outcome.reason else {})
        try:
            match outcome:
                case Outcome(result="completed"):
                    self._client.report_completed(self._claim)
                case Outcome(result="failed"):
                    self._client.report_failed(self._claim)
                case Outcome(reason=str(reason)):
                    self._client.report_exception(self._claim, reason)
        except (QueueRefused, Unavailable) as failure:
            self._tell(Step.REPORT_FAILED, **fields, detail=str(failure))
        else:
            self._tell(Step.REPORT, **fields)

    def _tell(self, step: Step, **fields: Any) -> None:
        self._tell_step(step, task_id=self._claim.task_id, run_id=self._claim.run_id, **fields)
