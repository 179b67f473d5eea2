"""Tasks as rows.

One row for each task, alone in its partition: the partition is the taskId, the key ``task``. The definition
is JSON in binary properties ``definition0``, ``definition1``, ...
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.task import Run, Task
from legacy_queue.ports.table import Row, Value
from legacy_queue.stores.rows import chunked, joined, of_kind

KEY = "task"
_STATES = ("pending", "running", "completed", "failed", "exception")


def new_values(task: Task) -> Mapping[str, Value]:
    """All properties of a new task."""
    return {
        **changing_values(task),
        **chunked("definition", _json(dict(task.definition.wire))),
        "deadline": task.definition.deadline,
        "expires": task.definition.expires,
    }


def changing_values(task: Task) -> Mapping[str, Value]:
    """What a transition may change: merged into the row, so that the definition is not sent again.

    A merge cannot unset a property: nothing held, and no blob, is an empty string.
    """
    return {
        "state": task.state,
        "retriesLeft": task.retries_left,
        "runs": _json([run.to_wire() for run in task.runs]),
        "waitsFor": _json(task.waits_for),
        "heldMessageId": task.held.message_id if task.held else "",
        "heldReceipt": task.held.receipt if task.held else "",
        "newestBlob": task.newest_blob,
        "isUnpublished": task.is_unpublished,
    }


def task_in(row: Row) -> Task:
    """The inverse of ``new_values``; a row of before there were dependencies, or blobs, has none.

    Raises an error of Python's for what is no task.
    """
    values = row.values
    message_id, receipt = (of_kind(str, values[name]) for name in ("heldMessageId", "heldReceipt"))
    waits_for = of_kind(list, json.loads(of_kind(bytes, values.get("waitsFor", b"[]"))))
    task = Task(
        task_id=row.partition,
        definition=TaskDefinition(of_kind(dict, json.loads(joined("definition", values)))),
        retries_left=of_kind(int, values["retriesLeft"]),
        runs=tuple(Run.from_wire(run) for run in of_kind(list, json.loads(of_kind(bytes, values["runs"])))),
        held=Lease(message_id, receipt) if message_id else None,
        waits_for=tuple(of_kind(str, one) for one in waits_for),
        newest_blob=of_kind(str, values.get("newestBlob", "")),
        is_unpublished=of_kind(bool, values.get("isUnpublished", False)),
    )
    _check(task)
    return task


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
