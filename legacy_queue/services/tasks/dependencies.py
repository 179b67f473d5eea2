"""Knows which tasks a task waits for, and which tasks wait for it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from legacy_queue.domain import transitions
from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import InputError, ResourceNotFound
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Corrupt
from legacy_queue.services.concurrency import Threads, map_concurrently
from legacy_queue.services.pagination import read_rows
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.stores import DependencyStore, Dependent, TaskStore

_MAX_SHOWN = 10  # wrong dependencies that an error names


class Dependencies:
    """Makes tasks pending when their dependencies are resolved."""

    def __init__(
        self, tasks: TaskStore, dependencies: DependencyStore, changes: Changes, threads: Threads
    ) -> None:
        self._tasks = tasks
        self._dependencies = dependencies
        self._changes = changes
        self._threads = threads

    def waits_for(self, task_id: str, definition: TaskDefinition) -> list[str]:
        """Returns the dependencies that keep the task from being pending. May include the task itself.

        Raises InputError if a dependency does not exist or expires before the task's deadline.
        """
        others = [required_id for required_id in definition.dependencies if required_id != task_id]
        satisfied, wrong = self._satisfied(others, definition)
        if wrong:
            more = f" and {len(wrong) - _MAX_SHOWN} more" if len(wrong) > _MAX_SHOWN else ""
            raise InputError(
                f"dependencies: {', '.join(wrong[:_MAX_SHOWN])}{more}. Expected tasks that exist "
                f"and do not expire before the deadline, {format_time(definition.deadline)}"
            )
        return [required_id for required_id in definition.dependencies if required_id not in satisfied]

    def states(self, task_ids: Sequence[str]) -> Mapping[str, str]:
        """Returns the state of each task, or "" if it does not exist."""

        def state_of(task_id: str) -> tuple[str, str]:
            stored = self._tasks.load(task_id)
            return task_id, stored.task.state if stored else ""

        return dict(map_concurrently(state_of, task_ids, self._threads))

    def register(self, task: Task) -> None:
        """Record the task as a dependent of its dependencies. Safe to repeat."""
        dependent = Dependent(task.task_id, task.definition.requires)
        expires = task.definition.expires
        map_concurrently(
            lambda required_id: self._dependencies.add(required_id, dependent, expires),
            task.definition.dependencies,
            self._threads,
        )

    def recheck(self, task: Task) -> Task:
        """Satisfy the dependencies that were resolved before the task was registered."""
        required_ids = [required_id for required_id in task.waits_for if required_id != task.task_id]
        satisfied, _ = self._satisfied([] if task.runs else required_ids, task.definition)
        for required_id in satisfied:
            task = self._satisfy(task.task_id, required_id)
        return task

    def release_dependents(self, required: Task, run_id: int) -> None:
        """Satisfy the tasks that depend on this one, which ended with that run. Safe to repeat."""
        if not self._dependencies.has_any(required.task_id):
            return
        as_it_ended = required.up_to(run_id)
        read = partial(self._dependencies.dependents, required.task_id)
        for dependent in read_rows(read, lambda row: row.task_id, ""):
            # a task that depends on itself waits until it is scheduled
            is_other = dependent.task_id != required.task_id
            if is_other and as_it_ended.satisfies(dependent.requires):
                # if it is not found, it is being created and will recheck, or it was refused, or has expired
                with suppress(ResourceNotFound, Corrupt):
                    self._satisfy(dependent.task_id, required.task_id)

    def _satisfy(self, task_id: str, required_id: str) -> Task:
        return self._changes.apply(task_id, lambda task, now: transitions.satisfy(task, required_id, now))

    def _satisfied(
        self, required_ids: Sequence[str], definition: TaskDefinition
    ) -> tuple[list[str], list[str]]:
        """Returns the dependencies that are satisfied, and what is wrong with the others.

        Only few of the tasks are in memory at a time, even if there are thousands.
        """

        def check(required_id: str) -> tuple[str, bool, str]:
            stored = self._tasks.load(required_id)
            if stored is None:
                return required_id, False, f"{required_id} does not exist"
            expires = stored.task.definition.expires
            wrong = ""
            if expires < definition.deadline:
                wrong = f"{required_id} expires at {format_time(expires)}"
            return required_id, stored.task.satisfies(definition.requires), wrong

        found = map_concurrently(check, required_ids, self._threads)
        satisfied = [required_id for required_id, is_satisfied, _ in found if is_satisfied]
        return satisfied, [wrong for *_, wrong in found if wrong]
