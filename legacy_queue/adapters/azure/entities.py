"""Tasks as table entities.

One entity for each task, alone in its partition: PartitionKey is the taskId, RowKey ``task``. The definition
is JSON in binary properties ``definition0``, ``definition1``, ... of 64 KiB, Azure's limit for a property.
"""

import json
from datetime import datetime
from typing import Any, TypeVar

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.task import Run, Task

Kind = TypeVar("Kind")

ROW_KEY = "task"
_CHUNK = 64 * 1024
_STATES = ("pending", "running", "completed", "failed", "exception")


def task_entity(task: Task) -> dict[str, Any]:
    """The whole entity of a new task."""
    return {
        **changing_properties(task),
        **chunked("definition", _json(dict(task.definition.wire))),
        "deadline": task.definition.deadline,
        "expires": task.definition.expires,
    }


def changing_properties(task: Task) -> dict[str, Any]:
    """What a transition may change: merged into the entity, so that the definition is not sent again.

    A merge cannot unset a property: nothing held, and no blob, is an empty string.
    """
    return {
        "PartitionKey": task.task_id,
        "RowKey": ROW_KEY,
        "state": task.state,
        "retriesLeft": task.retries_left,
        "runs": _json([run.to_wire() for run in task.runs]),
        "waitsFor": _json(task.waits_for),
        "heldMessageId": task.held.message_id if task.held else "",
        "heldReceipt": task.held.receipt if task.held else "",
        "newestBlob": task.newest_blob,
    }


def task_from_entity(entity: dict[str, Any]) -> Task:
    """The inverse of ``task_entity``; one of before there were dependencies, or blobs, has none.

    Raises an error of Python's for what is no task.
    """
    message_id, receipt = (of_kind(str, entity[name]) for name in ("heldMessageId", "heldReceipt"))
    waits_for = of_kind(list, json.loads(entity.get("waitsFor", b"[]")))
    task = Task(
        task_id=entity["PartitionKey"],
        definition=TaskDefinition(of_kind(dict, json.loads(joined("definition", entity)))),
        retries_left=of_kind(int, entity["retriesLeft"]),
        runs=tuple(Run.from_wire(run) for run in of_kind(list, json.loads(entity["runs"]))),
        held=Lease(message_id, receipt) if message_id else None,
        waits_for=tuple(of_kind(str, one) for one in waits_for),
        newest_blob=of_kind(str, entity.get("newestBlob", "")),
    )
    _check(task)
    return task


def of_kind(kind: type[Kind], value: Any) -> Kind:
    """The value, which is of that type; raises TypeError."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"a {type(value).__name__} where {kind.__name__} is due")
    return value


def chunked(name: str, value: bytes) -> dict[str, bytes]:
    """The value as properties ``<name>0``, ``<name>1``, ..."""
    starts = range(0, len(value), _CHUNK)
    return {f"{name}{number}": value[start : start + _CHUNK] for number, start in enumerate(starts)}


def joined(name: str, entity: dict[str, Any]) -> bytes:
    """The inverse of ``chunked``."""
    count = sum(key.startswith(name) for key in entity)
    return b"".join(entity[f"{name}{number}"] for number in range(count))


def _check(task: Task) -> None:
    """That every part is there with which the task is worked on."""
    definition = task.definition
    for time in (definition.created, definition.deadline, definition.expires):
        of_kind(datetime, time)
    wire = definition.wire
    for name in ("provisionerId", "workerType", "schedulerId", "taskGroupId", "requires"):
        of_kind(str, wire[name])
    of_kind(int, wire["retries"])
    for name in ("dependencies", "routes", "scopes"):
        for one in of_kind(list, wire[name]):
            of_kind(str, one)
    definition.work_queue.name("")
    for number, run in enumerate(task.runs):
        if run.run_id != number or run.state not in _STATES:
            raise ValueError("a run of another id or state")
        for text in (run.reason_created, run.reason_resolved or "", *_names(run)):
            of_kind(str, text)


def _names(run: Run) -> tuple[Any, ...]:
    return (run.worker.worker_group, run.worker.worker_id) if run.worker else ()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
