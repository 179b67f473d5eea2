"""Reads task.payload, which the queue does not validate, and runs its command as a process group.

``{"command": [...] or "...", "env": {...}, "maxRunTime": seconds, "artifacts": ...}``; only the command
is required. ``artifacts`` is docker-worker's object, ``{name: {"type": "file" or "directory", "path",
"expires"}}``, or generic-worker's list, ``[{"type", "path", "name", "expires"}]``, where the name may be left
out as well and is then the path.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from errno import E2BIG, EACCES, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, ENOTDIR
from pathlib import Path
from typing import IO, Any

SHELL = ("/bin/sh", "-c")
MAX_RUN_TIME = 10**9  # seconds; the task's deadline comes long before
LIVE_LOG = "public/logs/live.log"
BACKING_LOG = "public/logs/live_backing.log"

# A task gets only these variables of the worker's environment. The credentials are not among them, but a task
# can read them in /proc.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")

# The errors of the operating system for a command that cannot run on any machine like this
_NOT_RUNNABLE = {ENOENT, EACCES, ENOEXEC, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, E2BIG}


class PayloadError(Exception):
    """Another run of the task would have the same result. The message shows no value of ``env``."""


@dataclass(frozen=True)
class Declared:
    """An artifact that the payload declares: a file or a directory below the working directory."""

    name: str
    is_directory: bool
    path: str
    expires: datetime | None


@dataclass(frozen=True)
class Payload:
    """A command to run, its environment, how long it may take and the artifacts to upload."""

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    max_run_time: timedelta
    artifacts: tuple[Declared, ...]

    @classmethod
    def from_wire(cls, payload: Any) -> "Payload":
        """Read task.payload; raises PayloadError."""
        if not isinstance(payload, dict):
            raise PayloadError("payload must be an object")
        command, env = payload.get("command"), payload.get("env", {})
        seconds = payload.get("maxRunTime", MAX_RUN_TIME)
        words = [command] if isinstance(command, str) else command
        if not isinstance(words, list) or not words or not words[0] or not all(map(_is_native, words)):
            raise PayloadError("payload.command must be a list of strings or one string, and not empty")
        if not isinstance(env, dict) or not all(map(_is_native, env.values())):
            raise PayloadError("payload.env must be an object whose values are strings")
        if not all(name and "=" not in name and _is_native(name) for name in env):
            raise PayloadError("payload.env holds a name that no environment variable can have")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise PayloadError("payload.maxRunTime must be a number of seconds above 0")
        return cls(
            arguments=(*SHELL, command) if isinstance(command, str) else tuple(words),
            env=env,
            max_run_time=timedelta(seconds=min(seconds, MAX_RUN_TIME)),
            artifacts=_artifacts(payload.get("artifacts", [])),
        )


def _artifacts(artifacts: Any) -> tuple[Declared, ...]:
    if isinstance(artifacts, dict):
        declared = tuple(_artifact(artifact, name) for name, artifact in artifacts.items())
    elif isinstance(artifacts, list):
        declared = tuple(map(_artifact, artifacts))
    else:
        raise PayloadError("payload.artifacts must be an object, or a list of objects")
    if len({artifact.name for artifact in declared}) < len(declared):
        raise PayloadError("payload.artifacts declares one name twice")
    return declared


def _artifact(artifact: Any, name: str | None = None) -> Declared:
    match artifact:
        case {"type": "file" | "directory" as kind, "path": str(path)} if path and _is_native(path):
            name = artifact.get("name", path) if name is None else name
        case _:
            raise PayloadError("each of payload.artifacts needs a path and a type, file or directory")
    if not isinstance(name, str) or not re.fullmatch(r"[\x20-\x7e]{1,1024}", name):
        must_be = "1 to 1024 printable ASCII characters"
        raise PayloadError(f"{name!r:.80} cannot be an artifact's name: {must_be}")
    if name in (LIVE_LOG, BACKING_LOG):
        raise PayloadError(f"{name} is the task's log: choose another name in payload.artifacts")
    return Declared(name, kind == "directory", path, _expires(artifact.get("expires")))


def _expires(expires: Any) -> datetime | None:
    if expires is None:
        return None
    try:
        time = datetime.fromisoformat(expires)
        if time.tzinfo is None:
            raise ValueError
        return time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        message = "expires in payload.artifacts must be a time like 2016-01-31T12:00:00.000Z"
        raise PayloadError(message) from None


def _is_native(value: Any) -> bool:
    """Whether the value is a string that the operating system accepts: without NUL, and encodable."""
    try:
        return b"\0" not in os.fsencode(value)
    except (TypeError, UnicodeEncodeError):
        return False


class Command:
    """A command that runs in a session of its own; the caller must call ``end`` in every case."""

    def __init__(
        self,
        payload: Payload,
        names: Mapping[str, str],
        directory: Path,
        output: IO[bytes],
        on_exit: Callable[[], None],
    ) -> None:
        """Start the command in ``directory``, its standard output and error going to ``output``.

        The environment gets ``names`` (TASK_ID, RUN_ID) and then the payload's env. Another thread calls
        ``on_exit`` when the command itself has ended. Raises PayloadError if the task's command cannot run,
        OSError if that is not the task's fault.
        """
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603  running what a task says is a worker's purpose
                payload.arguments,
                env={**inherited, **names, **payload.env},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as failure:
            if failure.errno in _NOT_RUNNABLE:
                raise PayloadError(f"payload.command cannot be run: {failure.strerror}") from None
            raise

        def wait() -> None:
            # Does not reap: while the leader is a zombie, no other group can get its id.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            on_exit()

        self._waiting = threading.Thread(target=wait, daemon=True)
        self._waiting.start()

    def kill(self) -> None:
        """Kill the whole process group. Only ``end`` reaps its leader, so the id is still its own."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill the rest of the process group; return the command's exit code, -9 if this has killed it."""
        self.kill()
        self._waiting.join()
        return self._process.wait()
