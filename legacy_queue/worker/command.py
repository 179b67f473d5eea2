"""Reads task.payload, which the queue does not validate, and runs its command as a process group.

``{"command": [...] or "...", "env": {...}, "maxRunTime": seconds, "artifacts": {name: {"type": "file",
"path": "..."}}}``; only the command is required.
"""

import math
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

SHELL = ("/bin/sh", "-c")
LOG = "public/logs/live.log"  # the artifact

# A task gets only these variables of the worker's environment. The credentials are not among them, but a task
# can read them in /proc.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")


class PayloadError(Exception):
    """Another run of the task would have the same result. The message shows no value of ``env``."""


@dataclass(frozen=True)
class Payload:
    """A command to run, its environment, how long it may take and the paths of the artifacts to upload."""

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    max_run_time: float  # seconds; infinite if the payload does not say
    artifacts: Mapping[str, str]  # by name

    @classmethod
    def from_wire(cls, payload: Any) -> "Payload":
        """Read task.payload; raises PayloadError."""
        if not isinstance(payload, dict):
            raise PayloadError("payload must be an object")
        command = payload.get("command")
        env = payload.get("env", {})
        seconds = payload.get("maxRunTime", math.inf)
        artifacts = payload.get("artifacts", {})
        words = [*SHELL, command] if isinstance(command, str) else command
        if not command or not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise PayloadError("payload.command must be a list of strings or one string, and not empty")
        if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
            raise PayloadError("payload.env must be an object whose values are strings")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise PayloadError("payload.maxRunTime must be a number of seconds above 0")
        if not isinstance(artifacts, dict) or not all(map(_is_file, artifacts.values())):
            raise PayloadError(
                'payload.artifacts must be an object of files, {name: {"type": "file", "path": ...}}'
            )
        if LOG in artifacts:
            raise PayloadError(f"{LOG} is the task's log: choose another name in payload.artifacts")
        paths = {name: artifact["path"] for name, artifact in artifacts.items()}
        return cls(tuple(words), env, seconds, paths)


def _is_file(artifact: Any) -> bool:
    match artifact:
        case {"type": "file", "path": str(path)}:
            return bool(path)
    return False


class Command:
    """A command that runs in a session of its own, until the end of its ``with`` at the latest."""

    def __init__(self, payload: Payload, names: Mapping[str, str], directory: Path, log: IO[bytes]) -> None:
        """Start the command in ``directory``, its standard output and error going to ``log``.

        The environment gets ``names`` (TASK_ID, RUN_ID) and then the payload's env. Raises PayloadError if
        the command cannot run, OSError if the machine can start no process.
        """
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._has_ended = False
        try:
            self._process = subprocess.Popen(  # noqa: S603  running what a task says is a worker's purpose
                payload.arguments,
                env={**inherited, **names, **payload.env},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError) as failure:
            # ValueError: a word, name or value that no process can have
            raise PayloadError(f"payload.command cannot be run: {failure}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what is left of the process group."""
        self.kill()
        self._has_ended = True
        self._process.wait()

    def wait(self, seconds: float) -> int | None:
        """The exit code, -9 after ``kill``; None if the command has not ended in time."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill the whole process group, from any thread."""
        if not self._has_ended:  # else the id may be that of another group
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
