"""Lists of tasks, page by page."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.task import Task
from legacy_queue.ports import Corrupt
from legacy_queue.services.pages import Listed, Page, read_page
from legacy_queue.services.tasks.groups import Groups
from legacy_queue.stores import DependencyStore, TaskStore

_MAX_CONCURRENT = 4  # reads of tasks for a page: each task may have a megabyte
_MAX_READS = 200  # of storage for a search: up to 50,000 rows of the embedded storage
_MAX_TASKS = 2000  # whose names a search compares with its words

RenderTask = Callable[[Task], bytes]


class Listing:
    """Lists tasks. A page begins behind a taskId, so new tasks do not shift it."""

    def __init__(self, tasks: TaskStore, groups: Groups, dependencies: DependencyStore) -> None:
        self._tasks = tasks
        self._groups = groups
        self._dependencies = dependencies

    def group(self, task_group_id: str, after: str, limit: int, render: RenderTask) -> Page[str]:
        """The tasks of the group."""

        def belongs(task: Task) -> bool:  # a refused task may have left a member row
            return task.definition.task_group_id == task_group_id

        return self._page(partial(self._groups.members, task_group_id), str, after, limit, belongs, render)

    def dependents(self, task_id: str, after: str, limit: int, render: RenderTask) -> Page[str]:
        """The tasks that depend on the task; raises ResourceNotFound."""
        if self._tasks.load(task_id) is None:
            raise ResourceNotFound(f"there is no task {task_id}; it may have expired")

        def belongs(task: Task) -> bool:
            return task_id in task.definition.dependencies

        read = partial(self._dependencies.dependents, task_id)
        return self._page(read, lambda dependent: dependent.task_id, after, limit, belongs, render)

    def all_tasks(
        self,
        resolved_too: bool,
        belongs: Callable[[Task], bool],
        after: str,
        limit: int,
        render: RenderTask,
    ) -> Page[str]:
        """Of the unresolved tasks, or of all tasks, those that ``belongs`` selects."""
        read = partial(self._tasks.ids, resolved_too=resolved_too)
        return self._page(read, str, after, limit, belongs, render)

    @property
    def knows_age(self) -> bool:
        """Whether ``search`` begins with the newest task, and not in the order of the taskIds."""
        return self._tasks.knows_age

    def search(
        self, state: str, task_queue_id: str | None, words: Sequence[str], after: str, limit: int
    ) -> tuple[Sequence[Task], str | None]:
        """Up to ``limit`` tasks in that state, ``unresolved`` or ``all``, of a worker type (None: any), that
        have all of the words in their names; and where to look further, None if all tasks were looked at.
        """
        found: list[Task] = []
        looked_at = 0
        for _ in range(_MAX_READS):
            stored, next_after = self._tasks.search(state, task_queue_id, after, limit - len(found))
            found += [each.task for each in stored if _is_named(each.task, words)]
            looked_at += len(stored)
            if next_after is None:
                return found, None
            after = next_after
            if len(found) == limit or looked_at >= _MAX_TASKS:
                break
        return found, after

    def at_places(
        self, places: Sequence[str], limit: int, belongs: Callable[[Task], bool], render: RenderTask
    ) -> Page[str]:
        """The tasks at these places, each ``<..>/<taskId>``, in order.

        Pass an extra place behind ``limit`` places if more follow.
        """

        def read(after: str, count: int) -> Sequence[str]:
            return places[bisect_right(places, after) :][:count]

        return self._page(read, str, "", limit, belongs, render, lambda place: place.rpartition("/")[2])

    def tasks(self, task_ids: Sequence[str], after: str, limit: int, render: RenderTask) -> Page[str]:
        """The tasks that exist of these, in this order; a place is a number among them."""

        def read(after: str, limit: int) -> Sequence[int]:
            return range(len(task_ids))[int(after) + 1 if after else 0 :][:limit]

        return self._page(read, str, after, limit, lambda _: True, render, lambda number: task_ids[number])

    def _page(
        self,
        read: Callable[[str, int], Sequence[Listed]],
        place: Callable[[Listed], str],
        after: str,
        limit: int,
        belongs: Callable[[Task], bool],
        render: RenderTask,
        task_id: Callable[[Listed], str] | None = None,
    ) -> Page[str]:
        """``task_id`` is the taskId of a row, its place unless it is given."""

        def item(row: Listed) -> bytes | None:
            with suppress(Corrupt):
                stored = self._tasks.load((task_id or place)(row))
                return render(stored.task) if stored and belongs(stored.task) else None
            return None

        return read_page(read, place, after, limit, item, _MAX_CONCURRENT)


def _is_named(task: Task, words: Sequence[str]) -> bool:
    name = str(task.definition.wire["metadata"]["name"]).casefold()
    return all(word.casefold() in name for word in words)
