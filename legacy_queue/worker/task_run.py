"""One claimed run, from the claim to the report.

A run ends with its command, at its maxRunTime, with its claim or with the worker. A task never runs on after
its claim is lost, a run is never left without report or reclaim, and a run is never reported completed or
failed before its log and artifacts are uploaded. No file outside of the task's working directory is uploaded,
whatever path the payload declares and whatever symbolic links the task has made.
"""

import fcntl
import mimetypes
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import IO

from legacy_queue.worker.command import LOG, Command, Payload, PayloadError
from legacy_queue.worker.held_claim import HeldClaim
from legacy_queue.worker.http_client import Content, Refused, Unavailable
from legacy_queue.worker.queue_client import Claim, QueueClient
from legacy_queue.worker.worker_settings import Context, Step

TYPES = mimetypes.MimeTypes()  # not those of the machine
TYPES.add_type("text/plain", ".log")
LOG_TYPE = "text/plain; charset=utf-8"
UNKNOWN_TYPE = "application/octet-stream"

Outcome = Mapping[str, str]  # the result of a run and, for an exception, the reason

COMPLETED: Outcome = {"result": "completed"}
FAILED: Outcome = {"result": "failed"}
MALFORMED_PAYLOAD: Outcome = {"result": "exception", "reason": "malformed-payload"}
INTERNAL_ERROR: Outcome = {"result": "exception", "reason": "internal-error"}
WORKER_SHUTDOWN: Outcome = {"result": "exception", "reason": "worker-shutdown"}


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
                self._end(self._outcome(log), log)
        except Exception as failure:  # noqa: BLE001  any failure must be reported to the queue
            self._report(INTERNAL_ERROR)
            self._notify(Step.FAILURE, detail=f"{type(failure).__name__}: {failure}")
        finally:
            self._client.close()

    def kill(self) -> None:
        """Kill the command, if it is running."""
        if self._command:
            self._command.kill()

    def _outcome(self, log: IO[bytes]) -> Outcome:
        if self._stopping.is_set():
            return WORKER_SHUTDOWN
        try:
            with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as directory:
                return self._execute(directory, log)
        except PayloadError as malformed:
            self._fail(log, f"malformed payload: {malformed}")
            return MALFORMED_PAYLOAD
        except Exception as failure:  # noqa: BLE001  caught here, so that the log is uploaded
            self._fail(log, f"{type(failure).__name__}: {failure}")
            return INTERNAL_ERROR

    def _end(self, outcome: Outcome, log: IO[bytes]) -> None:
        """Upload the log and report the outcome; then copy the log to standard output, which may block."""
        if outcome["result"] == "exception":
            # reported first, since the worker may be unstable ("Queue-Worker Interaction")
            self._report(outcome)
            self._upload(LOG, log, LOG_TYPE, log)
        else:
            # after the report the queue would refuse the log
            self._report(outcome if self._upload(LOG, log, LOG_TYPE, log) else self._not_uploaded())
        with suppress(OSError, ValueError, AttributeError):  # its reader has ended, or there is none
            for piece in Content(log):
                sys.stdout.buffer.write(piece)
            sys.stdout.flush()

    def _execute(self, directory: str, log: IO[bytes]) -> Outcome:
        """Run the command in the directory, and upload the declared artifacts."""
        names = {"TASK_ID": self._claimed.task_id, "RUN_ID": str(self._claimed.run_id)}
        payload = Payload.from_wire(self._claimed.payload)
        folder = os.open(directory, os.O_RDONLY)  # the task may put another in its place
        try:
            self._command = Command(payload, names, directory, log)
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
                not self._stopping.is_set() and self._upload_file(name, folder, path, log)
                for name, path in payload.artifacts.items()
            ]
            if exit_code != 0:
                return FAILED
            return COMPLETED if all(uploads) else self._not_uploaded()
        finally:
            if self._command:
                self._command.wait(0)
            os.close(folder)

    def _not_uploaded(self) -> Outcome:
        """The outcome of a task whose log or artifact is missing: a worker that stops does not retry."""
        return WORKER_SHUTDOWN if self._stopping.is_set() else FAILED

    def _upload_file(self, name: str, folder: int, path: str, log: IO[bytes]) -> bool:
        guessed, encoding = TYPES.guess_type(name)
        # a compressed file does not have the type of its content
        content_type = guessed if guessed and not encoding else UNKNOWN_TYPE
        try:
            with open_file(folder, path) as file:
                return self._upload(name, file, content_type, log)
        except (OSError, ValueError):  # ValueError: no file has such a name
            return self._fail(log, f"artifact {name}: {path} is not a file in the task's working directory")

    def _upload(self, name: str, file: IO[bytes], content_type: str, log: IO[bytes]) -> bool:
        """Upload the file as an artifact; returns whether that was done."""
        if self._held.is_lost:
            return False
        try:
            self._client.create_artifact(self._held.claim, name, Content(file), content_type)
        except (Refused, Unavailable) as failure:
            return self._fail(log, f"artifact {name}: {failure}")
        self._notify(Step.ARTIFACT, name=name)
        return True

    def _report(self, outcome: Outcome) -> None:
        """Report once to the queue, unless the claim is lost. A refused report is not repeated."""
        if outcome is WORKER_SHUTDOWN:  # else this worker could claim the retry
            self._no_more_claims.wait()
        if not self._held.release():
            return
        try:
            self._client.report(self._held.claim, **outcome)
            self._notify(Step.REPORT, **outcome)
        except Exception as failure:  # noqa: BLE001  nothing can be done about it
            self._notify(Step.FAILURE, **outcome, detail=str(failure))

    def _fail(self, log: IO[bytes], detail: str) -> bool:
        """Say in the log and by a step what has failed; returns False."""
        with suppress(OSError):  # the disk may be full
            log.write(f"[worker] {detail}\n".encode(errors="replace"))
        self._notify(Step.FAILURE, detail=detail)
        return False


def open_file(folder: int, path: str) -> IO[bytes]:
    """Open a regular file that is no link and really below the open directory ``folder``; raises OSError."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe would block
    file = open(  # noqa: SIM115  the caller closes it
        path, "rb", opener=lambda name, mode: os.open(name, mode | flags, dir_fd=folder)
    )
    real, inside = (os.readlink(f"/proc/self/fd/{opened}") for opened in (file.fileno(), folder))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and real.startswith(f"{inside}/"):
        return file
    file.close()
    raise OSError("it is no file of the directory")
