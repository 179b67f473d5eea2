"""Lists tasks, page by page."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from legacy_queue.cooperation import yielding
from legacy_queue.domain.errors import InvalidRequestArguments, ResourceNotFound
from legacy_queue.domain.task import Task
from legacy_queue.ports import Corrupt, InvalidPosition
from legacy_queue.services.pagination import MAX_PAGE_BYTES, Listed, Page, read_page
from legacy_queue.stores import DependencyStore, GroupStore, TaskStore

_MAX_CONCURRENT = 4  # concurrent reads of tasks for a page, each up to a megabyte
_MAX_READS = 80  # reads of storage for a page of a search: up to 20,000 rows of embedded storage
_TASKS_OF_A_READ = 50  # up to a megabyte each
_MAX_TASKS = 2000  # tasks that a page of a search looks at

RenderTask = Callable[[Task], bytes]
_task_id = attrgetter("task_id")


@dataclass(frozen=True)
class Wanted:
    """What a search looks for."""

    # a state, ``unresolved`` or ``all``
    state: str = "all"
    # a pool and a group; "" means any
    task_queue_id: str = ""
    group_id: str = ""
    # all of these must occur in the name of a task
    words: Sequence[str] = ()

    def is_met_by(self, task: Task) -> bool:
        name = str(task.definition.wire["metadata"]["name"]).casefold()
        return (
            self.state in ("all", task.state, *(() if task.is_resolved else ("unresolved",)))
            and self.task_queue_id in ("", task.work_queue.task_queue_id)
            and self.group_id in ("", task.definition.task_group_id)
            and all(word.casefold() in name for word in self.words)
        )


class Listing:
    """Lists tasks. A page begins after a given taskId, so new tasks do not move it."""

    def __init__(self, tasks: TaskStore, groups: GroupStore, dependencies: DependencyStore) -> None:
        self._tasks = tasks
        self._groups = groups
        self._dependencies = dependencies

    def group(self, task_group_id: str, after: str, limit: int, render: RenderTask) -> Page[str]:
        """Returns a page of the tasks of the group."""

        def belongs(task: Task) -> bool:  # a refused createTask may have left a row of a member
            return task.definition.task_group_id == task_group_id

        members = partial(self._groups.members, task_group_id)
        return self._page(members, str, str, after, limit, belongs, render)

    def dependents(self, task_id: str, after: str, limit: int, render: RenderTask) -> Page[str]:
        """Returns a page of the tasks that depend on the task. Raises ResourceNotFound."""
        if self._tasks.load(task_id) is None:
            raise ResourceNotFound(f"there is no task {task_id}; it may have expired")

        def belongs(task: Task) -> bool:
            return task_id in task.definition.dependencies

        read = partial(self._dependencies.dependents, task_id)
        return self._page(read, _task_id, _task_id, after, limit, belongs, render)

    @property
    def knows_age(self) -> bool:
        """Whether ``search`` begins with the newest task. Otherwise it is in the order of the taskIds."""
        return self._tasks.knows_age

    def search(self, wanted: Wanted, after: str, limit: int, render: RenderTask) -> Page[str]:
        """Returns a page of up to ``limit`` wanted tasks.

        If few tasks are wanted, the page may end early, and even be empty. ``Page.after`` says where to
        continue. It is None when all tasks have been looked at. Raises InvalidRequestArguments if ``after``
        is not from a page of this storage.
        """
        items: list[bytes] = []
        looked_at = size = 0
        for _ in yielding(range(_MAX_READS), 1):
            tasks, next_after = self._some(wanted, after, min(limit - len(items), _TASKS_OF_A_READ))
            for task in tasks:  # one at a time, as it is read, because each may have a megabyte
                looked_at += 1
                if wanted.is_met_by(task):
                    items.append(render(task))
                    size += len(items[-1])
            if next_after is None:
                return Page(items, None)
            after = next_after
            if len(items) == limit or looked_at >= _MAX_TASKS or size > MAX_PAGE_BYTES:
                break
        return Page(items, after)

    def _some(self, wanted: Wanted, after: str, limit: int) -> tuple[Iterable[Task], str | None]:
        """Returns tasks of the group, or tasks that storage selects by state and pool."""
        if not wanted.group_id:
            try:
                stored, next_after = self._tasks.search(wanted.state, wanted.task_queue_id, after, limit)
            except InvalidPosition:
                raise InvalidRequestArguments(
                    "continuationToken is not from this storage: expected one from this list, or none"
                ) from None
            return [each.task for each in stored], next_after
        ids = self._groups.members(wanted.group_id, after, limit)
        return self._loaded(ids), ids[-1] if len(ids) == limit else None

    def _loaded(self, task_ids: Sequence[str]) -> Iterator[Task]:
        """Yields the tasks that exist. Each is read when it is needed."""
        for task_id in task_ids:
            with suppress(Corrupt):
                yield from [each.task for each in [self._tasks.load(task_id)] if each]

    def at_positions(
        self, positions: Sequence[str], limit: int, belongs: Callable[[Task], bool], render: RenderTask
    ) -> Page[str]:
        """Returns a page of the tasks at these positions, each of the form ``<..>/<taskId>``.

        If more tasks follow after ``limit``, pass one position more.
        """

        def read(after: str, count: int) -> Sequence[str]:
            return positions[bisect_right(positions, after) :][:count]

        return self._page(read, str, lambda position: position.rpartition("/")[2], "", limit, belongs, render)

    def tasks(self, task_ids: Sequence[str], after: str, limit: int, render: RenderTask) -> Page[str]:
        """Returns a page of those tasks that exist, in this order. A position is an index of ``task_ids``."""

        def read(after: str, limit: int) -> Sequence[int]:
            return range(len(task_ids))[int(after) + 1 if after else 0 :][:limit]

        return self._page(read, str, lambda number: task_ids[number], after, limit, lambda _: True, render)

    def _page(
        self,
        read: Callable[[str, int], Sequence[Listed]],
        position: Callable[[Listed], str],
        task_id: Callable[[Listed], str],
        after: str,
        limit: int,
        belongs: Callable[[Task], bool],
        render: RenderTask,
    ) -> Page[str]:
        """``position`` and ``task_id`` return those of a row that ``read`` has returned."""

        def item(row: Listed) -> bytes | None:
            with suppress(Corrupt):
                stored = self._tasks.load(task_id(row))
                return render(stored.task) if stored and belongs(stored.task) else None
            return None

        return read_page(read, position, after, limit, item, _MAX_CONCURRENT)
