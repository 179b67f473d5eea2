"""What the services need of the outside, each as a promise. ``adapters`` keeps them.

Every method may raise ServiceUnavailable: then the caller does not know whether it happened, and repeating
it is safe. A message is a hint: it may be lost, late or doubled, and the tables decide what it means.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task


class AlreadyExists(Exception):
    """There is something under that key."""


class Changed(Exception):
    """Somebody else wrote first, or it is gone: read again and decide again."""


class LeaseLost(Exception):
    """The receipt is stale or the message is gone."""


class Clock(ABC):
    @abstractmethod
    def now(self) -> datetime:
        """The time in UTC, whole milliseconds."""


@dataclass(frozen=True)
class StoredTask:
    """A task and the version of it that a conditional write names."""

    task: Task
    etag: str


class TaskStore(ABC):
    @abstractmethod
    def load(self, task_id: str) -> StoredTask | None:
        """The task as it is now."""

    def recall(self, task_id: str) -> StoredTask | None:  # noqa: ARG002
        """The task as this process saw it last, where it remembers it: only a write proves that it is so."""
        return None

    @abstractmethod
    def insert(self, task: Task) -> StoredTask:
        """Store a task that was not there; raises AlreadyExists."""

    @abstractmethod
    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        """Store the task if nobody changed it since ``stored``; raises Changed."""


@dataclass(frozen=True)
class Group:
    """A task group: one schedulerId, and an expiry no earlier than that of any of its tasks."""

    task_group_id: str
    scheduler_id: str
    expires: datetime


class GroupStore(ABC):
    @abstractmethod
    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        """Make the task a member, and the group live at least until ``expires``; safe to repeat.

        The group is created when there is none. Where it has another schedulerId, nothing is changed: the
        caller compares the group that is returned.
        """


@dataclass(frozen=True)
class SignedUrls:
    """A poll and a delete URL for one queue, as pollTaskUrls answers them."""

    poll: str
    delete: str


class WorkQueues(ABC):
    """The messages of pending runs, a queue for each priority of a worker type.

    Queues come into being when they are first needed. Durations are counted in whole seconds, rounded up
    for invisibility and down for the time to live.
    """

    @abstractmethod
    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        """A fresh message, invisible for ``hidden_for``, gone after ``expires_in``, which is longer."""

    @abstractmethod
    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        """Give the leased message this text and make it invisible for so long; raises LeaseLost.

        0 makes it visible at once. The old lease is good for nothing afterwards.
        """

    @abstractmethod
    def remove(self, queue: WorkQueue, lease: Lease) -> None:
        """Delete the leased message; raises LeaseLost."""

    @abstractmethod
    def count(self, queue: WorkQueue) -> int:
        """How many messages there are, visible or not: 0 for a queue that was never used."""

    @abstractmethod
    def signed_urls(
        self, queues: Sequence[WorkQueue], start: datetime, expiry: datetime, visibility: timedelta
    ) -> list[SignedUrls]:
        """URLs good between the two times for receiving and deleting messages of that one queue.

        ``poll`` carries the visibility timeout and takes an appended ``&numofmessages=N``; ``delete`` holds
        ``{{messageId}}`` and ``{{popReceipt}}`` literally, and no other brace. Source: design/clients.md 14.
        """


class Storage(ABC):
    """All of it, as one backend keeps it. ``endpoints`` are the URLs of queue, table and blob, or None."""

    endpoints: Mapping[str, str | None]

    tasks: TaskStore
    groups: GroupStore
    work_queues: WorkQueues

    @abstractmethod
    def check(self) -> None:
        """Return when queues and tables answer; raises ServiceUnavailable."""
