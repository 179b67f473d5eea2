"""Timers: tasks that a process must look at, and when.

A timer is stored *before* the write that makes it necessary. It has a time ``since`` until all effects of
that write are applied: if the process dies, another soon finds it and repeats the effects. After that it
waits until ``due``. The task alone decides what happens then. Source: docs/explanation/recovery.md.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from legacy_queue.domain.task import Task

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
        )

    def includes(self, other: "Timer") -> bool:
        """Whether this timer names all missing effects that the other names."""
        return self.plus(other) == self


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
