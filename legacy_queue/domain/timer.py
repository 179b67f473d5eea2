"""Timers: tasks that a process must look at, and when. Many share one message of an internal queue.

A timer is put *before* the write that makes it necessary. It has a time ``since`` until all effects of that
write are applied: if the process dies, its message soon becomes visible, and the process that receives it
repeats the effects. After that it waits until ``due``. The task alone decides what happens then. Source:
docs/explanation/recovery.md.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import epoch_milliseconds, from_epoch

MAX_TEXT = 40 * 1024  # characters of a message: Azure takes 48 KiB
FIRST_LOOK = timedelta(minutes=10)


@dataclass(frozen=True)
class Timer:
    """A look that a process must take at a task."""

    task_id: str
    due: datetime
    # effects of changes since then may be missing; None if no effects are missing
    since: datetime | None = None
    # the group that a task joins while it is created
    task_group_id: str = ""
    # artifact-created of some of its artifacts may be missing
    has_artifacts: bool = False

    def plus(self, other: "Timer | None") -> "Timer":
        """The timer with the missing effects of both.

        Of two groups it is its own: two calls create one task at once, and the sweeper ends the other.
        """
        if other is None or other.since is None:
            return self
        return replace(
            self,
            # the earlier: repeating effects that were applied is harmless
            since=min(self.since or other.since, other.since),
            task_group_id=self.task_group_id or other.task_group_id,
            has_artifacts=self.has_artifacts or other.has_artifacts,
        )

    def includes(self, other: "Timer") -> bool:
        """Whether this timer names all missing effects that the other names."""
        return self.plus(other) == self

    def to_wire(self) -> list[Any]:
        """Its fields in their order, times in milliseconds."""
        since = None if self.since is None else epoch_milliseconds(self.since)
        return [self.task_id, epoch_milliseconds(self.due), since, self.task_group_id, self.has_artifacts]

    @classmethod
    def from_wire(cls, wire: Sequence[Any]) -> Self:
        """The inverse of ``to_wire``; raises a built-in exception."""
        task_id, due, since, task_group_id, has_artifacts = wire
        return cls(
            _id(task_id),
            from_epoch(due),
            None if since is None else from_epoch(since),
            _id(task_group_id) if task_group_id else "",
            bool(has_artifacts),
        )


def texts(timers: Iterable[Timer]) -> Iterator[tuple[str, list[Timer]]]:
    """The texts of as few messages as possible, each with its timers."""
    messages: list[list[Timer]] = []
    left = 0
    for timer in timers:
        # with the comma before the next; the frame of the list is in what Azure takes beyond MAX_TEXT
        length = len(_json(timer.to_wire())) + 1
        if not messages or length > left:
            messages.append([])
            left = MAX_TEXT
        messages[-1].append(timer)
        left -= length
    for message in messages:
        yield _json({"timers": [timer.to_wire() for timer in message]}), message


def timers_of(text: str) -> list[Timer]:
    """The timers of a message, with keys that storage accepts; raises ValueError."""
    try:
        return [Timer.from_wire(wire) for wire in json.loads(text)["timers"]]
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not timers: {type(error).__name__}") from None


def next_due(task: Task) -> datetime | None:
    """When the claim or the task ends by time; None for a resolved task."""
    if task.is_resolved:
        return None
    deadline = task.definition.deadline
    last = task.last_run
    return min(deadline, last.taken_until) if last and last.taken_until else deadline


def is_due(since: datetime, last_pass: datetime | None, now: datetime) -> bool:
    """Whether the sweeper must look at a task that has waited since then: after 10 minutes, 20, 40, and so
    on. ``last_pass`` is the time of the pass before.
    """
    # each doubling of the age is one look: a pass is due if a doubling lies between it and the pass before
    return _looks(now - since) > (_looks(last_pass - since) if last_pass else 0)


def next_look(since: datetime, now: datetime) -> datetime:
    """When the sweeper's next look at a task that has waited since then is due."""
    doublings: int = 2 ** _looks(now - since)
    return since + FIRST_LOOK * doublings


def _looks(age: timedelta) -> int:
    return 0 if age < FIRST_LOOK else 1 + math.floor(math.log2(age / FIRST_LOOK))


def _json(wire: Any) -> str:
    return json.dumps(wire, separators=(",", ":"))


def _id(value: Any) -> str:
    if not re.fullmatch(TASK_ID, value):
        raise ValueError("not timers: an id is no slugid")
    return str(value)
