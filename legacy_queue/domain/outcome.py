"""What a transition makes of a task, and what is to be done with its messages and events.

Source: docs/explanation/held-message.md.
"""

from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.events import Event
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task


@dataclass(frozen=True)
class Hold:
    """Before the task is written: a message for ``run_id`` is to be invisible until then, the leased one
    while that lease is good, else a fresh one.
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
    """``events`` are published once the task is written, and ``after`` is done then; ``refusal`` is what the
    caller is told then, instead of the task.
    """

    task: Task
    hold: Hold | None = None
    after: Offer | DeleteMessage | None = None
    events: tuple[Event, ...] = ()
    refusal: QueueError | None = None
