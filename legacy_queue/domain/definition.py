"""The task definition: the body of createTask with defaults.

Source: docs/explanation/http-contract.md#task-definition.

The JSON schema checks types, patterns and lengths; the rules between fields are here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, Self, TypeVar

from legacy_queue.domain.errors import InputError, InputTooLarge, RequestConflict
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.times import format_time, parse_field, parse_time

CLOCK_DRIFT = timedelta(minutes=15)
MAX_DEADLINE = timedelta(days=5)
# bytes of compact JSON: the certificate of a claim lists the scopes and must fit into a header
MAX_SCOPES = 30 * 1024
MAX_DEFINITION = 900 * 1024  # bytes of compact JSON: with the runs it must fit into a row of 1 MiB

NO_PROJECT = "none"  # the projectId of a task without a project
_TIMES = ("created", "deadline", "expires")

Read = TypeVar("Read")


class lazy(Generic[Read]):  # noqa: N801 - a decorator
    """``functools.cached_property`` for a frozen value, without the lock that Python 3.11 takes."""

    def __init__(self, read: Callable[[Any], Read]) -> None:
        self._read = read

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, value: Any, _owner: type) -> Read:
        read = value.__dict__[self._name] = self._read(value)  # from now on Python finds it there first
        return read


def _field(name: str, read: Callable[[Any], Read]) -> lazy[Read]:
    # a field is read when it is first needed, because most calls need few of them
    return lazy(lambda definition: read(definition.wire[name]))


@dataclass(frozen=True)
class TaskDefinition:
    """A complete definition. It never changes once the task exists.

    ``wire`` always names the pool by provisionerId and workerType, never by taskQueueId, and it leaves out
    the projectId "none". ``dependencies`` are taskIds. A task that depends on itself waits until a client
    schedules it.
    """

    wire: Mapping[str, Any]

    created = _field("created", parse_time)
    deadline = _field("deadline", parse_time)
    expires = _field("expires", parse_time)
    task_group_id = _field("taskGroupId", str)
    scheduler_id = _field("schedulerId", str)
    dependencies = _field("dependencies", tuple[str, ...])
    requires = _field("requires", str)  # all-completed or all-resolved
    retries = _field("retries", int)

    @property
    def project_id(self) -> str:
        return str(self.wire.get("projectId", NO_PROJECT))

    def to_wire(self) -> dict[str, Any]:
        """Returns the definition as the API returns it, with projectId and taskQueueId."""
        pool = f"{self.wire['provisionerId']}/{self.wire['workerType']}"
        return {**self.wire, "projectId": self.project_id, "taskQueueId": pool}

    def check_same(self, given: "TaskDefinition", task_id: str) -> None:
        """Raises RequestConflict if ``given`` is a different definition of this task.

        They are compared as JSON, because in Python 1 equals True.
        """
        mine, theirs = (
            {name: to_json(value, is_sorted=True) for name, value in definition.wire.items()}
            for definition in (self, given)
        )
        different = [name for name in sorted({*mine, *theirs}) if theirs.get(name) != mine.get(name)]
        if different:
            verb = "differs" if len(different) == 1 else "differ"
            raise RequestConflict(
                f"task {task_id} exists with another definition: {', '.join(different)} {verb}. "
                "Use another taskId, or send the same definition",
                {"existing": self.to_wire(), "given": given.to_wire()},
            )

    @classmethod
    def from_wire(cls, task_id: str, body: Mapping[str, Any], now: datetime) -> Self:
        """Fills in the defaults and checks the rules. Raises InputError or InputTooLarge."""
        pool = dict(zip(("provisionerId", "workerType"), pool_in(body), strict=True))
        times = {name: parse_field(body, name, parse_time) for name in _TIMES if name in body}
        try:
            times.setdefault("expires", times["deadline"] + timedelta(days=365))
        except OverflowError:
            raise InputError(f"deadline: {body['deadline']} is out of range") from None
        _check_times(**times, now=now)
        for scope in body.get("scopes", ()):
            if scope.endswith("**"):
                raise InputError(f"the scope {scope!r} ends in '**': expected at most one '*' at the end")
        _check_size("the task's scopes have", body.get("scopes", []), MAX_SCOPES)
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
        wire = {**defaults, **body, **pool, **{name: format_time(time) for name, time in times.items()}}
        wire.pop("taskQueueId", None)
        if wire.get("projectId") == NO_PROJECT:
            del wire["projectId"]
        if wire["priority"] == "normal":
            wire["priority"] = "lowest"
        _check_size("the task definition has", wire, MAX_DEFINITION)
        definition = cls(wire)
        vars(definition).update(times)  # so that ``lazy`` does not parse them again
        return definition


def pool_in(body: Mapping[str, Any]) -> tuple[str, str]:
    """Returns provisionerId and workerType of a definition.

    The definition names these two, or taskQueueId, or all three. Raises InputError if it names no pool, or
    two different pools.
    """
    provisioner_id = body.get("provisionerId")
    worker_type = body.get("workerType")
    if "taskQueueId" in body:
        pool: tuple[str, str] = tuple(body["taskQueueId"].split("/"))
        if provisioner_id not in (None, pool[0]) or worker_type not in (None, pool[1]):
            raise InputError(
                f"taskQueueId is {body['taskQueueId']}, provisionerId {provisioner_id} and workerType "
                f"{worker_type}: expected the same pool. taskQueueId alone is enough"
            )
        return pool
    if provisioner_id is None or worker_type is None:
        raise InputError(
            "the definition names no pool: expected taskQueueId, or both provisionerId and workerType"
        )
    return provisioner_id, worker_type


def _check_times(created: datetime, deadline: datetime, expires: datetime, now: datetime) -> None:
    rules = (
        ("created", "a time within 15 minutes of now, {now}", abs(created - now) <= CLOCK_DRIFT),
        ("deadline", "a time that is not before created, {created}", deadline >= created),
        ("deadline", "a time in the future", deadline > now),
        ("deadline", "a time that is at most 5 days away", deadline - now <= MAX_DEADLINE + CLOCK_DRIFT),
        ("expires", "a time that is not before deadline, {deadline}", expires >= deadline),
    )
    for name, rule, is_kept in rules:
        if not is_kept:
            named = {"created": created, "deadline": deadline, "expires": expires, "now": now}
            times = {key: format_time(time) for key, time in named.items()}
            raise InputError(f"{name} is {times[name]}: expected {rule.format(**times)}", times)


def _check_size(what: str, value: Any, max_size: int) -> None:
    size = len(to_json(value))
    if size > max_size:
        raise InputTooLarge(f"{what} {size} bytes as JSON: expected at most {max_size}")
