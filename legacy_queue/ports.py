"""What the services need of the outside, each as a promise. ``adapters`` keeps them.

Every method may raise ServiceUnavailable: then the caller does not know whether it happened, and repeating
it is safe. A message is a hint: it may be lost, late or doubled, and the tables decide what it means.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from legacy_queue.domain.events import Event
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task


class AlreadyExists(Exception):
    """There is something under that key."""


class Changed(Exception):
    """Somebody else wrote first, or it is gone: read again and decide again."""


class LeaseLost(Exception):
    """The receipt is stale or the message is gone."""


class BrokerAway(Exception):
    """The broker did not confirm: whether it has the event is not known."""


class Clock(ABC):
    @abstractmethod
    def now(self) -> datetime:
        """The time in UTC, whole milliseconds."""


@dataclass(frozen=True)
class StoredTask:
    """A task and the version of it that a conditional write names.

    ``is_own``: this process wrote it, so that nobody else tells of it what is to be told first.
    """

    task: Task
    etag: str
    is_own: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class TaskPage:
    """Some of the tasks that were asked for; ``after`` continues, None at the end."""

    tasks: Sequence[StoredTask]
    after: str | None


class Expiring(ABC):
    """What is kept until a time of its own."""

    @abstractmethod
    def remove_expired(self, now: datetime, after: str, limit: int) -> str | None:
        """Remove up to ``limit`` of what expired before ``now``, from where ``after`` says, "" the beginning.

        Answers where to go on, None at the end. What was changed meanwhile so that it lives longer stays.
        Safe to repeat, and in several processes at once.
        """


class TaskStore(Expiring):
    """Only a task that is resolved expires: an unresolved one has its end before it, and somebody to tell."""

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

    @abstractmethod
    def unresolved(self, after: str, limit: int) -> TaskPage:
        """Up to ``limit`` tasks that are unscheduled, pending or running, in any order that stays the same.

        From where ``after`` says, "" being the beginning. A page may be empty and not the last.
        """


@dataclass(frozen=True)
class Group:
    """A task group: one schedulerId, and an expiry no earlier than that of any of its tasks."""

    task_group_id: str
    scheduler_id: str
    expires: datetime


@dataclass(frozen=True)
class ActiveTask:
    """A member of a group that was not seen resolved yet, and since when; see ``Task.activation``."""

    task_group_id: str
    task_id: str
    activation: int
    since: datetime


@dataclass(frozen=True)
class ActivePage:
    """Some of all groups' active tasks; ``after`` continues, None at the end."""

    active: Sequence[ActiveTask]
    after: str | None


class GroupStore(Expiring):
    """Groups, their members, and which of those are active. Expiry removes members too."""

    @abstractmethod
    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        """Make the task a member, active from run 0 on, and the group live at least until ``expires``.

        The group is created when there is none. Where it has another schedulerId, nothing is changed: the
        caller compares the group that is returned. Safe to repeat.
        """

    @abstractmethod
    def leave(self, task_id: str, task_group_id: str) -> None:
        """Undo ``join`` for a task that did not come into being; the group stays. Safe to repeat."""

    @abstractmethod
    def load(self, task_group_id: str) -> Group | None:
        """The group, if any task ever joined it."""

    @abstractmethod
    def members(self, task_group_id: str, after: str, limit: int) -> Sequence[str]:
        """Up to ``limit`` taskIds greater than ``after``, ordered as bytes: fewer at the end only."""

    @abstractmethod
    def activate(self, task_id: str, task_group_id: str, activation: int, expires: datetime) -> None:
        """The task, which lives until ``expires``, is active again, from this run on. Safe to repeat."""

    @abstractmethod
    def deactivate(self, task_id: str, task_group_id: str, activation: int) -> None:
        """The task is not active any more by this activation; a later one is untouched. Safe to repeat."""

    @abstractmethod
    def has_active(self, task_group_id: str) -> bool:
        """Whether any task of the group is active: at the cost of one, however many there are."""

    @abstractmethod
    def all_active(self, after: str, limit: int) -> ActivePage:
        """Up to ``limit`` active tasks of all groups, from where ``after`` says, "" being the beginning."""


@dataclass(frozen=True)
class Dependent:
    """A task that waits for another one: to be completed, or only to be resolved."""

    task_id: str
    requires: str


