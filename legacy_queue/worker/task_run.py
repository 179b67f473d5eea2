"""One claimed run, from the claim to the report.

A separate thread reclaims. If the claim is lost, the task is stopped. The run is reported completed only
after its artifacts are uploaded.
"""

import math
import mimetypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import IO, Any

from legacy_queue.worker.queue_client import Claim, QueueClient, Refused, Unavailable

LOG = "public/logs/live.log"  # the name of the artifact with the log


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
        self._ended = Event()  # set when the claim is no longer needed
        self._lost: Exception | None = None

    def run(self) -> None:
        """Execute the task, upload its artifacts and log, and report the result."""
        Thread(target=self._keep_claim, daemon=True).start()
        with tempfile.TemporaryFile(buffering=0) as log:
            try:
                with tempfile.TemporaryDirectory(prefix="task-", ignore_cleanup_errors=True) as directory:
                    problems, reason = self._execute(Path(directory).resolve(), log)
                log.writelines(f"[worker] {problem}\n".encode(errors="replace") for problem in problems)
                log.seek(0)
                problems += self._upload(LOG, log, "text/plain; charset=utf-8")
                for problem in problems:
                    self._notify("failure", detail=problem)
                self._check_claim()
                if reason == "worker-shutdown":
                    # so that no thread claims the retry before this worker has stopped claiming
                    with self._finding:
                        pass
                result = "exception" if reason else "failed" if problems else "completed"
                self._client.report(self._claim, result, reason)
                self._notify("report", result=result, reason=reason)
            except (Refused, Unavailable) as failure:  # the claim is lost, or the queue does not answer
                self._notify("failure", detail=str(failure))
            finally:
                self._ended.set()
            log.seek(0)
            with suppress(OSError, ValueError):  # whoever read the output has gone
                sys.stdout.buffer.write(log.read())
                sys.stdout.flush()

    def _execute(self, directory: Path, log: IO[bytes]) -> tuple[list[str], str | None]:
        """Run the command and upload its artifacts. Returns the problems, and a reason for an exception."""
        # A task can still read the credentials in /proc. But without them in its environment, it does not
        # print them into its log by accident, and the log is a public artifact.
        secret = ("TASKCLUSTER_", "LEGACY_QUEUE_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(secret)}
        env |= {"TASK_ID": self._claim["status"]["taskId"], "RUN_ID": str(self._claim["runId"])}
        try:
            command, variables, max_run_time, files = parsed(self._claim["task"]["payload"])
            process = subprocess.Popen(  # noqa: S603  running the task's command is the purpose
                command,
                env=env | variables,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (AttributeError, LookupError, TypeError, ValueError, OSError) as error:
            return [f"malformed payload: {type(error).__name__}: {error}"], "malformed-payload"
        problems = self._wait(process, max_run_time)
        for name, path in files.items():
            guessed, encoding = mimetypes.guess_type(name)
            # for a compressed file, mimetypes guesses the type of what is inside
            content_type = guessed if guessed and not encoding else "application/octet-stream"
            try:
                found = (directory / path).resolve()
                # reading a pipe might never end
                if not (found.is_relative_to(directory) and found.is_file()):
                    raise FileNotFoundError
                with found.open("rb") as file:
                    problems += self._upload(name, file, content_type)
            except (OSError, ValueError) as error:  # ValueError: the name is impossible for a file
                what = f"{path} is not a readable file in the task's directory"
                problems.append(f"artifact {name}: {what} ({type(error).__name__})")
        return problems, "worker-shutdown" if problems and self._stopping.is_set() else None

    def _wait(self, process: "subprocess.Popen[bytes]", max_run_time: float) -> list[str]:
        """Keep the claim until the command ends or must be stopped. Returns what went wrong."""
        self._notify("run")
        end = monotonic() + max_run_time
        try:
            while process.poll() is None:
                self._check_claim()
                if self._stopping.wait(0.1):
                    return ["the worker is shutting down: the task is stopped"]
                if monotonic() > end:
                    return [f"the task ran longer than maxRunTime, {max_run_time:g} seconds: it is stopped"]
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also the processes that the command left behind
            process.wait()
        return [f"the command ended with exit code {process.returncode}"] if process.returncode else []

    def _upload(self, name: str, content: IO[bytes], content_type: str) -> list[str]:
        """Create the artifact. Returns what went wrong."""
        self._check_claim()
        try:
            self._client.create_artifact(self._claim, name, content, content_type)
        except (Refused, Unavailable) as failure:
            return [f"artifact {name}: {failure}"]
        self._notify("artifact", name=name)
        return []

    def _check_claim(self) -> None:
        """Raises the error of the last reclaim if the claim is lost, so that nothing more is sent."""
        if self._lost:
            raise self._lost

    def _keep_claim(self) -> None:
        """Reclaim in time, until the run has ended or the claim is lost.

        The claim is lost if the queue refuses to renew it (409: resolved, canceled or too late), or does not
        answer before takenUntil.
        """
        while not self._ended.wait(reclaim_in(self._claim).total_seconds()):
            try:
                self._claim = self._client.reclaim_task(self._claim)
                self._notify("reclaim", taken_until=self._claim["takenUntil"])
            except (Refused, Unavailable) as failure:
                is_over = datetime.now(UTC) >= datetime.fromisoformat(self._claim["takenUntil"])
                if is_over or isinstance(failure, Refused):
                    self._lost = failure
                    return
                self._notify("failure", detail=str(failure))


def parsed(payload: Mapping[str, Any]) -> tuple[list[str], dict[str, str], float, Mapping[str, str]]:
    """Returns command, environment, maxRunTime in seconds, and the path of each artifact.

    Raises an error if the payload is malformed.
    """
    artifacts = payload.get("artifacts", {})
    files = {name: os.fspath(file["path"]) for name, file in artifacts.items()}
    if LOG in files or any(file.get("type", "file") != "file" for file in artifacts.values()):
        raise ValueError(f"expected artifacts of the type file, with another name than {LOG}")
    max_run_time = float(payload.get("maxRunTime", math.inf))
    if not max_run_time > 0:  # refuses NaN as well
        raise ValueError("expected maxRunTime as a number of seconds above 0")
    command = payload["command"]
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    return words, payload.get("env", {}), max_run_time, files


def reclaim_in(claim: Claim) -> timedelta:
    """Returns how long to wait before the next reclaim.

    That is until three minutes before takenUntil, or two thirds of the claim if it is shorter than nine
    minutes. It is at least a second, so that a worker whose clock is ahead of the queue's does not spin.
    Source: "a few minutes prior to expiration, to allow for clock drift" ("Queue - Worker Interaction").
    """
    left = datetime.fromisoformat(claim["takenUntil"]) - datetime.now(UTC)
    return max(left - min(timedelta(minutes=3), left / 3), timedelta(seconds=1))
