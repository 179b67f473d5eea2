"""The result of a transition: the task, and the effects on its messages and events.

Source: docs/explanation/held-message.md.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.events import Event, run_retried, task_event
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import whole_seconds

# Azure does not hide a message up to the end of its time to live. That end was counted in whole seconds when
# the message was put; two seconds cover both roundings.
_EXPIRY_MARGIN = timedelta(seconds=2)


@dataclass(frozen=True)
class Hold:
    """Before the task is written: a message for ``run_id`` is hidden until then. It is the leased message, or
    a new message if the lease is stale.
    """

    run_id: int
    until: datetime
    lease: MessageLease | None


@dataclass(frozen=True)
class Offer:
    """After the task is written: a message for the pending ``run_id`` becomes visible, chosen as for Hold."""

    run_id: int
    lease: MessageLease | None = None


@dataclass(frozen=True)
class DeleteMessage:
    """After the task is written: the message in ``queue`` is deleted if that is still possible."""

    lease: MessageLease
    queue: WorkQueue


@dataclass(frozen=True)
class Outcome:
    """Once the task is written, ``events`` are published, ``message_effect`` is applied, and the caller gets
    the task, or ``refusal`` as an error.
    """

    task: Task
    hold: Hold | None = None
    message_effect: Offer | DeleteMessage | None = None
    events: tuple[Event, ...] = ()
    refusal: QueueError | None = None
    # Whether only somebody can ask for it who has a message or an answer that came after all earlier events
    # of the task. So nobody has to find out whether they were published.
    shows_events: bool = False


def task_defined(task: Task) -> Outcome:
    """The task exists, pending or unscheduled."""
    return task_pending(task, before=(task_event("task-defined", task),))


def task_pending(task: Task, held: MessageLease | None = None, before: tuple[Event, ...] = ()) -> Outcome:
    """If the task is pending, its last run is offered, by the held message if there is one. The events
    ``before`` come first.
    """
    if task.state != "pending":
        return Outcome(task, events=before)
    events = (*before, task_event("task-pending", task))
    return Outcome(task, message_effect=Offer(len(task.runs) - 1, held), events=events)


def task_retried(task: Task, held: MessageLease | None = None) -> Outcome:
    """The last run but one was resolved as exception, and the last run is pending instead."""
    return task_pending(task, held, before=(run_retried(task, len(task.runs) - 2),))


def task_resolved(task: Task, held: MessageLease | None = None) -> Outcome:
    """The task has ended, and does not need the held message."""
    after = DeleteMessage(held, task.work_queue) if held else None
    return Outcome(task, message_effect=after, events=(task_event(f"task-{task.state}", task),))


def message_held(
    task: Task,
    lease: MessageLease | None,
    now: datetime,
    events: tuple[Event, ...] = (),
    *,
    shows_events: bool = False,
) -> Outcome:
    """The message for the next run is held until takenUntil.

    A message ends at the deadline, and Azure hides no message up to its end. If takenUntil is about as late,
    nothing is held: the deadline ends the task.
    """
    run = task.runs[-1]
    until = run.taken_until or now
    rest = task.definition.deadline - now - _EXPIRY_MARGIN
    # rounded up, as Azure rounds the time for which it hides the message
    if timedelta(seconds=whole_seconds(until - now)) < rest:
        hold = Hold(run.run_id + 1, until, lease)
        return Outcome(task, hold, events=events, shows_events=shows_events)
    after = DeleteMessage(lease, task.work_queue) if lease else None
    task = task.with_runs(task.runs, None)
    return Outcome(task, message_effect=after, events=events, shows_events=shows_events)
