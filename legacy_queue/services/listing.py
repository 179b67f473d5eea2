"""Lists of tasks, page by page."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import BoundedSemaphore

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.task import Task
from legacy_queue.ports import Corrupt
from legacy_queue.services.groups import Groups
from legacy_queue.services.pages import Page, read_page
from legacy_queue.stores import DependencyStore, Dependent, TaskStore

_AT_ONCE = 4  # tasks that all listings of a process read together: each may have a megabyte

Render = Callable[[Task], bytes]


class Listing:
    """Pages begin behind a taskId: they stay as they are when tasks are added."""

    def __init__(self, tasks: TaskStore, groups: Groups, dependencies: DependencyStore) -> None:
        self._tasks, self._groups, self._dependencies = tasks, groups, dependencies
        self._places = BoundedSemaphore(_AT_ONCE)

    def group(self, task_group_id: str, after: str, limit: int, render: Render) -> Page[str]:
        """Tasks of the group."""

        def belongs(task: Task) -> bool:  # a task that was refused may have left a row behind
            return task.definition.task_group_id == task_group_id

        ask = partial(self._groups.members, task_group_id)
        return read_page(ask, str, after, limit, lambda row: self._item(row, belongs, render), _AT_ONCE)

    def dependents(self, task_id: str, after: str, limit: int, render: Render) -> Page[str]:
        """Tasks that depend on the task; raises ResourceNotFound."""
        if self._tasks.load(task_id) is None:
            raise ResourceNotFound(f"there is no task {task_id}; it may have expired")

        def item(dependent: Dependent) -> bytes | None:
            return self._item(dependent.task_id, lambda task: task_id in task.definition.dependencies, render)

        ask = partial(self._dependencies.dependents, task_id)
        return read_page(ask, lambda one: one.task_id, after, limit, item, _AT_ONCE)

    def all_tasks(self, resolved_too: bool, after: str, limit: int, render: Render) -> Page[str]:
        """The tasks that are not resolved, or all that there are."""

        def belongs(task: Task) -> bool:
            return resolved_too or not task.is_resolved

        ask = partial(self._tasks.ids, resolved_too=resolved_too)
        return read_page(ask, str, after, limit, lambda one: self._item(one, belongs, render), _AT_ONCE)

    def places(
        self, places: Sequence[str], limit: int, belongs: Callable[[Task], bool], render: Render
    ) -> Page[str]:
        """The tasks at these places, ``<..>/<taskId>`` in order, of which one more than ``limit`` is given
        where more follow.
        """

        def ask(after: str, count: int) -> Sequence[str]:
            return places[bisect_right(places, after) :][:count]

        def item(place: str) -> bytes | None:
            return self._item(place.rpartition("/")[2], belongs, render)

        return read_page(ask, str, "", limit, item, _AT_ONCE)

    def tasks(self, task_ids: Sequence[str], after: str, limit: int, render: Render) -> Page[str]:
        """Those of the tasks that there are, in this order; a place is the number of a task among them."""

        def ask(after: str, limit: int) -> Sequence[int]:
            return range(len(task_ids))[int(after) + 1 if after else 0 :][:limit]

        def item(number: int) -> bytes | None:
            return self._item(task_ids[number], lambda _: True, render)

        return read_page(ask, str, after, limit, item, _AT_ONCE)

    def _item(self, task_id: str, belongs: Callable[[Task], bool], render: Render) -> bytes | None:
        with self._places, suppress(Corrupt):
            stored = self._tasks.load(task_id)
            return render(stored.task) if stored and belongs(stored.task) else None
        return None
