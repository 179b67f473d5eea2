"""task.payload, which the queue does not validate: what this worker can run, and what it refuses.

``{"command": [...] or "...", "env": {...}, "maxRunTime": seconds, "artifacts": ...}``; all but the command
may be left out. ``artifacts`` is docker-worker's object, ``{name: {"type": "file" or "directory", "path",
"expires"}}``, or generic-worker's list, ``[{"type", "path", "name", "expires"}]``, where the name may be left
out as well and is then the path.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

SHELL = ("/bin/sh", "-c")
LONGEST_RUN = 10**9  # seconds; the task's deadline comes long before
OF_THE_LOG = frozenset({"public/logs/live.log", "public/logs/live_backing.log"})

_ARTIFACT_NAME = re.compile(r"[\x20-\x7e]{1,1024}")


class MalformedPayload(Exception):
    """Another run of the task would have the same result. The message shows no value of ``env``."""


@dataclass(frozen=True)
class Declared:
    """An artifact that the task promises to make: a file or a directory below its working directory."""

    name: str
    is_directory: bool
    path: str
    expires: datetime | None


@dataclass(frozen=True)
class Payload:
    """A command to run, its environment, how long it may take (None is until the deadline) and what is
    to be kept of what it makes.
    """

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    max_run_time: timedelta | None
    artifacts: tuple[Declared, ...] = ()

    @classmethod
    def from_wire(cls, payload: Any) -> "Payload":
        """Read task.payload; raises MalformedPayload before anything of the task has run."""
        if not isinstance(payload, dict):
            raise MalformedPayload("payload must be an object")
        return cls(
            arguments=_arguments(payload.get("command")),
            env=_env(payload.get("env", {})),
            max_run_time=_max_run_time(payload["maxRunTime"]) if "maxRunTime" in payload else None,
            artifacts=_artifacts(payload.get("artifacts", [])),
        )


def _arguments(command: Any) -> tuple[str, ...]:
    if isinstance(command, str) and command and _is_native(command):
        return (*SHELL, command)
    if isinstance(command, list) and command and command[0] and all(map(_is_native, command)):
        return tuple(command)
    raise MalformedPayload("payload.command must be a list of strings or one string, and not empty")


def _env(env: Any) -> Mapping[str, str]:
    if not isinstance(env, dict) or not all(map(_is_native, env.values())):
        raise MalformedPayload("payload.env must be an object whose values are strings")
    if not all(name and "=" not in name and _is_native(name) for name in env):
        raise MalformedPayload("payload.env holds a name that no environment variable can have")
    return env


def _max_run_time(seconds: Any) -> timedelta:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise MalformedPayload("payload.maxRunTime must be a number of seconds above 0")
    return timedelta(seconds=min(seconds, LONGEST_RUN))


def _artifacts(artifacts: Any) -> tuple[Declared, ...]:
    if isinstance(artifacts, dict):
        declared = [_artifact(name, artifact) for name, artifact in artifacts.items()]
    elif isinstance(artifacts, list):
        declared = [_artifact(None, artifact) for artifact in artifacts]
    else:
        raise MalformedPayload("payload.artifacts must be an object, or a list of objects")
    if len({one.name for one in declared}) < len(declared):
        raise MalformedPayload("payload.artifacts declares one name twice")
    return tuple(declared)


def _artifact(name: str | None, artifact: Any) -> Declared:
    match artifact:
        case {"type": "file" | "directory" as kind, "path": str(path)} if path and _is_native(path):
            name = artifact.get("name", path) if name is None else name
        case _:
            raise MalformedPayload(
                "each of payload.artifacts must have a type, file or directory, and a path"
            )
    if not isinstance(name, str) or not _ARTIFACT_NAME.fullmatch(name):
        raise MalformedPayload(
            f"{name!r:.80} cannot be an artifact's name: 1 to 1024 printable ASCII characters"
        )
    if name in OF_THE_LOG:
        raise MalformedPayload(f"{name} is the task's log: give what payload.artifacts declares another name")
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
        raise MalformedPayload(message) from None


def _is_native(value: Any) -> bool:
    """Whether the operating system can take it: no NUL, nothing that cannot be encoded."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True
