"""task.payload, which the queue does not validate: what this worker can run, and what it refuses.

``{"command": [...] or "...", "env": {...}, "maxRunTime": seconds}``; the last two may be left out.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

SHELL = ("/bin/sh", "-c")
LONGEST_RUN = 10**9  # seconds; the task's deadline comes long before


class MalformedPayload(Exception):
    """Another run of the task would have the same result. The message shows no value of ``env``."""


@dataclass(frozen=True)
class Payload:
    """A command to run, its environment, and how long it may take; None is until the deadline."""

    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    max_run_time: timedelta | None

    @classmethod
    def from_wire(cls, payload: Any) -> "Payload":
        """Read task.payload; raises MalformedPayload before anything of the task has run."""
        if not isinstance(payload, dict):
            raise MalformedPayload("payload must be an object")
        return cls(
            arguments=_arguments(payload.get("command")),
            env=_env(payload.get("env", {})),
            max_run_time=_max_run_time(payload["maxRunTime"]) if "maxRunTime" in payload else None,
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


def _is_native(value: Any) -> bool:
    """Whether the operating system can take it: no NUL, nothing that cannot be encoded."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True
