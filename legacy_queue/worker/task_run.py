"""One claimed run, from the claim to the report, in a thread of its own.

A run ends with its command, at its maxRunTime, with its claim or with the worker. A task never runs on after
its claim is lost, a run is never left without report or reclaim, and a run is never reported completed or
failed before its log and artifacts are uploaded.
"""

import queue
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path

from legacy_queue.worker.artifact_uploader import ArtifactUploader
from legacy_queue.worker.command import Command, Payload, PayloadError
from legacy_queue.worker.held_claim import HeldClaim
from legacy_queue.worker.http_client import Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient, QueueRefused
from legacy_queue.worker.task_log import LiveLogs, Output, TaskLog
from legacy_queue.worker.worker_settings import Context, Step

Outcome = Mapping[str, str]  # the result of a run and, for an exception, the reason

COMPLETED: Outcome = {"result": "completed"}
FAILED: Outcome = {"result": "failed"}
MALFORMED_PAYLOAD: Outcome = {"result": "exception", "reason": "malformed-payload"}
INTERNAL_ERROR: Outcome = {"result": "exception", "reason": "internal-error"}
WORKER_SHUTDOWN: Outcome = {"result": "exception", "reason": "worker-shutdown"}

_Event = Enum("_Event", ["EXITED", "SHUT_DOWN", "CLAIM_LOST"])


class TaskRun:
    """A claimed run. One thread calls ``run``; any thread may call the other methods."""

    def __init__(self, context: Context, claim: Claim, output: Output, live_logs: LiveLogs | None) -> None:
        self._claimed, self._output, self._live_logs = claim, output, live_logs
        self._clock, self._notify = context.clock, partial(context.notify, **claim.run)
        context = replace(context, notify=self._notify)
        self._client = QueueClient(context, give_up=threading.Event())
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._held = HeldClaim(context, claim, on_lost=partial(self._events.put, _Event.CLAIM_LOST))
        self._command: Command | None = None

    def run(self) -> None:
        """Run the task while the claim is reclaimed, upload its log and artifacts and report the result."""
        try:
            if self._events.empty():
                self._run()
            else:
                self._report(WORKER_SHUTDOWN)  # before the command was started
        except Exception as failure:  # noqa: BLE001  any failure must be reported to the queue
            self._report(self._internal_error(failure))
        finally:
            self._held.release()
            self._client.close()

    def shut_down(self) -> None:
        """Stop the task and report worker-shutdown, unless its command has already ended."""
        self._events.put(_Event.SHUT_DOWN)

    def kill(self) -> None:
        """Kill the command without a report."""
        if self._command:
            self._command.kill()

    def _run(self) -> None:
        with TaskLog(self._clock, self._output) as log, ExitStack() as live:
            uploads = ArtifactUploader(self._held, self._client, self._notify, log)
            if self._live_logs:
                uploads.live_log(live.enter_context(self._live_logs.serve(log)))
            outcome = self._outcome(log, uploads)
            log.end()
            if outcome and outcome["result"] == "exception":
                # reported first, since the worker may be unstable ("Queue-Worker Interaction")
                self._report(outcome)
                uploads.log()
            elif outcome:
                # after the report the queue would refuse the log
                self._report(outcome if uploads.log() else FAILED)

    def _outcome(self, log: TaskLog, uploads: ArtifactUploader) -> Outcome | None:
        """The outcome to report; None if the claim is lost."""
        try:
            return self._execute(log, uploads)
        except PayloadError as malformed:
            log.say(f"malformed payload: {malformed}")
            self._notify(Step.PAYLOAD_MALFORMED, detail=str(malformed))
            return MALFORMED_PAYLOAD
        except Exception as failure:  # noqa: BLE001  caught here, so that the log is uploaded
            return self._internal_error(failure)

    def _execute(self, log: TaskLog, uploads: ArtifactUploader) -> Outcome | None:
        """Run the command in a directory of its own, and upload the declared artifacts."""
        payload = Payload.from_wire(self._claimed.payload)
        names = {"TASK_ID": self._claimed.task_id, "RUN_ID": str(self._claimed.run_id)}
        with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as directory:
            on_exit = partial(self._events.put, _Event.EXITED)
            self._command = command = Command(payload, names, Path(directory), log.file, on_exit)
            try:
                outcome = self._watch(command, payload.max_run_time.total_seconds(), log)
            finally:
                command.end()
            if outcome in (COMPLETED, FAILED) and not uploads.declared(payload.artifacts, Path(directory)):
                return FAILED
            return outcome

    def _watch(self, command: Command, max_run_time: float, log: TaskLog) -> Outcome | None:
        """Wait for the end of the command, of the worker, of the claim or of maxRunTime."""
        ends_at = self._clock.monotonic() + max_run_time
        self._notify(Step.RUN)
        try:
            event = self._events.get(timeout=max(ends_at - self._clock.monotonic(), 0))
        except queue.Empty:
            log.say(f"maxRunTime is over, {max_run_time:g} seconds: the task is stopped")
            self._notify(Step.TIME_OVER, max_run_time=max_run_time)
            return FAILED
        match event:
            case _Event.EXITED:
                exit_code = command.end()
                self._notify(Step.EXITED, exit_code=exit_code)
                return FAILED if exit_code else COMPLETED
            case _Event.SHUT_DOWN:
                log.say("the worker is shutting down: the task is stopped")
                return WORKER_SHUTDOWN
            case _Event.CLAIM_LOST:
                return None

    def _report(self, outcome: Outcome) -> None:
        """Report to the queue, with the newest credentials. A refused report is not repeated."""
        self._held.release()
        if self._held.is_lost:
            return
        try:
            self._client.report(self._held.claim, **outcome)
            self._notify(Step.REPORT, **outcome)
        except (QueueRefused, Unavailable) as failure:
            self._notify(Step.REPORT_FAILED, **outcome, detail=str(failure))

    def _internal_error(self, failure: Exception) -> Outcome:
        self._notify(Step.INTERNAL_ERROR, detail=f"{type(failure).__name__}: {failure}")
        return INTERNAL_ERROR
