"""Changes every task of a group, one by one. If a call was interrupted, a repeated call completes it.

A call changes a few tasks at a time, however large the group is.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, islice
from operator import attrgetter

import structlog

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import RequestConflict, ResourceNotFound
from legacy_queue.domain.events import group_priority_changed
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.priority import direction
from legacy_queue.domain.task import Task
from legacy_queue.ports import Clock, Corrupt
from legacy_queue.services.concurrency import Threads, map_concurrently
from legacy_queue.services.pagination import read_rows
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.services.tasks.groups import Groups
from legacy_queue.stores import Group, GroupStore, TaskStore

log = structlog.get_logger()

_MAX_TASKS = 100  # tasks that are changed before the next ones are read
_LOG_INTERVAL = timedelta(seconds=2)
_task_id = attrgetter("task_id")

Decide = Callable[[Task, datetime], Outcome]


class GroupChanges:
    """Changes the unresolved tasks of a group."""

    def __init__(
        self,
        groups: Groups,
        store: GroupStore,
        tasks: TaskStore,
        changes: Changes,
        clock: Clock,
        threads: Threads,
    ) -> None:
        self._groups = groups
        self._store = store
        self._tasks = tasks
        self._changes = changes
        self._clock = clock
        self._threads = threads

    def cancel(self, task_group_id: str) -> Sequence[str]:
        """Cancel the unresolved tasks of a sealed group. Returns the tasks that this call has canceled.

        A task whose createTask is still under way is not created any more. Raises ResourceNotFound. Raises
        RequestConflict if the group is not sealed.
        """
        group = self._groups.load(task_group_id)
        if group.sealed is None:
            raise RequestConflict(
                f"task group {task_group_id} is not sealed, so tasks could join it during the cancel. "
                "Call sealTaskGroup first"
            )
        return self._each(
            group, transitions.cancel, lambda task_id: self._tasks.prevent_creation(task_id, group.expires)
        )

    def change_priority(
        self, task_group_id: str, priority: str, directions: Collection[str]
    ) -> tuple[Group, Sequence[str]]:
        """Give the unresolved tasks this priority. Returns the group and the tasks that this call changed.

        ``directions`` has ``raise``, ``lower`` or both. A change in another direction is left out. Raises
        ResourceNotFound. Raises ServiceUnavailable if the event cannot be published.
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
        """Returns how many tasks have joined the group."""
        return sum(1 for _ in read_rows(partial(self._store.members, task_group_id), str, ""))

    def _each(self, group: Group, decide: Decide, is_missing: Callable[[str], bool]) -> Sequence[str]:
        """Change the unresolved tasks, and return the changed ones.

        If a task is not found, it is tried again, unless it ``is_missing``.
        """

        def change(task_id: str) -> bool:
            with suppress(Corrupt):
                while True:
                    try:
                        return self._change(task_id, group.task_group_id, decide)
                    except ResourceNotFound:
                        if is_missing(task_id):
                            break
            return False

        changed: list[str] = []
        logged = self._clock.monotonic()
        left = self._unresolved(group.task_group_id)
        while task_ids := list(islice(left, _MAX_TASKS)):
            answers = zip(task_ids, map_concurrently(change, task_ids, self._threads), strict=True)
            changed += [task_id for task_id, has_changed in answers if has_changed]
            if self._clock.monotonic() - logged >= _LOG_INTERVAL:  # the caller waits until all are changed
                logged = self._clock.monotonic()
                log.info("task-group-changing", task_group_id=group.task_group_id, changed=len(changed))
        return changed

    def _unresolved(self, task_group_id: str) -> Iterator[str]:
        """Yields each task that may be unresolved, once."""
        active = read_rows(partial(self._store.active, task_group_id), _task_id, "")
        yield from (task_id for task_id, _ in groupby(active, _task_id))

    def _change(self, task_id: str, task_group_id: str, decide: Decide) -> bool:
        has_changed = False

        def decide_member(task: Task, now: datetime) -> Outcome:
            nonlocal has_changed
            # a refused createTask leaves a row of a member
            is_ours = task.definition.task_group_id == task_group_id
            is_over = task.is_resolved or now >= task.definition.deadline
            outcome = decide(task, now) if is_ours and not is_over else Outcome(task)
            has_changed = outcome.task != task
            return outcome

        self._changes.wait_for_room()
        self._changes.apply(task_id, decide_member)
        return has_changed
