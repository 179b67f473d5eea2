"""One claimed run, from the claim to the report.

A run ends with its command, at its maxRunTime, with its claim or with the worker. A task never runs on after
its claim is lost, a run is never left without report or reclaim, and a run is never reported completed or
failed before its log and artifacts are uploaded. A file outside of the task's working directory, or behind a
symbolic link, is not uploaded.
"""

import fcntl
import mimetypes
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

from legacy_queue.worker.command import LOG, Command, Payload, PayloadError
from legacy_queue.worker.held_claim import HeldClaim
from legacy_queue.worker.http_client import Refused, Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.worker_settings import Context, Step

TYPES = mimetypes.MimeTypes()  # not those of the machine
TYPES.add_type("text/plain", ".log")
LOG_TYPE = "text/plain; charset=utf-8"
UNKNOWN_TYPE = "application/octet-stream"

RunResult = tuple[str, str | None]  # what is reported: the result and, for an exception, the reason

COMPLETED: RunResult = ("completed", None)
FAILED: RunResult = ("failed", None)
MALFORMED_PAYLOAD: RunResult = ("exception", "malformed-payload")
INTERNAL_ERROR: RunResult = ("exception", "internal-error")
WORKER_SHUTDOWN: RunResult = ("exception", "worker-shutdown")


class TaskRun:
    """A claimed run. One thread calls ``run``; any thread may call ``kill``."""

    def __init__(self, context: Context, claim: Claim) -> None:
        self._claimed = claim
        self._stopping = context.stopping
        self._no_more_claims = context.no_more_claims
        self._notify = partial(context.notify, **claim.run)
        self._command: Command | None = None
        self._client = QueueClient(context)
        context = replace(context, notify=self._notify)
        self._held = HeldClaim(context, self._client, claim, on_lost=self.kill)

    def run(self) -> None:
        """Run the task while the claim is reclaimed, upload its log and artifacts and report the result.

        Any failure of the worker itself is reported as an internal-error.
        """
        try:
            self._held.keep()
            with tempfile.TemporaryFile(buffering=0) as log:  # without a name: no task can replace it
                fcntl.fcntl(log, fcntl.F_SETFL, os.O_APPEND)  # the task and the worker both append to it
                self._end(self._result(log), log)
        except Exception as failure:  # noqa: BLE001  any failure must be reported to the queue
            self._report(INTERNAL_ERROR)
            self._notify(Step.FAILURE, detail=f"{type(failure).__name__}: {failure}")
        finally:
            self._client.close()

    def kill(self) -> None:
        """Kill the command, if it is running."""
        if self._command:
            self._command.kill()

    def _result(self, log: IO[bytes]) -> RunResult:
        if self._stopping.is_set():
            return WORKER_SHUTDOWN
        try:
            with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as directory:
                return self._execute(Path(directory), log)
        except PayloadError as malformed:
            self._fail(log, f"malformed payload: {malformed}")
            return MALFORMED_PAYLOAD
        except Exception as failure:  # noqa: BLE001  caught here, so that the log is uploaded
            self._fail(log, f"{type(failure).__name__}: {failure}")
            return INTERNAL_ERROR

    def _end(self, result: RunResult, log: IO[bytes]) -> None:
        """Upload the log and report the result; then copy the log to standard output, which may block."""
        if result[0] == "exception":
            # reported first, since the worker may be unstable ("Queue-Worker Interaction")
            self._report(result)
            self._upload(LOG, log, LOG_TYPE, log)
        else:
            # after the report the queue would refuse the log
            self._report(result if self._upload(LOG, log, LOG_TYPE, log) else self._not_uploaded())
        with suppress(OSError, ValueError, AttributeError):  # its reader has ended, or there is none
            log.seek(0)
            shutil.copyfileobj(log, sys.stdout.buffer)
            sys.stdout.flush()

    def _execute(self, directory: Path, log: IO[bytes]) -> RunResult:
        """Run the command in the directory, and upload the declared artifacts."""
        names = {"TASK_ID": self._claimed.task_id, "RUN_ID": str(self._claimed.run_id)}
        payload = Payload.from_wire(self._claimed.payload)
        with Command(payload, names, directory, log) as self._command:
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
        uploads = [
            not self._stopping.is_set() and self._upload_file(name, directory, path, log)
            for name, path in payload.artifacts.items()
        ]
        if exit_code != 0:
            return FAILED
        return COMPLETED if all(uploads) else self._not_uploaded()

    def _not_uploaded(self) -> RunResult:
        """The result of a task whose log or artifact is missing: a worker that stops does not retry."""
        return WORKER_SHUTDOWN if self._stopping.is_set() else FAILED

    def _upload_file(self, name: str, directory: Path, path: str, log: IO[bytes]) -> bool:
        guessed, encoding = TYPES.guess_type(name)
        # a compressed file does not have the type of its content
        content_type = guessed if guessed and not encoding else UNKNOWN_TYPE
        try:
            with open_file(directory, path) as file:
                return self._upload(name, file, content_type, log)
        except (OSError, ValueError):  # ValueError: no file has such a name
            return self._fail(log, f"artifact {name}: {path} is not a file in the task's working directory")

    def _upload(self, name: str, file: IO[bytes], content_type: str, log: IO[bytes]) -> bool:
        """Upload the file as an artifact; returns whether that was done."""
        if self._held.is_lost:
            return False
        try:
            self._client.create_artifact(self._held.claim, name, file, content_type)
        except (Refused, Unavailable) as failure:
            return self._fail(log, f"artifact {name}: {failure}")
        self._notify(Step.ARTIFACT, name=name)
        return True

    def _report(self, run_result: RunResult) -> None:
        """Report once to the queue, unless the claim is lost. A refused report is not repeated."""
        if run_result == WORKER_SHUTDOWN:  # else this worker could claim the retry
            self._no_more_claims.wait()
        if not self._held.release():
            return
        result, reason = run_result
        reported = {"result": result, "reason": reason} if reason else {"result": result}
        try:
            self._client.report(self._held.claim, result, reason)
            self._notify(Step.REPORT, **reported)
        except Exception as failure:  # noqa: BLE001  nothing can be done about it
            self._notify(Step.FAILURE, **reported, detail=str(failure))

    def _fail(self, log: IO[bytes], detail: str) -> bool:
        """Say in the log and by a step what has failed; returns False."""
        with suppress(OSError):  # the disk may be full
            log.write(f"[worker] {detail}\n".encode(errors="replace"))
        self._notify(Step.FAILURE, detail=detail)
        return False


def open_file(directory: Path, path: str) -> IO[bytes]:
    """Open a regular file that is no symbolic link and really below the directory; raises OSError."""
    file = directory / path
    # a pipe would block
    if file.is_file() and not file.is_symlink() and file.resolve().is_relative_to(directory.resolve()):
        return file.open("rb")
    raise OSError("it is no file of the directory")
