"""Tasks: created, scheduled, looked at, reported, rerun, canceled."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from legacy_queue.domain import transitions
from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import InputError, RequestConflict
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task
from legacy_queue.ports import AlreadyExists, BrokerAway, Clock
from legacy_queue.services.changes import Changes
from legacy_queue.services.dependencies import Dependencies
from legacy_queue.services.groups import Groups, sealed_before
from legacy_queue.services.timers import Timers
from legacy_queue.stores import ArtifactStore, TaskStore

_MAX_DEPENDENCIES = 100


class Tasks:
    """Everything that is done to a task but claiming it."""

    def __init__(
        self,
        tasks: TaskStore,
        groups: Groups,
        dependencies: Dependencies,
        changes: Changes,
        timers: Timers,
        clock: Clock,
        artifacts: ArtifactStore,
    ) -> None:
        self._tasks, self._groups, self._dependencies = tasks, groups, dependencies
        self._changes, self._timers, self._clock = changes, timers, clock
        self._artifacts = artifacts

    def load(self, task_id: str) -> Task:
        """The task as it is now; raises ResourceNotFound."""
        return self._changes.read(task_id).task

    def recall(self, task_id: str) -> Task:
        """The task with its definition, to fill scopes from; its runs may be old."""
        return self._changes.recall(task_id)

    def create(self, task_id: str, body: Mapping[str, Any]) -> Task:
        """The task, pending as soon as its dependencies allow; once answered it is never lost.

        The same body again answers the same. Raises InputError, InputTooLarge, and then nothing is left
        behind; RequestConflict for a group that has another schedulerId, and for another definition under
        this taskId.
        """
        now = self._clock.now()
        definition = TaskDefinition.from_wire(task_id, body, now)
        waits_for = self._dependencies.waits_for(task_id, definition)
        outcome = transitions.create(task_id, definition, waits_for, now)
        with self._changes.writing(task_id, now, definition.task_group_id):
            self._groups.join(task_id, definition)
            try:
                self._tasks.insert(outcome.task)
            except AlreadyExists:
                outcome = self._created_before(outcome.task)

        def register(task: Task) -> Task:
            self._dependencies.register(task)  # now: it is not pending before task-defined is published
            return self._dependencies.recheck(task)

        return self._changes.finish(outcome, register=register)

    def define(self, task_id: str, body: Mapping[str, Any]) -> Task:
        """As ``create``, but the task is unscheduled until it is scheduled: it depends on itself."""
        dependencies = list(body.get("dependencies", ()))
        if task_id not in dependencies:
            if len(dependencies) >= _MAX_DEPENDENCIES:
                raise InputError(
                    f"dependencies: defineTask adds the task itself to them, "
                    f"at most {_MAX_DEPENDENCIES - 1} others are accepted"
                )
            dependencies.append(task_id)
        return self.create(task_id, {**body, "dependencies": dependencies})

    def schedule(self, task_id: str) -> Task:
        """The task is pending, whatever it waits for, unless it was scheduled before; safe to repeat.

        Raises ResourceNotFound; RequestConflict past the deadline.
        """
        return self._changes.apply(task_id, transitions.schedule)

    def rerun(self, task_id: str) -> Task:
        """The task is pending again if it was resolved; safe to repeat until it is resolved again.

        Raises ResourceNotFound; RequestConflict past the deadline or after 50 runs.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            outcome = transitions.rerun(task, now)
            if outcome.task != task:
                self._groups.activate(task, len(task.runs))
            return outcome

        self.load(task_id)  # no older one is remembered now: its activation would have ended before
        return self._changes.apply(task_id, decide)

    def report(self, task_id: str, run_id: int, state: str, reason: str) -> Task:
        """The run is resolved, and a retry is offered where there is one; safe to repeat.

        Raises ResourceNotFound; RequestConflict, also for completed where a blob or an object of the run is
        not complete.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            outcome = transitions.resolve(task, run_id, state, reason, now)
            if state == "completed" and task.newest_blob and outcome.task != task:
                self._check_blobs(task, run_id)
            return outcome

        return self._changes.apply(task_id, decide)

    def cancel(self, task_id: str) -> Task:
        """The task is resolved, as exception/canceled if it was not before; safe to repeat.

        Raises ResourceNotFound; RequestConflict past the deadline.
        """
        return self._changes.apply(task_id, transitions.cancel)

    def change_priority(self, task_id: str, old: str, new: str) -> Task:
        """The task, which had the old priority, has the new one; safe to repeat.

        Raises ResourceNotFound; RequestConflict for a task that is resolved, past its deadline, or has been
        given yet another priority.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            if task.priority not in (old, new):
                raise RequestConflict(
                    f"task {task_id}: its priority was changed from {old} to {task.priority} in this moment",
                    {"status": task.status()},
                )
            return transitions.change_priority(task, new, now)

        return self._changes.apply(task_id, decide)

    def _check_blobs(self, task: Task, run_id: int) -> None:
        artifact = self._artifacts.incomplete(task.task_id, run_id, self._clock.now())
        if artifact:
            raise RequestConflict(
                f"task {task.task_id}: artifact {artifact.name!r} of run {run_id} is not complete: "
                "upload it and call completeArtifact, or finishArtifact for an object, before you report the "
                "run completed",
                {"status": task.status()},
            )

    def _created_before(self, given: Task) -> Outcome:
        """The task is there already: the same, or another, a RequestConflict that leaves nothing behind.
        Or none may be: its group was canceled, or is named as the task and sealed.
        """
        task_group_id, stored = given.definition.task_group_id, self._tasks.load(given.task_id)
        existing = stored.task if stored else None
        try:
            if existing is None:
                raise sealed_before(given.task_id, task_group_id)
            return transitions.create_again(existing, given.definition)
        finally:
            self._end_again(given.task_id, existing, task_group_id)

    def _end_again(self, task_id: str, task: Task | None, joined: str) -> None:
        """By joining a group again it became active there again."""
        try:
            if task is None or joined != task.definition.task_group_id:
                self._groups.leave(task_id, joined)
            if task and task.is_resolved:
                self._groups.end(task, len(task.runs) - 1)
        except BrokerAway:
            self._timers.schedule(task_id, self._clock.now(), joined)
            self._timers.retry_later(task_id)
