"""Repairs tasks after storage or a process has lost something. The tables say what should be there.

It finds a pending run without a message, a claim that did not end at takenUntil, a task that did not end at
its deadline, a dependent that was not scheduled, and a group that was not resolved. Source:
docs/explanation/recovery.md#sweeper.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import structlog

from legacy_queue.domain.due import FIRST_LOOK, is_look_due, next_due
from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.task import Task
from legacy_queue.ports import BrokerAway, Clock, Corrupt
from legacy_queue.services.recovery.advance import Advance
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.services.tasks.lost_messages import LostMessages
from legacy_queue.stores import ActiveTask, GroupStore, TaskStore

log = structlog.get_logger()


class Sweeper:
    """Checks each unresolved task, and each task that its group still counts as active.

    Each check is safe to repeat. ``last_pass`` is the time when the previous pass began.
    """

    def __init__(
        self,
        tasks: TaskStore,
        groups: GroupStore,
        lost_messages: LostMessages,
        changes: Changes,
        advance: Advance,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._groups = groups
        self._lost_messages = lost_messages
        self._changes = changes
        self._advance = advance
        self._clock = clock

    def sweep_tasks(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        """Check up to ``limit`` unresolved tasks. Returns where to go on, None at the end."""
        tasks, next_after = self._tasks.unresolved(after, limit)
        for stored in tasks:
            with _logging_failures(task_id=stored.task.task_id):
                self._check(stored.task, last_pass)
        return next_after

    def sweep_groups(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        """Check up to ``limit`` active tasks of groups. Returns where to go on, None at the end."""
        # finding the old rows means reading all rows, so it is done once a day
        also_old = last_pass is None or last_pass.date() < self._clock.now().date()
        tasks, next_after = self._groups.all_active(after, limit, also_old=also_old)
        for active in tasks:
            if is_look_due(active.since, last_pass, self._clock.now()):
                with _logging_failures(task_id=active.task_id, task_group_id=active.task_group_id):
                    self._check_active(active)
        return next_after

    def _check(self, task: Task, last_pass: datetime | None) -> None:
        now = self._clock.now()
        run = task.last_run
        # the process that wrote the task ends it in time; this ends it only if that has not happened
        late = now - FIRST_LOOK
        due = next_due(task)
        waits_since = run.scheduled if run else task.definition.created
        waits = (run is None or run.state == "pending") and is_look_due(waits_since, last_pass, now)
        if due and due <= late:
            self._advance.end_if_due(task.task_id)
        elif waits and (run is None or self._lost_messages.has_none(task)):
            self._advance.offer_again(task.task_id)
            if run:
                self._lost_messages.note_offer(task)

    def _check_active(self, active: ActiveTask) -> None:
        """End the membership of a resolved task. A crash here must not keep its group unresolved."""
        stored = self._tasks.load(active.task_id)
        is_member = stored and stored.task.definition.task_group_id == active.task_group_id
        if stored and is_member and not stored.task.is_resolved:
            if active.activation < stored.task.activation(len(stored.task.runs) - 1):
                self._end(active)  # a rerun that crashed or lost a race has left it
            return
        with self._changes.owing(active.task_id, active.since, active.task_group_id, is_published=True):
            if is_member:
                log.info("resolution-completed", task_id=active.task_id)
                self._end(active)

    def _end(self, active: ActiveTask) -> None:
        self._groups.end(active.task_id, active.task_group_id, {active.activation})


@contextmanager
def _logging_failures(**ids: str) -> Iterator[None]:
    """Log the error of one task, so that the sweep goes on. Raises ServiceUnavailable and BrokerAway."""
    try:
        yield
    except (ServiceUnavailable, BrokerAway):
        raise
    except (ResourceNotFound, Corrupt):
        pass  # the task has expired meanwhile, or a row cannot be read
    except Exception:
        log.exception("sweep-failed", **ids)
