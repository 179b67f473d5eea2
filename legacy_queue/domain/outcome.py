"""The result of a transition: the new task, what to do with its messages, and which events to publish.

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

# Azure refuses to hide a message until its time to live ends. Azure rounded that end to whole seconds when
# the message was put, and rounds the time to hide it. Two seconds cover both.
_EXPIRY_MARGIN = timedelta(seconds=2)


@dataclass(frozen=True)
class Hold:
    """To be done before the task is written: hide a message for ``run_id`` until then.

    The leased message is used. If there is no lease or it is stale, a new message is put.
    """

    run_id: int
    until: datetime
    lease: MessageLease | None


@dataclass(frozen=True)
class Offer:
    """To be done after the task is written: make a message for the pending ``run_id`` visible.

    The message is chosen as for Hold.
    """

    run_id: int
    lease: MessageLease | None = None


@dataclass(frozen=True)
class DeleteMessage:
    """To be done after the task is written: delete the message in ``queue`` if the lease is still valid."""

    lease: MessageLease
    queue: WorkQueue


@dataclass(frozen=True)
class Outcome:
    """The task to write, and what follows once it is written.

    First ``hold`` is applied, then the task is written, then ``events`` are published, and at last
    ``message_effect`` is applied. The caller gets the task or, if there is a ``refusal``, this error.
    """

    task: Task
    hold: Hold | None = None
    message_effect: Offer | DeleteMessage | None = None
    events: tuple[Event, ...] = ()
    refusal: QueueError | None = None
    # True if the caller must have seen a message or an answer that the queue sends only after all earlier
    # events of the task were published. Then nobody has to find out whether they were published.
    shows_events: bool = False


def task_defined(task: Task) -> Outcome:
    """The outcome for a new task, pending or unscheduled."""
    return task_pending(task, before=(task_event("task-defined", task),))


def task_pending(task: Task, held: MessageLease | None = None, before: tuple[Event, ...] = ()) -> Outcome:
    """The outcome for a task that may be pending: if it is, its last run is offered.

    The held message is used if there is one. The events ``before`` are published first.
    """
    if task.state != "pending":
        return Outcome(task, events=before)
    events = (*before, task_event("task-pending", task))
    return Outcome(task, message_effect=Offer(len(task.runs) - 1, held), events=events)


def task_retried(task: Task, held: MessageLease | None = None) -> Outcome:
    """The outcome for a retry: the run before the last was resolved as exception, the last is pending."""
    return task_pending(task, held, before=(run_retried(task, len(task.runs) - 2),))


def task_resolved(task: Task, held: MessageLease | None = None) -> Outcome:
    """The outcome for a resolved task: it does not need its held message any more."""
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
    """The outcome for a claim or reclaim: the message for the next run is held until takenUntil.

    The time to live of a message ends at the deadline, and Azure refuses to hide a message until then. So if
    takenUntil is about as late as the deadline, no message is held: the deadline ends the task.
    """
    run = task.runs[-1]
    until = run.taken_until or now
    rest = task.definition.deadline - now - _EXPIRY_MARGIN
    # rounded up, as Azure rounds the visibility timeout
    if timedelta(seconds=whole_seconds(until - now)) < rest:
        hold = Hold(run.run_id + 1, until, lease)
        return Outcome(task, hold, events=events, shows_events=shows_events)
    after = DeleteMessage(lease, task.work_queue) if lease else None
    task = task.with_runs(task.runs, None)
    return Outcome(task, message_effect=after, events=events, shows_events=shows_events)
