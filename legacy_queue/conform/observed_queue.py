"""A queue for one situation, and the process of the worker that is judged."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from types import TracebackType
from typing import Any

from legacy_queue.conform.log import Log, judged
from legacy_queue.domain.times import parse_time
from legacy_queue.testing.legacy_queue import LegacyQueue

CLAIM = timedelta(seconds=12)  # how long a claim lasts
LONG_CLAIM = timedelta(minutes=3, seconds=40)  # long enough for generic-worker to reclaim it
PROVISIONER_ID = "conform"
WORKER_TYPE = "worker"
WORKER_GROUP = "conform"
WORKER_ID = "conform-1"
POOL = f"{PROVISIONER_ID}/{WORKER_TYPE}"
_GRACE = 30.0  # seconds in which a worker must end after a SIGTERM
_WAIT = 30.0  # seconds in which a worker should react, in addition to the time of claims
_READ_INTERVAL = 0.2  # seconds between two readings of the journal
_LAST_LINES = 15
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile('  File "([^"]+)", line ')
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python\d|^<frozen")

_PLACEHOLDERS = {
    "{rootUrl}": "TASKCLUSTER_ROOT_URL",
    "{baseUrl}": "LEGACY_QUEUE_BASE_URL",
    "{provisionerId}": "PROVISIONER_ID",
    "{workerType}": "WORKER_TYPE",
    "{workerGroup}": "WORKER_GROUP",
    "{workerId}": "WORKER_ID",
}

Payloads = Mapping[str, Any]

_SCRIPTS = {"completes": "echo done", "fails": "echo this fails; exit 1", "runs": "sleep {seconds}"}
_MALFORMED = {"malformed": {"image": 1, "command": 1}}
_COMMANDS = {what: {"command": ["sh", "-c", script]} for what, script in _SCRIPTS.items()}
_NESTED = {what: {"command": [["sh", "-c", script]]} for what, script in _SCRIPTS.items()}
FORMS: Mapping[str, Payloads] = {
    "sample": _COMMANDS | _MALFORMED,
    "scriptworker": _COMMANDS | _MALFORMED,
    "generic-worker": {what: {**each, "maxRunTime": 600} for what, each in _NESTED.items()} | _MALFORMED,
    "docker-worker": {
        what: {**each, "maxRunTime": 600, "image": "debian:bookworm-slim"} for what, each in _COMMANDS.items()
    }
    | _MALFORMED,
}


class WorkerEnded(Exception):
    """The worker ended by itself. The message has the last lines that it printed."""


def last_lines(printed: Sequence[str]) -> list[str]:
    """The last 15 lines that a worker printed.

    If a traceback is longer, frames of libraries are left out, the last ones first, because the worker's own
    frames say where it failed.
    """
    begin = max((index for index, line in enumerate(printed) if line == _TRACEBACK), default=len(printed))
    parts: list[list[str]] = []
    for line in printed[begin:]:
        is_of_frame = line.startswith("    ") and parts and _FRAME.match(parts[-1][0])
        if is_of_frame:
            parts[-1].append(line)
        else:
            parts.append([line])
    of_libraries = [part for part in parts if (frame := _FRAME.match(part[0])) and _LIBRARY.search(frame[1])]
    while of_libraries and sum(map(len, parts)) > _LAST_LINES:
        removed = of_libraries.pop()
        parts = [part for part in parts if part is not removed]
    return [*printed[:begin], *chain.from_iterable(parts)][-_LAST_LINES:]


class ObservedQueue(LegacyQueue):
    """A queue in memory for one situation. The worker runs from ``start`` to the end of the ``with`` block.

    ``payloads`` has the payload for each kind of task. ``claim`` is how long a claim lasts.
    """

    def __init__(
        self,
        situation: str,
        command: Sequence[str],
        payloads: Payloads,
        settings: Mapping[str, Any],
        claim: timedelta = CLAIM,
    ) -> None:
        super().__init__(**{"claim_timeout": claim, "claim_work_wait": "5s", **settings})
        self._situation = situation
        self._command = command
        self.payloads = payloads
        self.claim_period = claim
        self._tasks: dict[str, str] = {}
        self._lasts: dict[str, timedelta] = {}
        self._begun: datetime | None = None
        # the number of the last request in the journal before the worker was started
        self._begin = 0
        self._stopped: datetime | None = None
        self._worker: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - __exit__ closes it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._kill()
        self._output.close()
        self._forget()  # it is no failure here if no request met a fault
        super().__exit__(kind, error, traceback)

    def new_task(self, what: str, lasts: timedelta = timedelta(0), **fields: Any) -> str:
        """Create a task that ``completes``, ``fails``, ``runs`` or is ``malformed``, and return its id.

        If it ``runs``, its script ``lasts`` for that time.

        Raises KeyError if there is no payload for it.
        """
        seconds = f"{lasts.total_seconds():g}"
        payload = json.loads(json.dumps(self.payloads[what]).replace("{seconds}", seconds))
        task_id = self.create_task(**{"task_queue_id": POOL, "payload": payload, **fields})
        self._tasks[task_id] = what
        self._lasts[task_id] = lasts
        return task_id

    def receive(self) -> None:
        """Receive a message from the queue of the lowest priority, as another worker would."""
        urls = self._http.call("GET", f"/v1/poll-task-url/{POOL}")["queues"]
        self._http.send("GET", urls[-1]["signedPollUrl"])

    def start(self) -> "ObservedQueue":
        """Start the worker. Its log begins now. Raises ValueError if the command cannot be started."""
        self._begin = max((entry["sequence"] for entry in self.requests(1)), default=0)
        self._begun = self.now()
        self._worker = self._new_process()
        return self

    def _new_process(self) -> subprocess.Popen[bytes]:
        variables = {
            **self.env,
            "LEGACY_QUEUE_BASE_URL": self.base_url,
            "PROVISIONER_ID": PROVISIONER_ID,
            "WORKER_TYPE": WORKER_TYPE,
            "WORKER_GROUP": WORKER_GROUP,
            "WORKER_ID": WORKER_ID,
        }
        words = list(self._command)
        for placeholder, name in _PLACEHOLDERS.items():
            words = [word.replace(placeholder, variables[name]) for word in words]
        others = ("TASKCLUSTER_", "LEGACY_QUEUE_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        try:
            return subprocess.Popen(  # noqa: S603 - the user's command
                words,
                env=inherited | variables,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ValueError(f"{words[0]!r} cannot be started: {error.strerror}") from None

    def stop(self) -> None:
        """Send SIGTERM to the worker. If it has not ended after 30 seconds (times its pace), kill it."""
        grace = _GRACE * self.log().pace
        self._stopped = self.now()
        if self._worker:
            self._worker.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._worker.wait(grace)
        self._kill()

    def _kill(self) -> None:
        """Kill the worker and its children, if it was started."""
        if self._worker:
            with suppress(ProcessLookupError):
                os.killpg(self._worker.pid, signal.SIGKILL)
            self._worker.wait()
            self._worker = None

    def until(self, condition: Callable[[Log], object], claims: float = 0) -> bool:
        """Wait until ``condition`` is true of the log. Returns whether it became true in time.

        The wait lasts at most 30 seconds (times the worker's pace) plus the time of so many ``claims``. It
        ends early if the worker is silent. Raises WorkerEnded.
        """
        begun = time.monotonic()
        while not condition(log := self.log()):
            code = self._worker.poll() if self._worker else None
            if code is not None:
                self._output.seek(0)
                lines = last_lines(self._output.read().decode(errors="replace").splitlines())
                raise WorkerEnded("\n  ".join([f"exit code {code}", *lines]))
            longest = claims * self.claim_period.total_seconds() + _WAIT * log.pace
            if log.is_silent or time.monotonic() - begun > longest:
                return False
            time.sleep(_READ_INTERVAL)
        return True

    def until_claimed(self, task_id: str) -> bool:
        """Wait until the worker has claimed the task."""
        return self.until(lambda log: any(claim.run[0] == task_id for claim in log.claims))

    def until_reported(self, *task_ids: str, claims: float = 0) -> None:
        """Wait until the worker has reported a run of each task."""

        def are_reported(log: Log) -> bool:
            reported = {claim.run[0] for claim in log.claims if log.reports(claim.run)}
            return reported.issuperset(task_ids)

        self.until(are_reported, claims)

    def histories(self) -> dict[str, Any]:
        """The answer of inspectTask about each task, by its id."""
        return {task_id: self._http.call("GET", f"/inspect/v1/task/{task_id}") for task_id in self._tasks}

    def log(self) -> Log:
        """What the worker has done so far."""
        journal, now = self._http.journal(self._begin)
        requests, end = judged(journal), parse_time(now)
        name = f"{WORKER_GROUP}/{WORKER_ID}"
        return Log(requests, end, self._situation, self._tasks, self._lasts, name, self._begun, self._stopped)
