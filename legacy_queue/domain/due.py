"""When a task must be looked at: it is due at takenUntil or its deadline, and the sweeper looks now and then.

Source: docs/explanation/recovery.md.
"""

import math
from datetime import datetime, timedelta

from legacy_queue.domain.task import Run, Task

FIRST_LOOK = timedelta(minutes=10)


def next_due(task: Task) -> datetime | None:
    """When the claim or the task ends by time; None for a resolved task."""
    return None if task.is_resolved else next_due_of(task.last_run, task.definition.deadline)


def next_due_of(last_run: Run | None, deadline: datetime) -> datetime:
    """When the claim or the task ends by time, for an unresolved task with this last run."""
    return min(deadline, last_run.taken_until) if last_run and last_run.taken_until else deadline


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
