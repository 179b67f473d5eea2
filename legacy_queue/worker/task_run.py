"""One claimed run, from the claim to the report, in a thread of its own.

The run's command, the queue's clock and the worker's end each may have the last word. What must never
happen: that a task runs on after its claim is lost, that a run is left without report or reclaim, or that
it is reported completed or failed before all that it leaves behind is uploaded.
"""

import queue
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from pathlib import Path
from typing import Any

from legacy_queue.worker.clock import Clock
from legacy_queue.worker.command import Command
from legacy_queue.worker.held_claim import HeldClaim
from legacy_queue.worker.http import Unavailable
from legacy_queue.worker.live_log import LiveLogs
from legacy_queue.worker.payload import MalformedPayload, Payload
from legacy_queue.worker.queue_client import Claim, Connect, QueueRefused
from legacy_queue.worker.steps import Step, Tell
from legacy_queue.worker.task_log import Output, TaskLog
from legacy_queue.worker.uploads import Uploads


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
    CLAIM_LOST = auto()


class TaskRun:
    """A run that this worker holds. ``see_through`` does it all; the rest may be called by any thread."""

    def __init__(
        self,
        claim: Claim,
        connect: Connect,
        clock: Clock,
        tell: Tell,
        output: Output,
        live_logs: LiveLogs | None,
    ) -> None:
        self._claimed = claim
        self._client = connect(threading.Event())
        self._clock = clock
        self._tell_step = tell
        self._output = output
        self._live_logs = live_logs
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._held = HeldClaim(claim, connect, clock, self._tell, lambda: self._events.put(_Event.CLAIM_LOST))
        self._shutting_down = threading.Event()
        self._command: Command | None = None

    def see_through(self) -> None:
        """Run the task while its claim is kept; upload its artifacts and its log and report what came of
        it, unless the claim is lost.
        """
        self._held.keep()
        try:
            with TaskLog(self._clock) as log:
                self._run(log)
        except Exception as failure:  # noqa: BLE001  whatever it is, the queue must be told
            self._report(self._internal_error(failure))
        finally:
            self._held.release()
            self._client.close()

    def shut_down(self) -> None:
        """Stop the task and report worker-shutdown, unless its command has already ended."""
        self._shutting_down.set()
        self._events.put(_Event.SHUT_DOWN)

    def kill(self) -> None:
        """Kill the command, for a worker that has no time to report anything."""
        if self._command:
            self._command.kill()

    def _run(self, log: TaskLog) -> None:
        if self._shutting_down.is_set():
            self._report(WORKER_SHUTDOWN)
            return
        uploads = Uploads(self._held, self._client, self._tell, log)
        copying = log.copy_to(self._output)
        try:
            with self._live_log(log, uploads):
                outcome = self._outcome(log, uploads)
                log.end()
                if outcome:
                    self._resolve(outcome, uploads)
        finally:
            log.end()
            copying.join()

    def _resolve(self, outcome: Outcome, uploads: Uploads) -> None:
        """Upload the log before a report of completed or failed, after which it would be refused; and after
        one of exception, which must not wait for a worker that may be unstable (seed 000).
        """
        if outcome.result == "exception":
            self._report(outcome)
            uploads.log()
        else:
            self._report(outcome if uploads.log() else FAILED)

    @contextmanager
    def _live_log(self, log: TaskLog, uploads: Uploads) -> Iterator[None]:
        if self._live_logs is None:
            yield
            return
        with self._live_logs.serve(log) as url:
            uploads.live_log(url)
            yield

    def _outcome(self, log: TaskLog, uploads: Uploads) -> Outcome | None:
        """What to report; None when the claim is lost and the run is to be forgotten."""
        try:
            return self._execute(log, uploads)
        except MalformedPayload as malformed:
            log.say(f"malformed payload: {malformed}")
            self._tell(Step.PAYLOAD_MALFORMED, detail=str(malformed))
            return MALFORMED_PAYLOAD
        except Exception as failure:  # noqa: BLE001  here, so that the log is uploaded
            return self._internal_error(failure)

    def _execute(self, log: TaskLog, uploads: Uploads) -> Outcome | None:
        """Run the command in a directory of its own, and upload what it was to make there."""
        payload = Payload.from_wire(self._claimed.payload)
        names = {"TASK_ID": self._claimed.task_id, "RUN_ID": str(self._claimed.run_id)}
        with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as directory:
            command = Command.start(payload, names, Path(directory), log.file)
            self._command = command
            try:
                outcome = self._watch(command, payload.max_run_time, log)
            finally:
                command.end()
            if outcome in (COMPLETED, FAILED) and not uploads.declared(payload.artifacts, Path(directory)):
                return FAILED
            return outcome

    def _watch(self, command: Command, max_run_time: timedelta | None, log: TaskLog) -> Outcome | None:
        """Wait for whatever comes first: the command's end, the worker's, the claim's, or maxRunTime."""
        limit = max_run_time.total_seconds() if max_run_time else float("inf")
        ends_at = self._clock.monotonic() + limit
        command.call_at_exit(lambda: self._events.put(_Event.EXITED))
        self._tell(Step.RUN)
        match self._next_event(ends_at):
            case _Event.EXITED:
                exit_code = command.end()
                self._tell(Step.EXITED, exit_code=exit_code)
                return FAILED if exit_code else COMPLETED
            case _Event.SHUT_DOWN:
                log.say("the worker is shutting down: the task is stopped")
                return WORKER_SHUTDOWN
            case _Event.CLAIM_LOST:
                return None
            case None:
                log.say(f"maxRunTime is over, {limit:g} seconds: the task is stopped")
                self._tell(Step.TIME_OVER, max_run_time=limit)
                return FAILED

    def _next_event(self, ends_at: float) -> _Event | None:
        """What happens next; None when nothing has happened by then."""
        left = max(ends_at - self._clock.monotonic(), 0)
        try:
            return self._events.get(timeout=None if left == float("inf") else left)
        except queue.Empty:
            return None

    def _report(self, outcome: Outcome) -> None:
        """Tell the queue, with the latest credentials. A report that is refused is not repeated."""
        self._held.release()
        if self._held.is_lost:
            return
        fields = {"result": outcome.result} | ({"reason": outcome.reason} if outcome.reason else {})
        claim = self._held.claim
        try:
            match outcome:
                case Outcome(result="completed"):
                    self._client.report_completed(claim)
                case Outcome(result="failed"):
                    self._client.report_failed(claim)
                case Outcome(reason=str(reason)):
                    self._client.report_exception(claim, reason)
        except (QueueRefused, Unavailable) as failure:
            self._tell(Step.REPORT_FAILED, **fields, detail=str(failure))
        else:
            self._tell(Step.REPORT, **fields)

    def _internal_error(self, failure: Exception) -> Outcome:
        self._tell(Step.INTERNAL_ERROR, detail=f"{type(failure).__name__}: {failure}")
        return INTERNAL_ERROR

    def _tell(self, step: Step, **fields: Any) -> None:
        self._tell_step(step, task_id=self._claimed.task_id, run_id=self._claimed.run_id, **fields)
