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
    """After the task is written: a message for the pending run ``run_id`` becomes visible at once.

    ``lease`` names the held message to be used for it; without one, or when it is good no more, a fresh one.
    """

    run_id: int
    lease: Lease | None = None


@dataclass(frozen=True)
class Withdraw:
    """After the task is written: the message is deleted if that is still possible."""

    lease: Lease


@dataclass(frozen=True)
class Outcome:
    """``events`` are published once the task is written, and ``after`` is done then.

    ``refusal`` is what the caller is told once ``task`` is stored, instead of the task.
    """

    task: Task
    hold: Hold | None = None
    after: Offer | Withdraw | None = None
    events: tuple[Event, ...] = ()
    refusal: QueueError | None = None


def created(task: Task) -> Outcome:
    """There is a task, pending or unscheduled; or it was asked for again."""
    pending = now_pending(task)
    return Outcome(task, after=pending.after, events=(task_event("task-defined", task), *pending.events))


def now_pending(task: Task, held: Lease | None = None) -> Outcome:
    """The task has a new run, offered by the held message; or it is pending already, which is offered and
    published again. Nothing is where it is not pending.
    """
    if task.state != "pending":
        return Outcome(task)
    return Outcome(task, after=Offer(len(task.runs) - 1, held), events=(task_event("task-pending", task),))


def resolved(task: Task, held: Lease | None = None) -> Outcome:
    """The task has ended, and others may wait for that; nothing needs the held message."""
    after = Withdraw(held) if held else None
    return Outcome(task, after=after, events=(task_event(f"task-{task.state}", task),))
