"""``legacy-queue serve`` as a subprocess, which is started, watched and ended here.

The server watches the pipe that is its standard input. So it ends when this process ends, even if this
process is killed. If the variable LEGACY_QUEUE_PYTHON is set, it names the Python that runs the server. That
environment needs this package and everything that it requires. This process then needs only the package
itself and requests.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from select import select
from typing import Any

from legacy_queue.domain.ids import slugid

__tracebackhide__ = True  # so that a traceback ends at the test's own call

_PREFIX = "LEGACY_QUEUE_"
# the server does not inherit these variables: they would change what it does
_NOT_INHERITED = (_PREFIX, "TASKCLUSTER_", "PYTHONWARNINGS", "COV_CORE_", "COVERAGE_PROCESS_")
_PYTHON = f"{_PREFIX}PYTHON"  # the Python that runs the server; by default the one of this process
_START_TIMEOUT = 60.0  # seconds; an Azurite may start too
_STOP_TIMEOUT = 10.0  # seconds
_LAST_LINES = 20
_ERROR = "Error: "  # the last sentence of a command that fails begins like this
_NO_MODULE = "No module named"
_WARNING_LEVELS = ("warning", "error", "critical")


class ServerFailed(Exception):
    """The server did not start, or it ended by itself. The message has the last lines of its log."""


class ServerProcess:
    """A server that is ready. ``ready`` is the line of JSON that it printed.

    The names in ``settings`` are those of a settings file, with ``_`` in place of ``-``. The server gets them
    by its environment, because every user can read a command line. Raises ServerFailed if the server does not
    start, or is not ready within ``start_timeout`` seconds.
    """

    def __init__(self, settings: Mapping[str, Any], start_timeout: float = _START_TIMEOUT) -> None:
        # the server makes it only if needed: so memory storage leaves nothing behind, even after a kill
        self._data_dir = Path(tempfile.gettempdir(), f"legacy-queue-{slugid()}")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._log_begin = 0
        own = {"port": 0, "control": True, "log_level": "warning", "data_dir": self._data_dir}
        # In its own session the server does not receive Ctrl-C. The tests receive it, and end the server.
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell
                [*_python(), "-m", "legacy_queue", "serve", "--stop-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=server_environment({**own, **settings, "log_format": "json"}),
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            raise ServerFailed(f"{_PYTHON} is {error.filename!r}: {error.strerror}") from None
        try:
            self.ready = self._read_ready_line(start_timeout)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server without waiting for running requests, and remove its files."""
        self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_TIMEOUT)
        if self._process.returncode != 0:  # its child processes may still run
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with self._process, self._log:  # closes the pipes and the file
            shutil.rmtree(self._data_dir, ignore_errors=True)

    def check(self) -> None:
        """Raises ServerFailed if the server has ended."""
        if (code := self._process.poll()) is not None:
            raise self._failed(f"the server has ended by itself, with exit code {code}")

    def skip_log(self) -> None:
        """Let ``warnings`` leave out everything that is in the log so far."""
        self._log_begin = os.fstat(self._log.fileno()).st_size

    def warnings(self) -> list[str]:
        """The warnings and errors in the log."""
        return list(warnings_in(self._log_lines(self._log_begin)))

    def _read_ready_line(self, timeout: float) -> Mapping[str, Any]:
        assert self._process.stdout  # noqa: S101
        if not select([self._process.stdout], [], [], timeout)[0]:
            raise self._failed(f"the server was not ready within {timeout:g} s")
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            refusal = self._log_lines()[-1:]
            if refusal and refusal[0].startswith(_ERROR):
                raise ServerFailed(f"the server did not start: {refusal[0].removeprefix(_ERROR)}")
            if refusal and _NO_MODULE in refusal[0]:
                missing = refusal[0][refusal[0].index(_NO_MODULE) :]
                raise ServerFailed(
                    f"the server did not start: {_python()[0]} says {missing!r}. Install legacy-queue there, "
                    f"with everything that it requires, or set {_PYTHON} to a Python that has it"
                )
            raise self._failed(f"the server did not start: its exit code is {self._process.returncode}")
        ready: Mapping[str, Any] = json.loads(line)
        return ready

    def _failed(self, what: str) -> ServerFailed:
        return ServerFailed(
            "\n  ".join([f"{what}; the last lines of its log:", *self._log_lines()[-_LAST_LINES:]])
        )

    def _log_lines(self, begin: int = 0) -> list[str]:
        """The lines of the log from byte ``begin`` on. The server's position in the file does not move."""
        log = self._log.fileno()
        return os.pread(log, os.fstat(log).st_size - begin, begin).decode(errors="replace").splitlines()


def _python() -> list[str]:
    """The Python that runs the server. It imports nothing from the current directory (-P).

    If it belongs to another environment, it also imports nothing from the folders of this one (-I).
    """
    other = os.environ.get(_PYTHON)
    return [other, "-I"] if other else [sys.executable, "-P"]


def trust_variables(ready: Mapping[str, Any]) -> dict[str, str]:
    """The variables that make clients trust the server with this ready line, in addition to other servers."""
    if "ca" not in ready:
        return {}
    certificate = ready["ca"]["certificate"]
    bundle = ready["ca"]["bundle"]
    bundles = dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"), bundle)
    return {**bundles, "NODE_EXTRA_CA_CERTS": certificate}


def client_variables(ready: Mapping[str, Any]) -> dict[str, str]:
    """The variables by which clients find the server with this ready line: URL, trust, credentials."""
    found = {**trust_variables(ready), "TASKCLUSTER_ROOT_URL": ready["rootUrl"]}
    if "credentials" in ready:
        found["TASKCLUSTER_CLIENT_ID"] = ready["credentials"]["clientId"]
        found["TASKCLUSTER_ACCESS_TOKEN"] = ready["credentials"]["accessToken"]
    return found


def server_environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of the server: that of this process without settings, and ``settings``."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return own | {_PREFIX + name.upper(): _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    """The value as the text of a variable. A duration is in seconds."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value)
    return str(value)


def warnings_in(lines: Iterable[str]) -> Iterator[str]:
    """The warnings and errors of a log, as ``level name field=value``. A line that is not JSON is kept."""
    for line in lines:
        try:
            fields = json.loads(line)
            level = fields.pop("level")
            name = fields.pop("event")
            _time = fields.pop("timestamp")
        except (ValueError, KeyError, TypeError, AttributeError):
            yield line
            continue
        if level in _WARNING_LEVELS:
            yield " ".join([level, name, *(f"{key}={value}" for key, value in fields.items())])
