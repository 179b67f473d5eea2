"""Lists of tasks, page by page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import BoundedSemaphore

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.task import Task
from legacy_queue.ports import DependencyStore, GroupStore, StoredTask, TaskStore
from legacy_queue.services.together import for_each

_AT_ONCE = 4  # tasks that all listings of a process read together: others are to get their turn


@dataclass(frozen=True)
class Listed:
    """A page: it goes on behind the taskId ``after``, None at the end. It may be shorter than asked for."""

    tasks: Sequence[Task]
    after: str | None


class Listing:
    """Pages begin behind a taskId: they stay as they are when tasks are added."""

    def __init__(self, tasks: TaskStore, groups: GroupStore, dependencies: DependencyStore) -> None:
        self._tasks, self._groups, self._dependencies = tasks, groups, dependencies
        self._places = BoundedSemaphore(_AT_ONCE)

    def group(self, task_group_id: str, after: str, limit: int) -> Listed:
        """Tasks of the group; raises ResourceNotFound."""
        if self._groups.load(task_group_id) is None:
            raise ResourceNotFound(f"there is no task group {task_group_id}; it may have expired")
        task_ids = self._groups.members(task_group_id, after, limit)
        # a task that was refused may have left a row behind
        return self._page(task_ids, limit, lambda task: task.definition.task_group_id == task_group_id)

    def dependents(self, task_id: str, after: str, limit: int) -> Listed:
        """Tasks that depend on the task; raises ResourceNotFound."""
        if self._tasks.load(task_id) is None:
            raise ResourceNotFound(f"there is no task {task_id}; it may have expired")
        dependents = self._dependencies.dependents(task_id, after, limit)
        task_ids = [dependent.task_id for dependent in dependents]
        return self._page(task_ids, limit, lambda task: task_id in task.definition.dependencies)

    def _page(self, task_ids: Sequence[str], limit: int, belongs: Callable[[Task], bool]) -> Listed:
        found = for_each(self._load, task_ids)
        tasks = [stored.task for stored in found if stored and belongs(stored.task)]
        return Listed(tasks, task_ids[-1] if len(task_ids) == limit else None)

    def _load(self, task_id: str) -> StoredTask | None:
        with self._places:
            return self._tasks.load(task_id)
