"""What a task waits for, and who waits for a task."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from legacy_queue.domain import transitions
from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import InputError, ResourceNotFound
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Corrupt
from legacy_queue.services.changes import Changes
from legacy_queue.services.concurrency import Threads, map_concurrently
from legacy_queue.stores import DependencyStore, Dependent, TaskStore

_PAGE = 100
_NAMED = 10  # in an error, of what is wrong


class Dependencies:
    """Keeps tasks waiting until what they depend on is resolved."""

    def __init__(
        self, tasks: TaskStore, dependencies: DependencyStore, changes: Changes, threads: Threads
    ) -> None:
        self._tasks, self._dependencies, self._changes = tasks, dependencies, changes
        self._threads = threads

    def waits_for(self, task_id: str, definition: TaskDefinition) -> list[str]:
        """Those of its dependencies that keep the task from being pending; itself too.

        Raises InputError where one does not exist, or expires before the task's deadline.
        """
        found = self._load([one for one in definition.dependencies if one != task_id])
        wrong = []
        for one, required in found.items():
            if required is None:
                wrong.append(f"{one} does not exist")
            elif required.definition.expires < definition.deadline:
                wrong.append(f"{one} expires at {format_time(required.definition.expires)}")
        if wrong:
            more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise InputError(
                f"dependencies: {', '.join(wrong[:_NAMED])}{more}. A task can depend on tasks that exist and "
                f"do not expire before its deadline, {format_time(definition.deadline)}"
            )
        satisfied = _satisfied(found, definition)
        return [one for one in definition.dependencies if one not in satisfied]

    def register(self, task: Task) -> None:
        """The task is among the dependents of its dependencies, itself perhaps. Safe to repeat."""
        dependent = Dependent(task.task_id, task.definition.requires)
        expires = task.definition.expires
        map_concurrently(
            lambda one: self._dependencies.add(one, dependent, expires),
            task.definition.dependencies,
            self._threads,
        )

    def recheck(self, task: Task) -> Task:
        """The task, where what it waits for was resolved before anybody knew that it waits."""
        waits_for = [] if task.runs else [one for one in task.waits_for if one != task.task_id]
        for one in _satisfied(self._load(waits_for), task.definition):
            task = self._satisfy(task.task_id, one)
        return task

    def release_dependents(self, required: Task, run_id: int) -> None:
        """What waits for the task, which ended with that run, waits no longer, where that is enough for it.

        Safe to repeat.
        """
        if not self._dependencies.has_any(required.task_id):
            return
        as_it_ended, after = required.up_to(run_id), ""
        while page := self._dependencies.dependents(required.task_id, after, _PAGE):
            for dependent in page:
                is_other = dependent.task_id != required.task_id  # itself it waits for until it is scheduled
                if is_other and as_it_ended.satisfies(dependent.requires):
                    # one that is being created looks for itself; others were refused, or have expired
                    with suppress(ResourceNotFound, Corrupt):
                        self._satisfy(dependent.task_id, required.task_id)
                after = dependent.task_id
            if len(page) < _PAGE:
                return

    def _satisfy(self, task_id: str, required_id: str) -> Task:
        return self._changes.apply(task_id, lambda task, now: transitions.satisfy(task, required_id, now))

    def _load(self, task_ids: Sequence[str]) -> Mapping[str, Task | None]:
        found = zip(task_ids, map_concurrently(self._tasks.load, task_ids, self._threads), strict=True)
        return {task_id: stored.task if stored else None for task_id, stored in found}


def _satisfied(found: Mapping[str, Task | None], definition: TaskDefinition) -> list[str]:
    """Those of the tasks that keep it no longer from being pending."""
    requires = definition.requires
    return [one for one, task in found.items() if task and task.satisfies(requires)]
