"""Tasks, groups, dependencies, and whose turn it is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from legacy_queue.domain.task import Task
from legacy_queue.ports.common import Expiring


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
    def pending(self, provisioner_id: str, worker_type: str) -> int | None:
        """How many tasks of the worker type are pending, where that costs no storage operation; else None."""

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
