"""When the server must look at a task: at takenUntil, at its deadline, and now and then by the sweeper.

Source: docs/explanation/recovery.md.
"""

import math
from datetime import datetime, timedelta

from legacy_queue.domain.task import Run, Task

FIRST_LOOK = timedelta(minutes=10)


def next_due(task: Task) -> datetime | None:
    """Returns takenUntil or the deadline, whichever comes first. None if the task is resolved."""
    return None if task.is_resolved else next_due_of(task.last_run, task.definition.deadline)


def next_due_of(last_run: Run | None, deadline: datetime) -> datetime:
    """Returns takenUntil or the deadline, whichever comes first, of an unresolved task with this last run."""
    return min(deadline, last_run.taken_until) if last_run and last_run.taken_until else deadline


def is_look_due(since: datetime, last_pass: datetime | None, now: datetime) -> bool:
    """Whether the sweeper must look, in this pass, at a task that has waited since then.

    It looks after 10, 20, 40 minutes and so on. ``last_pass`` is the time of the previous pass.
    """
    # each time the age doubles, one look is due: did it double between the previous pass and this one?
    return _looks(now - since) > (_looks(last_pass - since) if last_pass else 0)


def next_look(since: datetime, now: datetime) -> datetime:
    """When the sweeper must look next at a task that has waited since then."""
    doublings: int = 2 ** _looks(now - since)
    return since + FIRST_LOOK * doublings


def _looks(age: timedelta) -> int:
    return 0 if age < FIRST_LOOK else 1 + math.floor(math.log2(age / FIRST_LOOK))
