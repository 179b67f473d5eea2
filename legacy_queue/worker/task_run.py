"""One claimed run, from the claim to the report.

A run ends with its command, at its maxRunTime, with its claim or with the worker. A task never runs on after
its claim is lost, a run is never left without report or reclaim, and a run is never reported completed or
failed before its log and artifacts are uploaded. No file outside of the task's working directory is uploaded,
whatever path the payload declares and whatever links the task has made.
"""

import mimetypes
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from legacy_queue.worker.command import LOG, Command, Payload, PayloadError
from legacy_queue.worker.held_claim import HeldClaim
from legacy_queue.worker.http_client import Refused, Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.worker_settings import Context, Step

LOG_TYPE, UNKNOWN_TYPE = "text/plain; charset=utf-8", "application/octet-stream"

Outcome = Mapping[str, str]  # the result of a run and, for an exception, the reason

COMPLETED: Outcome = {"result": "completed"}
FAILED: Outcome = {"result": "failed"}
MALFORMED_PAYLOAD: Outcome = {"result": "exception", "reason": "malformed-payload"}
INTERNAL_ERROR: Outcome = {"result": "exception", "reason": "internal-error"}
WORKER_SHUTDOWN: Outcome = {"result": "exception", "reason": "worker-shutdown"}


class TaskRun:
    """A claimed run. One thread calls ``run``; any thread may call ``kill``."""

    def __init__(self, context: Context, client: QueueClient, claim: Claim) -> None:
        self._claimed, self._client, self._stopping = claim, client, context.stopping
        self._notify = partial(context.notify, **claim.run)
        self._command: Command | None = None
        context = replace(context, notify=self._notify)
        self._held = HeldClaim(context, client, claim, on_lost=self.kill)

    def run(self) -> None:
        """Run the task while the claim is reclaimed, upload its log and artifacts and report the result."""
        with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as folder:
            log = Path(folder, "live.log")
            try:
                outcome = self._execute(Path(folder), log)
            except Exception as failure:  # noqa: BLE001  any failure must be reported to the queue
                if self._command:
                    self._command.wait(0)
                self._fail(log, f"{type(failure).__name__}: {failure}")
                outcome = INTERNAL_ERROR
            with suppress(OSError), log.open("rb") as file:  # the reader of the output may have ended
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.flush()
            if outcome["result"] == "exception":
                # reported first, since the worker may be unstable ("Queue-Worker Interaction")
                self._report(outcome)
                self._upload(LOG, log, LOG_TYPE, log)
            else:
                # after the report the queue would refuse the log
                self._report(outcome if self._upload(LOG, log, LOG_TYPE, log) else FAILED)

    def kill(self) -> None:
        """Kill the command, if it is running."""
        if self._command:
            self._command.kill()

    def _execute(self, folder: Path, log: Path) -> Outcome:
        """Run the command in a directory of its own, and upload the declared artifacts."""
        log.touch()
        if self._stopping.is_set():
            return WORKER_SHUTDOWN
        directory = folder / "work"
        directory.mkdir()
        names = {"TASK_ID": self._claimed.task_id, "RUN_ID": str(self._claimed.run_id)}
        try:
            payload = Payload.from_wire(self._claimed.payload)
            self._command = Command(payload, names, directory, log)
        except PayloadError as malformed:
            self._fail(log, f"malformed payload: {malformed}")
            return MALFORMED_PAYLOAD
        if self._stopping.is_set() or self._held.is_lost:  # since the command was started
            self.kill()
        self._notify(Step.RUN)
        exit_code = self._command.wait(payload.max_run_time)
        if exit_code and self._stopping.is_set():
            self._fail(log, "the worker is shutting down: the task is stopped")
            return WORKER_SHUTDOWN
        if exit_code is None:
            self._fail(log, f"maxRunTime is over, {payload.max_run_time:g} seconds: the task is stopped")
        elif exit_code and not self._held.is_lost:
            self._fail(log, f"the command ended with exit code {exit_code}")
        uploads = [self._upload_file(name, directory, path, log) for name, path in payload.artifacts.items()]
        return COMPLETED if exit_code == 0 and all(uploads) else FAILED

    def _upload_file(self, name: str, directory: Path, path: str, log: Path) -> bool:
        file = directory / path
        if not os.path.isfile(file) or not file.resolve().is_relative_to(directory.resolve()):
            return self._fail(log, f"artifact {name}: {path} is not a file in the task's working directory")
        guessed, encoding = mimetypes.guess_type(name)
        # a compressed file does not have the type of its content
        return self._upload(name, file, guessed if guessed and not encoding else UNKNOWN_TYPE, log)

    def _upload(self, name: str, file: Path, content_type: str, log: Path) -> bool:
        """Upload the file as an artifact; returns whether that was done."""
        try:
            if self._held.is_lost:
                return False
            self._client.create_artifact(self._held.claim, name, file, content_type)
            self._notify(Step.ARTIFACT, name=name)
            return True
        except (Refused, Unavailable, OSError) as failure:
            return self._fail(log, f"artifact {name}: {failure}")

    def _report(self, outcome: Outcome) -> None:
        """Report to the queue, with the newest credentials. A refused report is not repeated."""
        self._held.release()
        if self._held.is_lost:
            return
        try:
            self._client.report(self._held.claim, **outcome)
            self._notify(Step.REPORT, **outcome)
        except (Refused, Unavailable) as failure:
            self._notify(Step.FAILURE, **outcome, detail=str(failure))

    def _fail(self, log: Path, detail: str) -> bool:
        """Say in the log and by a step what has failed; returns False."""
        with log.open("a", errors="replace") as file:
            file.write(f"[worker] {detail}\n")
        self._notify(Step.FAILURE, detail=detail)
        return False
