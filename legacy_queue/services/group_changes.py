"""What is done to every task of a group: to each by itself, so a call that was cut off heals when repeated.

Whatever the size of the group, a few tasks at a time are in memory, and at work for all calls of a process.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from threading import BoundedSemaphore

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import RequestConflict, ResourceNotFound
from legacy_queue.domain.events import group_priority_changed
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.priority import direction
from legacy_queue.domain.task import Task
from legacy_queue.ports import Corrupt
from legacy_queue.services.changes import Changes
from legacy_queue.services.concurrency import Threads, map_concurrently
from legacy_queue.services.groups import Groups
from legacy_queue.stores import Group, GroupStore, TaskStore

_AT_ONCE = 16
_PAGE = 100

Decide = Callable[[Task, datetime], Outcome]


class GroupChanges:
    def __init__(
        self, groups: Groups, store: GroupStore, tasks: TaskStore, changes: Changes, threads: Threads
    ) -> None:
        self._groups, self._store, self._tasks, self._changes = groups, store, tasks, changes
        self._threads = threads
        self._places = BoundedSemaphore(_AT_ONCE)

    def cancel(self, task_group_id: str) -> Sequence[str]:
        """Cancel the tasks of a sealed group that are not resolved; those that this call has canceled.

        One that is just being created does not come into being. Raises ResourceNotFound; RequestConflict for
        a group that is not sealed.
        """
        group = self._groups.load(task_group_id)
        if group.sealed is None:
            raise RequestConflict(
                f"task group {task_group_id} is not sealed: tasks could join it while it is canceled. "
                "Call sealTaskGroup first"
            )
        return self._each(group, transitions.cancel, lambda task_id: self._tasks.bar(task_id, group.expires))

    def change_priority(
        self, task_group_id: str, priority: str, directions: Collection[str]
    ) -> tuple[Group, Sequence[str]]:
        """Give the tasks that are not resolved this priority, where that is one of the ``directions``, raise
        and lower; the group, and the tasks that this call has changed.

        Raises ResourceNotFound; ServiceUnavailable where the event cannot be published.
        """

        def decide(task: Task, now: datetime) -> Outcome:
            is_due = direction(task.priority, priority) in directions
            return transitions.change_priority(task, priority, now) if is_due else Outcome(task)

        group = self._groups.load(task_group_id)
        changed = self._each(group, decide, lambda _: True)
        event = group_priority_changed(task_group_id, group.scheduler_id, priority, len(changed))
        self._groups.publish(event)
        return group, changed

    def size(self, task_group_id: str) -> int:
        """How many tasks have joined the group."""
        size, after = 0, ""
        while page := self._groups.members(task_group_id, after, _PAGE):
            size, after = size + len(page), page[-1]
        return size

    def _each(self, group: Group, decide: Decide, is_missing: Callable[[str], bool]) -> Sequence[str]:
        """The unresolved tasks that have changed; ``is_missing`` is asked of one that is not there."""

        def change(task_id: str) -> bool:
            with self._places, suppress(Corrupt):
                while True:
                    try:
                        return self._change(task_id, group.task_group_id, decide)
                    except ResourceNotFound:
                        if is_missing(task_id):
                            break
            return False

        changed: list[str] = []
        for task_ids in self._unresolved(group.task_group_id):
            answers = zip(task_ids, map_concurrently(change, task_ids, self._threads), strict=True)
            changed += [task_id for task_id, has_changed in answers if has_changed]
        return changed

    def _unresolved(self, task_group_id: str) -> Iterator[Sequence[str]]:
        """Those that may be unresolved, in pages: the task named as the group may have no row."""
        yield [task_group_id]
        after = ""
        while page := self._store.active(task_group_id, after, _PAGE):
            yield list(dict.fromkeys(one.task_id for one in page if one.task_id != task_group_id))
            after = page[-1].task_id

    def _change(self, task_id: str, task_group_id: str, decide: Decide) -> bool:
        has_changed = False

        def decide_one(task: Task, now: datetime) -> Outcome:
            nonlocal has_changed
            is_ours = task.definition.task_group_id == task_group_id  # a task that was refused left a row
            is_over = task.is_resolved or now >= task.definition.deadline
            outcome = decide(task, now) if is_ours and not is_over else Outcome(task)
            has_changed = outcome.task != task
            return outcome

        self._changes.apply(task_id, decide_one)
        return has_changed
