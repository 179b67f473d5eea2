"""Gives the rows of a group to the tasks that 0.1.0 stored without them.

A task whose taskId is its taskGroupId had none then: its own row said that it belongs to the group. This room
reads all tasks for it, in pages, at the first start and then once a day, so that a server of 0.1.0 may run
beside this one during an upgrade. It goes once no task of 0.1.0 can be left.
"""

from datetime import datetime

from legacy_queue.services.tasks.groups import group_of
from legacy_queue.stores import GroupStore, TaskStore


class OldFounders:
    """Until a pass has come to its task, such a group may be missing or incomplete."""

    def __init__(self, tasks: TaskStore, groups: GroupStore) -> None:
        self._tasks = tasks
        self._groups = groups

    def enroll(self, after: str, limit: int, _since: datetime | None) -> str | None:
        """A step of a periodic job. If such a task ends meanwhile, the sweeper ends its membership."""
        found, next_after = self._tasks.search("all", "", after, limit)
        for stored in found:
            task = stored.task
            group = group_of(task.definition)
            if group.task_group_id == task.task_id and not self._groups.is_member(task.task_id, task.task_id):
                if not task.is_resolved:
                    self._groups.activate(task.task_id, group, 0)
                self._groups.enroll(task.task_id, group)  # last: after a crash it is still to be done
        return next_after