class DependencyStore(Expiring):
    """Which tasks depend on a task."""

    @abstractmethod
    def add(self, required_id: str, dependent: Dependent, expires: datetime) -> None:
        """Remember that ``dependent`` depends on ``required_id``. Safe to repeat."""

    @abstractmethod
    def dependents(self, required_id: str, after: str, limit: int) -> Sequence[Dependent]:
        """Up to ``limit`` with a taskId greater than ``after``, ordered as bytes: fewer at the end only."""


@dataclass(frozen=True)
class SignedUrls:
    """A poll and a delete URL for one queue, as pollTaskUrls answers them."""

    poll: str
    delete: str


class WorkQueues(Expiring):
    """The messages of pending runs, a queue for each priority of a worker type.

    Queues come into being when they are first needed. Durations are counted in whole seconds, rounded up
    for invisibility and down for the time to live. Those that are empty and unused for 10 days have expired.
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


@dataclass(frozen=True)
class OwnMessage:
    """A message in one of the queue's own queues; one that was peeked at has no receipt."""

    lease: Lease
    text: str
    dequeue_count: int


class OwnQueues(ABC):
    """The queue's own queues, ``<prefix>-<name>``: claims, deadlines, resolved, events, poison.

    Messages are ASCII text of up to 48 KiB and stay until they are removed. Those that are visible come in
    the order in which they were put. Durations are counted in whole seconds, rounded up.
    """

    @abstractmethod
    def put(self, name: str, text: str, hidden_for: timedelta) -> Lease:
        """A fresh message, invisible for so long."""

    @abstractmethod
    def receive(self, name: str, count: int, hidden_for: timedelta) -> Sequence[OwnMessage]:
        """Up to ``count`` (1..32) visible messages, invisible for so long from now."""

    @abstractmethod
    def peek(self, name: str, count: int) -> Sequence[OwnMessage]:
        """Up to ``count`` (1..32) visible messages, left as they are."""

    @abstractmethod
    def hide(self, name: str, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        """Give the leased message this text and make it invisible for so long; raises LeaseLost."""

    @abstractmethod
    def remove(self, name: str, lease: Lease) -> None:
        """Delete the leased message; raises LeaseLost."""


@dataclass(frozen=True)
class Turn:
    """Something that one process at a time does.

    ``cursor`` is how far it came, ``since`` when it was last done.
    """

    name: str
    cursor: str
    since: datetime | None
    etag: str


class Turns(ABC):
    """Whose turn it is, among all processes."""

    @abstractmethod
    def take(self, name: str, until: datetime) -> Turn | datetime:
        """The turn, which nobody else gets before ``until``; or until when somebody else has it."""

    @abstractmethod
    def keep(self, turn: Turn, until: datetime, cursor: str, since: datetime | None) -> Turn:
        """The same turn, longer and further on; to end it, let ``until`` be when it may be taken again.

        Raises Changed where somebody else has taken it meanwhile.
        """


class EventLog(ABC):
    """What was told while there is no broker, readable for a while. Ids are ordered as text."""

    @abstractmethod
    def append(self, events: Sequence[Event]) -> None:
        """Add them, in this order, behind what this process added before."""

    @abstractmethod
    def read(self, after: str, limit: int) -> Sequence[tuple[str, Event]]:
        """Up to ``limit`` events behind the one with the id ``after``, each with its id, oldest first."""

    @abstractmethod
    def last(self) -> str:
        """An id that everything from now on comes behind."""

    @abstractmethod
    def trim(self, before: datetime) -> None:
        """Forget what is older."""


class Broker(ABC):
    """RabbitMQ, or what speaks its protocol."""

    @abstractmethod
    def publish(self, events: Sequence[Event]) -> None:
        """Return once the broker has confirmed all of them, in this order; raises BrokerAway."""

    @abstractmethod
    def check(self) -> None:
        """Return when the broker takes messages; raises BrokerAway."""

    @abstractmethod
    def follow(self, exchange: str | None, pattern: str) -> Iterator[Event | None]:
        """Events from now on of that exchange, or of all, whose routing key or a route matches the pattern.

        None about every second while there are none, so that the caller can look after itself. Raises
        BrokerAway.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of its connections."""


class Storage(ABC):
    """All of it, as one backend keeps it. ``endpoints`` are the URLs of queue, table and blob, or None."""

    endpoints: Mapping[str, str | None]

    tasks: TaskStore
    groups: GroupStore
    dependencies: DependencyStore
    work_queues: WorkQueues
    own_queues: OwnQueues
    turns: Turns
    event_log: EventLog
    expiring: Mapping[str, Expiring]  # by name, in the order in which they are looked through

    @abstractmethod
    def check(self) -> None:
        """Return when queues and tables answer; raises ServiceUnavailable."""
