"""``legacy-queue serve`` as a subprocess: started, watched and ended.

It ends with this process however that ends, since it watches the pipe that is its standard input.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from legacy_queue.domain.ids import slugid

__tracebackhide__ = True  # pytest shows where the test called this, and no further

_PREFIX = "LEGACY_QUEUE_"
# what would change the server behind the test's back
_NOT_INHERITED = (_PREFIX, "TASKCLUSTER_", "PYTHONWARNINGS", "COV_CORE_", "COVERAGE_PROCESS_")
_GRACE = 10.0  # seconds that a server has to end
_LAST_LINES = 20
_WARNING_LEVELS = ("warning", "error", "critical")


class ServerFailed(Exception):
    """The server did not start, or has ended by itself. The message has the last lines of its log."""


class ServerProcess:
    """A server that is ready. ``ready`` is the line of JSON that it prints then.

    ``settings`` are named as in a settings file, with ``_`` for ``-``; they reach the server in its
    environment, since everybody may read a command line. Raises ServerFailed.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        # the server makes it, where it needs it: with memory storage nothing is left behind, come what may
        self._data_dir = Path(tempfile.gettempdir(), f"legacy-queue-{slugid()}")
        self._log, self._log_begin = tempfile.TemporaryFile(), 0  # noqa: SIM115 - closed by stop
        own = {"port": 0, "control": True, "log_level": "warning", "data_dir": self._data_dir}
        # -P: nothing is imported from the current directory. A session of its own: Ctrl-C ends the tests, and
        # they end the server.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "legacy_queue", "serve", "--stop-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment({**own, **settings, "log_format": "json"}),
            start_new_session=True,
        )
        try:
            self.ready = self._read_ready_line()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End it without waiting for requests under way, and remove its files."""
        self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        if self._process.returncode != 0:  # it has not ended in order: something of it may be left
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with self._process, self._log:  # closes the pipes and the file
            shutil.rmtree(self._data_dir, ignore_errors=True)

    def check(self) -> None:
        """Raises ServerFailed if it has ended."""
        if (code := self._process.poll()) is not None:
            raise self._failed(f"the server has ended by itself, with exit code {code}")

    def begin_log_anew(self) -> None:
        """What is in the log so far is no part of ``warnings`` any more."""
        self._log_begin = os.fstat(self._log.fileno()).st_size

    def warnings(self) -> list[str]:
        """The warnings and errors in its log."""
        return list(_warnings(self._log_lines(self._log_begin)))

    def _read_ready_line(self) -> Mapping[str, Any]:
        assert self._process.stdout  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise self._failed(f"the server did not start: its exit code is {self._process.returncode}")
        ready: Mapping[str, Any] = json.loads(line)
        return ready

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(
            "\n  ".join([f"{what}; the last lines of its log:", *self._log_lines()[-_LAST_LINES:]])
        )

    def _log_lines(self, begin: int = 0) -> list[str]:
        """From that byte on, without moving the place where the server writes."""
        log = self._log.fileno()
        return os.pread(log, os.fstat(log).st_size - begin, begin).decode(errors="replace").splitlines()


def _environment(settings: Mapping[str, Any]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return own | {_PREFIX + name.upper(): _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    """As a settings variable has it. Of a duration the seconds."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value)
    return str(value)


def _warnings(lines: list[str]) -> Iterator[str]:
    """Warnings and errors, as ``name field=value``; what is no line of JSON is shown as it is."""
    for line in lines:
        try:
            fields = json.loads(line)
            level, name, _time = fields.pop("level"), fields.pop("event"), fields.pop("timestamp")
        except (ValueError, KeyError, TypeError, AttributeError):
            yield line
            continue
        if level in _WARNING_LEVELS:
            yield " ".join([level, name, *(f"{key}={value}" for key, value in fields.items())])
