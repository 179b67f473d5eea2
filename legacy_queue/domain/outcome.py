"""What a transition decided: the task as it is to be stored, what to tell, what becomes of its messages."""

from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.events import Event, task_event
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.task import Task


@dataclass(frozen=True)
class Hold:
    """Before the task is written: a message for ``run_id`` is to be invisible until then.

    ``lease`` names the message to be used for it; without one, or when it is good no more, a fresh one.
    """

    run_id: int
    until: datetime
    lease: Lease | None


@dataclass(frozen=True)
class Offer:
    """After the task is written: a fresh message for the pending run ``run_id``, visible at once."""

    run_id: int


@dataclass(frozen=True)
class Release:
    """After the task is written: the held message becomes visible now, or a fresh one is put."""

    run_id: int
    lease: Lease


@dataclass(frozen=True)
class Withdraw:
    """After the task is written: the message is deleted if that is still possible."""

    lease: Lease


After = Offer | Release | Withdraw


@dataclass(frozen=True)
class Outcome:
    """``events`` are published once the task is written, and ``after`` is done then.

    ``refusal`` is what the caller is told once ``task`` is stored, instead of the task.
    """

    task: Task
    hold: Hold | None = None
    after: tuple[After, ...] = ()
    events: tuple[Event, ...] = ()
    refusal: QueueError | None = None


def created(task: Task) -> Outcome:
    """There is a task, pending or unscheduled; or it was asked for again."""
    names = ["task-defined", "task-pending"] if task.state == "pending" else ["task-defined"]
    return Outcome(task, after=_offered(task), events=tuple(task_event(name, task) for name in names))


def now_pending(task: Task) -> Outcome:
    """The task has a new run; or it is pending already, which is offered and published again."""
    events = (task_event("task-pending", task),) if task.state == "pending" else ()
    return Outcome(task, after=_offered(task), events=events)


def resolved(task: Task) -> Outcome:
    """The task has ended, and others may wait for that."""
    return Outcome(task, events=(task_event(f"task-{task.state}", task),))


def _offered(task: Task) -> tuple[After, ...]:
    return (Offer(task.runs[-1].run_id),) if task.state == "pending" else ()
