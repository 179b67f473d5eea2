"""Creates, schedules, reads, resolves, reruns and cancels tasks."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.domain import transitions
from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task
from legacy_queue.ports import AlreadyExists, BrokerAway, Clock
from legacy_queue.services.process.liveness import DEAD_AFTER
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.services.tasks.dependencies import Dependencies
from legacy_queue.services.tasks.groups import Groups, sealed_group_conflict
from legacy_queue.stores import ArtifactStore, TaskStore


class Tasks:
    """Every call on a task except claims and artifacts."""

    def __init__(
        self,
        tasks: TaskStore,
        groups: Groups,
        dependencies: Dependencies,
        changes: Changes,
        clock: Clock,
        artifacts: ArtifactStore,
    ) -> None:
        self._tasks = tasks
        self._groups = groups
        self._dependencies = dependencies
        self._changes = changes
        self._clock = clock
        self._artifacts = artifacts

    def load(self, task_id: str) -> Task:
        """Reads the task. Raises ResourceNotFound."""
        return self._changes.read(task_id).task

    def recall(self, task_id: str) -> Task:
        """Returns the task, without a read if possible. Its runs may be outdated. Raises ResourceNotFound."""
        return self._changes.recall(task_id)

    def create(self, task_id: str, body: Mapping[str, Any]) -> Task:
        """Create the task. It is pending once its dependencies allow. After this returns, it is never lost.

        Safe to repeat with the same body. If it raises InputError or InputTooLarge, nothing is stored. Raises
        RequestConflict if the group has another schedulerId, or the stored task another definition.
        """
        now = self._clock.now()
        began = self._clock.monotonic()
        definition = TaskDefinition.from_wire(task_id, body, now)
        waits_for = self._dependencies.waits_for(task_id, definition)
        outcome = transitions.create(task_id, definition, waits_for, now)
        is_in_group = True
        with self._changes.writing(task_id, now, definition.task_group_id, needs_name=False) as owed:
            # It is a member before it is stored, so its group is neither resolved nor canceled without it.
            written = self._changes.version(owed)
            self._groups.join(task_id, definition, written)
            marked = self._changes.marked(outcome.task)
            if marked is not outcome.task:
                outcome = replace(outcome, task=marked)
            # Other processes end the membership if they take this process for dead. So a call that is too
            # late writes no task, and a call whose write took too long joins again.
            if self._seems_dead(began):
                raise ServiceUnavailable("storage took too long, try again")
            try:
                self._tasks.insert(outcome.task, written)
            except AlreadyExists:
                outcome = self._created_before(outcome)
            else:
                if self._seems_dead(began):
                    is_in_group = self._groups.join_again(task_id, definition)
                    self._end_again(task_id, self.load(task_id), definition.task_group_id)

        def register(task: Task) -> Task:
            # not earlier: it must not be pending before task-defined is published
            self._dependencies.register(task)
            return self._dependencies.recheck(task)

        task = self._changes.finish(outcome.task, outcome, owed, register=register)
        # If its group was sealed before it could join again, cancelTaskGroup may have missed it.
        return task if is_in_group else self.cancel(task_id)

    def define(self, task_id: str, body: Mapping[str, Any]) -> Task:
        """Create a task that depends on itself, so that it stays unscheduled until ``schedule``."""
        dependencies = list(body.get("dependencies", ()))
        if task_id not in dependencies:
            dependencies.append(task_id)
        return self.create(task_id, {**body, "dependencies": dependencies})

    def schedule(self, task_id: str) -> Task:
        """Make an unscheduled task pending, whatever its dependencies are. Safe to repeat.

        Raises ResourceNotFound. Raises RequestConflict after the deadline.
        """
        return self._changes.apply(task_id, transitions.schedule)

    def rerun(self, task_id: str) -> Task:
        """Make a resolved or unscheduled task pending. Safe to repeat until it is resolved again.

        Raises ResourceNotFound. Raises RequestConflict after the deadline, or after 50 runs.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            outcome = transitions.rerun(task, now)
            if task.is_resolved and outcome.task != task:
                self._groups.activate(task, len(task.runs))
            return outcome

        # a fresh read: an outdated version would activate a run whose membership has ended already
        self.load(task_id)
        return self._changes.apply(task_id, decide)

    def report(self, task_id: str, run_id: int, state: str, reason: str) -> Task:
        """Resolve the run, and offer a retry if there is one. Safe to repeat.

        Raises ResourceNotFound, RequestConflict. ``completed`` is also a conflict while a blob or an object
        of the run is incomplete.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            outcome = transitions.resolve(task, run_id, state, reason, now)
            if state == "completed" and task.newest_blob and outcome.task != task:
                self._check_blobs(task, run_id)
            return outcome

        self._changes.wait_for_room()
        return self._changes.apply(task_id, decide)

    def cancel(self, task_id: str) -> Task:
        """Resolve an unresolved task as exception/canceled. Safe to repeat.

        Raises ResourceNotFound. Raises RequestConflict after the deadline.
        """
        self._changes.wait_for_room()
        return self._changes.apply(task_id, transitions.cancel)

    def change_priority(self, task_id: str, old: str, new: str) -> Task:
        """Change the priority from ``old`` to ``new``. Safe to repeat.

        Raises ResourceNotFound. Raises RequestConflict after the deadline, and if the task is resolved or has
        neither priority.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            if task.priority not in (old, new):
                raise RequestConflict(
                    f"task {task_id}: its priority has just been changed from {old} to {task.priority}",
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

    def _seems_dead(self, began: timedelta) -> bool:
        """Whether the call has taken so long that other processes may end the membership of its task."""
        return self._clock.monotonic() - began > DEAD_AFTER

    def _created_before(self, outcome: Outcome) -> Outcome:
        """Returns the outcome for a taskId that is already taken.

        Raises RequestConflict and stores nothing if another task is stored, or if the group was canceled so
        that the task must not be created.
        """
        task = outcome.task
        task_group_id = task.definition.task_group_id
        stored = self._tasks.load(task.task_id)
        existing = stored.task if stored else None
        try:
            if existing is None:
                raise sealed_group_conflict(task.task_id, task_group_id)
            created = transitions.create_again(existing, task.definition)
        finally:
            self._end_again(task.task_id, existing, task_group_id)
        if existing == task:
            return outcome  # this call has written it and only the answer was lost, so nobody else offers it
        return replace(created, message_effect=None)  # the call that has written it offers it

    def _end_again(self, task_id: str, task: Task | None, joined_group_id: str) -> None:
        """Undo the activation that joining the group once more has made."""
        try:
            if task is None or joined_group_id != task.definition.task_group_id:
                self._groups.leave(task_id, joined_group_id)
            if task and task.is_resolved:
                self._groups.end(task, len(task.runs) - 1)
        except BrokerAway:
            with self._changes.owing(task_id, self._clock.now(), joined_group_id):
                pass  # everything is left to the resolver
