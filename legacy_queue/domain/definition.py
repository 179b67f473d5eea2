"""The task definition: what createTask is given, with its defaults filled in.

Source: "Task definition" in design/api.md. The JSON schema has checked types, patterns and lengths
before anything here is called; the rules between fields are here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self

from legacy_queue.domain.errors import InputError, InputTooLarge
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import format_time, parse_time

CLOCK_DRIFT = timedelta(minutes=15)
MAX_DEADLINE = timedelta(days=5)
MAX_SCOPES = 30 * 1024  # bytes of JSON: the claim's certificate lists them, and must fit a header
MAX_SIZE = 900 * 1024  # bytes of JSON: with its runs it must fit an entity of 1 MiB

_TIMES = ("created", "deadline", "expires")


@dataclass(frozen=True)
class TaskDefinition:
    """A complete definition in its wire form, never changed once the task exists."""

    wire: Mapping[str, Any]

    @classmethod
    def from_wire(cls, task_id: str, body: Mapping[str, Any], now: datetime) -> Self:
        """Fill in the defaults and check the rules; raises InputError or InputTooLarge."""
        given = {**body, **{name: _time(body, name) for name in _TIMES if name in body}}
        given.setdefault("expires", _add_year(given["deadline"]))
        _check_times(given["created"], given["deadline"], given["expires"], now)
        for scope in body.get("scopes", ()):
            if scope.endswith("**"):
                raise InputError(f"the scope {scope!r} ends in '**': at most one '*' may end a scope")
        size = len(json.dumps(body.get("scopes", [])))
        if size > MAX_SCOPES:
            raise InputTooLarge(
                f"the task's scopes have {size} bytes as JSON; at most {MAX_SCOPES} are accepted"
            )
        defaults = {
            "schedulerId": "-",
            "taskGroupId": task_id,
            "dependencies": [],
            "requires": "all-completed",
            "routes": [],
            "priority": "lowest",
            "retries": 5,
            "scopes": [],
            "tags": {},
            "extra": {},
        }
        wire = {**defaults, **given, **{name: format_time(given[name]) for name in _TIMES}}
        if wire["priority"] == "normal":
            wire["priority"] = "lowest"
        size = len(json.dumps(wire).encode())
        if size > MAX_SIZE:
            raise InputTooLarge(
                f"the task definition has {size} bytes as JSON; at most {MAX_SIZE} are accepted"
            )
        return cls(wire)

    @cached_property
    def created(self) -> datetime:
        return parse_time(self.wire["created"])

    @cached_property
    def deadline(self) -> datetime:
        return parse_time(self.wire["deadline"])

    @cached_property
    def expires(self) -> datetime:
        return parse_time(self.wire["expires"])

    @property
    def task_group_id(self) -> str:
        return str(self.wire["taskGroupId"])

    @property
    def scheduler_id(self) -> str:
        return str(self.wire["schedulerId"])

    @property
    def dependencies(self) -> tuple[str, ...]:
        """The taskIds that it depends on, its own perhaps: then it waits until it is scheduled."""
        return tuple(self.wire["dependencies"])

    @property
    def requires(self) -> str:
        """``all-completed`` or ``all-resolved``."""
        return str(self.wire["requires"])

    @property
    def retries(self) -> int:
        return int(self.wire["retries"])

    @property
    def work_queue(self) -> WorkQueue:
        return WorkQueue(self.wire["provisionerId"], self.wire["workerType"], self.wire["priority"])


def _time(body: Mapping[str, Any], name: str) -> datetime:
    try:
        return parse_time(body[name])
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None


def _add_year(time: datetime) -> datetime:
    try:
        return time + timedelta(days=365)
    except OverflowError:
        raise InputError(f"deadline: {format_time(time)} is out of range") from None


def _check_times(created: datetime, deadline: datetime, expires: datetime, now: datetime) -> None:
    def refuse(rule: str) -> InputError:
        times = {"created": created, "deadline": deadline, "expires": expires, "now": now}
        return InputError(rule, {name: format_time(time) for name, time in times.items()})

    if abs(created - now) > CLOCK_DRIFT:
        raise refuse(
            f"created is {format_time(created)}: it must be within 15 minutes of now, {format_time(now)}"
        )
    if deadline < created:
        raise refuse(f"deadline is {format_time(deadline)}: it must not be before created")
    if deadline <= now:
        raise refuse(f"deadline is {format_time(deadline)}: it must be in the future")
    if deadline - now > MAX_DEADLINE + CLOCK_DRIFT:
        raise refuse(f"deadline is {format_time(deadline)}: it must be at most 5 days away")
    if expires < deadline:
        raise refuse(f"expires is {format_time(expires)}: it must not be before deadline")
