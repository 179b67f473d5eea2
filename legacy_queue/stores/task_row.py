"""Converts a task to a row of the table, and back."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.due import next_due_of
from legacy_queue.domain.json_bytes import to_json
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.states import UNRESOLVED
from legacy_queue.domain.task import PriorityChange, Run, Task
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports.table import Row, Value
from legacy_queue.stores.table_rows import json_in, json_values, of_kind, properties

_WRITTEN = re.compile(r"[^/]+/[0-9]{1,18}")  # process/number
# This is stored instead of the state of a resolved task whose events are unpublished. So reading the
# unresolved tasks finds it, too. Its runs have the true state.
UNPUBLISHED = "unpublished"


class TaskVersion(NamedTuple):
    """What a process that takes over must know of a task that is unresolved or has unpublished events."""

    task_id: str
    due: datetime | None
    written: str
    is_unpublished: bool


def new_values(task: Task) -> Mapping[str, Value]:
    """Returns all properties of a new task."""
    return {
        **changing_values(task),
        **json_values("definition", task.definition.wire),
        "deadline": task.definition.deadline,
        "expires": task.definition.expires,
    }


def changing_values(task: Task) -> Mapping[str, Value]:
    """Returns the properties that a transition may change. A merge need not send the definition again.

    A merge cannot remove a property. So an empty string stands for no held message, and for no blob.
    """
    waits_for = frozenset(task.waits_for)
    return {
        "state": UNPUBLISHED if task.is_resolved and task.is_unpublished else task.state,
        "since": task.since,
        "taskQueueId": task.work_queue.task_queue_id,
        "priority": task.priority,
        "retriesLeft": task.retries_left,
        "runs": to_json([run.wire for run in task.runs]),
        # a 1 or 0 for each dependency, because thousands of taskIds would not fit
        "waitsFor": "".join("01"[required in waits_for] for required in task.definition.dependencies),
        "heldMessageId": task.held.message_id if task.held else "",
        "heldReceipt": task.held.receipt if task.held else "",
        "newestBlob": task.newest_blob,
        "isUnpublished": task.is_unpublished,
        "priorityChanges": _written_changes(task) if task.priority_changes else b"[]",
    }


def _written_changes(task: Task) -> bytes:
    changes = task.priority_changes
    return to_json([(change.old, change.new, format_time(change.changed)) for change in changes])


def task_in(row: Row) -> Task:
    """Returns the task in a row. Raises a built-in exception if the row is corrupt."""
    retries_left, runs, waits_for = properties(row, retriesLeft=int, runs=bytes, waitsFor=str)
    message_id, receipt, newest_blob = properties(row, heldMessageId=str, heldReceipt=str, newestBlob=str)
    is_unpublished, priority_changes = properties(row, isUnpublished=bool, priorityChanges=bytes)
    definition = TaskDefinition(json_in("definition", row))
    task = Task(
        task_id=row.partition,
        definition=definition,
        retries_left=retries_left,
        runs=tuple(Run.from_wire(run) for run in of_kind(list, json.loads(runs))),
        held=MessageLease(message_id, receipt) if message_id else None,
        waits_for=tuple(
            required
            for required, waits in zip(definition.dependencies, waits_for, strict=True)
            if waits == "1"
        ),
        newest_blob=newest_blob,
        is_unpublished=is_unpublished,
        priority_changes=tuple(
            PriorityChange(old, new, parse_time(changed))
            for old, new, changed in of_kind(list, json.loads(priority_changes))
        ),
    )
    _check(task)
    return task


def _check(task: Task) -> None:
    """Raise a built-in exception now if a part of the task is missing, and not later where it is used."""
    definition = task.definition
    are_in_order = definition.created <= definition.deadline <= definition.expires
    if not are_in_order or [run.run_id for run in task.runs] != [*range(len(task.runs))]:
        raise ValueError("times or runs that no task has")
    task.status()


def version_in(row: Row) -> TaskVersion:
    """Returns the version of a task in a row that may have only some of its properties."""
    state, runs, deadline, is_unpublished = properties(
        row, state=str, runs=bytes, deadline=datetime, isUnpublished=bool
    )
    last = [Run.from_wire(run) for run in json.loads(runs)[-1:]]
    due = next_due_of(last[0] if last else None, deadline) if state in UNRESOLVED else None
    return TaskVersion(row.partition, due, written_in(row), is_unpublished)


def written_in(row: Row) -> str:
    """Returns which write made this version, or "" if 0.1.0 did: see ``Processes.version``.

    Raises ValueError for any other text, because one such row must not stop a process that takes over.
    """
    written = of_kind(str, row.values.get("written", ""))
    if written and not _WRITTEN.fullmatch(written):
        raise ValueError("no write of a process")
    return written
