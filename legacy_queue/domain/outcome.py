"""What a transition decided: the task as it is to be stored, what to tell, what becomes of its messages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.events import Event, task_event
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.task import Task
from legacy_queue.domain.timers import CLAIMS, DEADLINES, RESOLVED, Timer


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
    """``timer`` is put before the task is written, ``events`` are told after, and ``after`` done then.

    ``refusal`` is what the caller is told once ``task`` is stored, instead of the task.
    """

    task: Task
    hold: Hold | None = None
    after: tuple[After, ...] = ()
    timer: Timer | None = None
    events: tuple[Event, ...] = ()
    refusal: QueueError | None = None


def created(task: Task, now: datetime) -> Outcome:
    """There is a task, pending or unscheduled; or it was asked for again."""
    names = ["task-defined", "task-pending"] if task.state == "pending" else ["task-defined"]
    timer = replace(
        _timer(DEADLINES, task, now, task.definition.deadline, names),
        task_group_id=task.definition.task_group_id,
    )
    events = tuple(task_event(name, task) for name in names)
    return Outcome(task, after=_offered(task), timer=timer, events=events)


def now_pending(task: Task, now: datetime, due: datetime | None = None) -> Outcome:
    """The task has a new run; ``due`` is its deadline where no timer watches that yet."""
    timer = _timer(DEADLINES, task, now, due, ["task-pending"])
    return Outcome(task, after=_offered(task), timer=timer, events=(task_event("task-pending", task),))


def still_pending(task: Task) -> Outcome:
    """What was asked for has happened already: a pending run is offered and told again."""
    events = (task_event("task-pending", task),) if task.state == "pending" else ()
    return Outcome(task, after=_offered(task), events=events)


def claimed(task: Task, taken_until: datetime, before: tuple[Event, ...], now: datetime) -> Outcome:
    """The last run is running; ``before`` is what came to pass in the same moment."""
    events = (*before, task_event("task-running", task))
    names = [event.exchange for event in events]
    return Outcome(task, timer=_timer(CLAIMS, task, now, taken_until, names), events=events)


def resolved(task: Task, now: datetime) -> Outcome:
    """The task has ended, and others may wait for that."""
    name = f"task-{task.state}"
    return Outcome(task, timer=_timer(RESOLVED, task, now, now, [name]), events=(task_event(name, task),))


def _offered(task: Task) -> tuple[After, ...]:
    return (Offer(task.runs[-1].run_id),) if task.state == "pending" else ()


def _timer(queue: str, task: Task, now: datetime, due: datetime | None, untold: Sequence[str]) -> Timer:
    run_id = len(task.runs) - 1 if task.runs else None
    return Timer(queue, task.task_id, now, run_id, due, tuple(untold))
