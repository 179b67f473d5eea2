"""Keeps task groups: their members, and whether all of them are resolved."""

from contextlib import suppress

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.events import Event, group_resolved, group_sealed
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import end_of_day
from legacy_queue.ports import BrokerAway, Clock, Corrupt
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.stores import Group, GroupStore, Sealed, TaskStore


class Groups:
    """The task groups. A group is resolved each time its last active task is resolved."""

    def __init__(self, groups: GroupStore, tasks: TaskStore, publisher: EventPublisher, clock: Clock) -> None:
        self._groups = groups
        self._tasks = tasks
        self._publisher = publisher
        self._clock = clock

    def load(self, task_group_id: str) -> Group:
        """Returns the group, even if it has only one task. Raises ResourceNotFound."""
        group = self._groups.load(task_group_id)
        if group is None:
            raise _not_found(task_group_id)
        return group

    def seal(self, task_group_id: str) -> Group:
        """Let no more tasks join the group. Safe to repeat. An earlier createTask may still succeed.

        Raises ResourceNotFound. Raises ServiceUnavailable if the event cannot be published.
        """
        sealed = self._groups.seal(task_group_id, self._clock.now())
        if sealed is None or sealed.sealed is None:
            raise _not_found(task_group_id)
        self.publish(group_sealed(task_group_id, sealed.scheduler_id, sealed.expires, sealed.sealed))
        return sealed

    def publish(self, event: Event) -> None:
        """Publish an event that only the client can repeat. Raises ServiceUnavailable: repeat the call."""
        try:
            self._publisher.publish([event])
        except BrokerAway:
            raise ServiceUnavailable(
                f"the change is made, but the broker is away: repeat the call to publish {event.exchange}"
            ) from None

    def join(self, task_id: str, definition: TaskDefinition, written: str = "") -> None:
        """Make the task an active member of its group. ``written`` names the write of createTask.

        Raises RequestConflict if the group has another schedulerId, or is sealed and the task is not in it.
        """
        wanted = group_of(definition)
        try:
            group = self._groups.join(task_id, wanted, written)
        except Sealed:
            raise sealed_group_conflict(task_id, wanted.task_group_id) from None
        if group.scheduler_id != wanted.scheduler_id:
            raise RequestConflict(
                f"task group {group.task_group_id} has the schedulerId {group.scheduler_id!r}: "
                f"a task of {wanted.scheduler_id!r} cannot join it",
            )

    def leave(self, task_id: str, task_group_id: str) -> None:
        """Undo ``join`` for a task that was not created. Publishes group-resolved if all others are resolved.

        If the task is created meanwhile, it joins again.
        """
        group = self._groups.load(task_group_id)
        if group is None:
            return
        self._groups.leave(task_id, task_group_id)
        stored = self._tasks.load(task_id)
        if stored and stored.task.definition.task_group_id == task_group_id:
            self.join_again(task_id, stored.task.definition)
        elif not self._groups.is_active(task_group_id) and self._groups.members(task_group_id, "", 1):
            self._publisher.publish([group_resolved(task_group_id, group.scheduler_id)])

    def join_again(self, task_id: str, definition: TaskDefinition) -> bool:
        """Join again with a task that is stored. Returns false if its group was sealed meanwhile."""
        with suppress(RequestConflict):
            self.join(task_id, definition)
            return True
        return False

    def activate(self, task: Task, run_id: int) -> None:
        """Make the task an active member again, with this run."""
        self._groups.activate(task.task_id, group_of(task.definition), run_id)

    def end(self, task: Task, run_id: int) -> None:
        """End the membership of a task that was resolved with that run. Safe to repeat.

        Publishes group-resolved if this was the last active task.
        """
        definition = task.definition
        task_group_id = definition.task_group_id
        activations = {0, task.activation(run_id)}  # also 0, because a task that is created again joins again
        if not self._groups.end(task.task_id, task_group_id, activations):
            self._publisher.publish([group_resolved(task_group_id, definition.scheduler_id)])

    def find(self, task_group_id: str) -> Group | None:
        """Returns the group, or None if its row is corrupt: its tasks can still be listed."""
        with suppress(Corrupt):
            return self.load(task_group_id)
        return None


def group_of(definition: TaskDefinition) -> Group:
    """Returns the group that this task creates if there is none."""
    return Group(definition.task_group_id, definition.scheduler_id, end_of_day(definition.expires))


def _not_found(task_group_id: str) -> ResourceNotFound:
    return ResourceNotFound(f"there is no task group {task_group_id}; it may have expired")


def sealed_group_conflict(task_id: str, task_group_id: str) -> RequestConflict:
    """Returns the refusal of a new task in a sealed group."""
    return RequestConflict(
        f"task group {task_group_id} is sealed, so task {task_id} cannot join it. Use another taskGroupId"
    )
