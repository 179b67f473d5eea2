"""Tasks as table entities.

One entity for each task, alone in its partition: PartitionKey is the taskId, RowKey ``task``. The definition
is JSON in binary properties ``definition0``, ``definition1``, ... of 64 KiB, Azure's limit for a property.
"""

import json
from typing import Any

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.task import Run, Task

ROW_KEY = "task"
_CHUNK = 64 * 1024


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
    """The inverse of ``task_entity``; one of before there were dependencies, or blobs, has none."""
    held = Lease(entity["heldMessageId"], entity["heldReceipt"]) if entity["heldMessageId"] else None
    return Task(
        task_id=entity["PartitionKey"],
        definition=TaskDefinition(json.loads(joined("definition", entity))),
        retries_left=entity["retriesLeft"],
        runs=tuple(Run.from_wire(run) for run in json.loads(entity["runs"])),
        held=held,
        waits_for=tuple(json.loads(entity.get("waitsFor", b"[]"))),
        newest_blob=entity.get("newestBlob", ""),
    )


def chunked(name: str, value: bytes) -> dict[str, bytes]:
    """The value as properties ``<name>0``, ``<name>1``, ..."""
    starts = range(0, len(value), _CHUNK)
    return {f"{name}{number}": value[start : start + _CHUNK] for number, start in enumerate(starts)}


def joined(name: str, entity: dict[str, Any]) -> bytes:
    """The inverse of ``chunked``."""
    count = sum(key.startswith(name) for key in entity)
    return b"".join(entity[f"{name}{number}"] for number in range(count))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
