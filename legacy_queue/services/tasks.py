"""Tasks: created, looked at, reported, canceled."""

from collections.abc import Mapping
from typing import Any

from legacy_queue.domain import transitions
from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import end_of_day
from legacy_queue.ports import AlreadyExists, Clock, GroupStore, TaskStore
from legacy_queue.services.changes import Changes
from legacy_queue.services.work_messages import WorkMessages


class Tasks:
    """Everything that is done to a task but claiming it."""

    def __init__(
        self, tasks: TaskStore, groups: GroupStore, changes: Changes, messages: WorkMessages, clock: Clock
    ) -> None:
        self._tasks, self._groups, self._changes = tasks, groups, changes
        self._messages, self._clock = messages, clock

    def load(self, task_id: str) -> Task:
        """The task as it is now; raises ResourceNotFound."""
        return self._changes.read(task_id).task

    def recall(self, task_id: str) -> Task:
        """The task with its definition, to fill scopes from; its runs may be old."""
        stored = self._tasks.recall(task_id)
        return stored.task if stored else self.load(task_id)

    def create(self, task_id: str, body: Mapping[str, Any]) -> Task:
        """The task, pending; once answered it is never lost. The same body again answers the same.

        Raises InputError, InputTooLarge; RequestConflict for a group that has another schedulerId, and for
        another definition under this taskId.
        """
        now = self._clock.now()
        definition = TaskDefinition.from_wire(task_id, body, now)
        group = self._groups.join(
            task_id, definition.task_group_id, definition.scheduler_id, end_of_day(definition.expires)
        )
        if group.scheduler_id != definition.scheduler_id:
            raise RequestConflict(
                f"task group {group.task_group_id} has the schedulerId {group.scheduler_id!r}: "
                f"a task of {definition.scheduler_id!r} cannot join it",
            )
        outcome = transitions.create(task_id, definition, now)
        try:
            self._tasks.insert(outcome.task)
        except AlreadyExists:
            outcome = transitions.create_again(self.load(task_id), definition)
        self._messages.settle(outcome.task, outcome.after)
        return outcome.task

    def report(self, task_id: str, run_id: int, state: str, reason: str) -> Task:
        """The run is resolved, and a retry is offered where there is one; safe to repeat.

        Raises ResourceNotFound, RequestConflict.
        """

        def decide(task: Task) -> Outcome:
            return transitions.resolve(task, run_id, state, reason, self._clock.now())

        return self._changes.apply(task_id, decide)

    def cancel(self, task_id: str) -> Task:
        """The task is resolved, as exception/canceled if it was not before; safe to repeat.

        Raises ResourceNotFound; RequestConflict past the deadline.
        """
        return self._changes.apply(task_id, lambda task: transitions.cancel(task, self._clock.now()))
