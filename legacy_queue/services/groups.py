"""Task groups: who belongs to them, and when all of them are resolved."""

import threading

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.events import group_resolved
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import end_of_day
from legacy_queue.services.event_publisher import EventPublisher
from legacy_queue.stores import GroupStore


class Groups:
    """A group is resolved each time that its last active task is."""

    def __init__(self, groups: GroupStore, publisher: EventPublisher) -> None:
        self._groups, self._publisher = groups, publisher
        self._locks = [threading.Lock() for _ in range(64)]

    def join(self, task_id: str, definition: TaskDefinition) -> None:
        """The task is an active member; raises RequestConflict for a group of another schedulerId."""
        group = self._groups.join(
            task_id, definition.task_group_id, definition.scheduler_id, end_of_day(definition.expires)
        )
        if group.scheduler_id != definition.scheduler_id:
            raise RequestConflict(
                f"task group {group.task_group_id} has the schedulerId {group.scheduler_id!r}: "
                f"a task of {definition.scheduler_id!r} cannot join it",
            )

    def leave(self, task_id: str, task_group_id: str) -> None:
        """Undo ``join`` for a task that did not come into being; tells if there are others, all resolved."""
        group = self._groups.load(task_group_id)
        self._groups.leave(task_id, task_group_id)
        if group and self._groups.members(task_group_id, "", 1):
            self._tell_if_resolved(task_group_id, group.scheduler_id)

    def activate(self, task: Task, run_id: int) -> None:
        """The task is about to be active again, with this run."""
        definition = task.definition
        self._groups.activate(task.task_id, definition.task_group_id, run_id, definition.expires)

    def end(self, task: Task, run_id: int) -> None:
        """The task was resolved with that run: tells if its group was, too. Safe to repeat."""
        definition = task.definition
        task_group_id = definition.task_group_id
        # one after the other, or the last two tasks of a group would each find that there is no other
        with self._locks[hash(task_group_id) % len(self._locks)]:
            for activation in {
                0,
                task.activation(run_id),
            }:  # 0 as well: it joins again when it is created again
                self._groups.deactivate(task.task_id, task_group_id, activation)
            self._tell_if_resolved(task_group_id, definition.scheduler_id)

    def _tell_if_resolved(self, task_group_id: str, scheduler_id: str) -> None:
        if not self._groups.has_active(task_group_id):
            self._publisher.publish([group_resolved(task_group_id, scheduler_id)])
