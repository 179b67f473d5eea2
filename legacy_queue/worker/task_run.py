"""One claimed run, from the claim to the report.

A task never runs on after its claim is lost. No run is reported completed before its artifacts are uploaded.
"""

import math
import mimetypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import IO

from legacy_queue.worker.queue_client import Claim, QueueClient, Refused, Unavailable

LOG = "public/logs/live.log"  # the artifact
LOOK = 0.1  # seconds

NO_PROGRAM = (FileNotFoundError, NotADirectoryError, PermissionError)


class TaskRun:
    """A claimed run. ``finding`` is locked while the worker may claim further runs."""

    def __init__(
        self, client: QueueClient, claim: Claim, notify: Callable[..., None], stopping: Event, finding: Lock
    ) -> None:
        self._client = client
        self._claim = claim
        self._notify = notify
        self._stopping = stopping
        self._finding = finding
        self._reclaim_at = reclaim_time(claim)

    def run(self) -> None:
        """Execute the task, upload its artifacts and its log, and report the result."""
        with tempfile.TemporaryFile(buffering=0) as log:
            try:
                with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as directory:
                    problems, reason = self._execute(Path(directory), log)
                log.writelines(f"[worker] {problem}\n".encode(errors="replace") for problem in problems)
                log.seek(0)
                problems += self._upload(LOG, log, "text/plain; charset=utf-8")
                for problem in problems:
                    self._notify("failure", detail=problem)
                if reason == "worker-shutdown":
                    with self._finding:  # the last claim is made: it could have been of the retry
                        pass
                result = "exception" if reason else "failed" if problems else "completed"
                self._client.report(self._claim, result, reason)
                self._notify("report", result=result, reason=reason)
            except (Refused, Unavailable) as failure:  # the claim is lost, or there is no queue
                self._notify("failure", detail=str(failure))
            log.seek(0)
            with suppress(OSError, ValueError):  # its reader has ended
                sys.stdout.buffer.write(log.read())
                sys.stdout.flush()

    def _execute(self, directory: Path, log: IO[bytes]) -> tuple[list[str], str | None]:
        """Run the command and upload the declared artifacts; what went wrong, and the reason of an exception.

        The queue does not validate the payload: what cannot be run is malformed.
        """
        payload = self._claim["task"]["payload"]
        # a task can read the credentials in /proc, but its log is an artifact
        secret = ("TASKCLUSTER_", "LEGACY_QUEUE_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(secret)}
        env |= {"TASK_ID": self._claim["status"]["taskId"], "RUN_ID": str(self._claim["runId"])}
        try:
            files = {name: file["path"] for name, file in payload.get("artifacts", {}).items()}
            max_run_time = float(payload.get("maxRunTime", math.inf))
            command = payload["command"]
            process = subprocess.Popen(  # noqa: S603  a worker runs what a task says
                ["/bin/sh", "-c", command] if isinstance(command, str) else command,
                env=env | payload.get("env", {}),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (AttributeError, LookupError, TypeError, ValueError, *NO_PROGRAM) as error:
            return [f"malformed payload: {type(error).__name__}: {error}"], "malformed-payload"
        problems = self._wait(process, max_run_time)
        for name, path in files.items():
            guessed, encoding = mimetypes.guess_type(name)
            # a compressed file does not have the type of its content
            content_type = guessed if guessed and not encoding else "application/octet-stream"
            try:
                with (directory / path).open("rb") as file:
                    problems += self._upload(name, file, content_type)
            except (OSError, ValueError) as error:  # ValueError: no file has such a name
                problems.append(f"artifact {name}: {path} cannot be read ({type(error).__name__})")
        return problems, "worker-shutdown" if problems and self._stopping.is_set() else None

    def _wait(self, process: "subprocess.Popen[bytes]", max_run_time: float) -> list[str]:
        """Keep the claim until the command ends, or has to end; what went wrong."""
        self._notify("run")
        end = monotonic() + max_run_time
        try:
            while process.poll() is None:
                self._keep_claim()
                if self._stopping.wait(LOOK):
                    return ["the worker is shutting down: the task is stopped"]
                if monotonic() > end:
                    return [f"maxRunTime is over, {max_run_time:g} seconds: the task is stopped"]
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also what the command has left behind
            process.wait()
        return [f"the command ended with exit code {process.returncode}"] if process.returncode else []

    def _upload(self, name: str, content: IO[bytes], content_type: str) -> list[str]:
        """Create the artifact; what went wrong."""
        self._keep_claim()
        try:
            self._client.create_artifact(self._claim, name, content, content_type)
        except (Refused, Unavailable) as failure:
            return [f"artifact {name}: {failure}"]
        self._notify("artifact", name=name)
        return []

    def _keep_claim(self) -> None:
        """Reclaim if it is time. Raises Refused or Unavailable if the claim is lost.

        It is lost if the queue refuses (409: resolved, canceled or too late), or has not answered at its end.
        """
        if datetime.now(UTC) < self._reclaim_at:
            return
        try:
            self._claim = self._client.reclaim_task(self._claim)
            self._notify("reclaim", taken_until=self._claim["takenUntil"])
        except Unavailable as failure:
            if datetime.now(UTC) >= datetime.fromisoformat(self._claim["takenUntil"]):
                raise
            self._notify("failure", detail=str(failure))
        self._reclaim_at = reclaim_time(self._claim)


def reclaim_time(claim: Claim) -> datetime:
    """When to reclaim: three minutes before the claim ends, or after two thirds of less than nine minutes.

    At the earliest in a second, so that a worker whose clock is ahead of the queue's does not spin.
    Source: "a few minutes prior to expiration, to allow for clock drift" ("Queue - Worker Interaction").
    """
    now = datetime.now(UTC)
    left = datetime.fromisoformat(claim["takenUntil"]) - now
    return now + max(left - min(timedelta(minutes=3), left / 3), timedelta(seconds=1))
