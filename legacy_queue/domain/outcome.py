"""What a transition decided: the task as it is to be stored, and what is to be done about its messages."""

from dataclasses import dataclass
from datetime import datetime

from legacy_queue.domain.errors import QueueError
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
    """``refusal`` is what the caller is told once ``task`` is stored, instead of the task."""

    task: Task
    hold: Hold | None = None
    after: tuple[After, ...] = ()
    refusal: QueueError | None = None
