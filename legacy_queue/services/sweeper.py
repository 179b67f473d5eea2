"""Sets right what no message leads to any more: the tables say what should have happened.

Source: docs/explanation/recovery.md#sweeper. It finds what any lost message would have told: a pending run
that nobody can poll, a claim or a deadline that nobody ended, a dependency or a group that nobody was told
of.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import structlog

from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.task import Task
from legacy_queue.domain.timer import FIRST_LOOK, is_due, next_due
from legacy_queue.ports import BrokerAway, Clock, Corrupt
from legacy_queue.services.advance import Advance
from legacy_queue.services.timers import Timers
from legacy_queue.stores import ActiveTask, GroupStore, TaskStore

log = structlog.get_logger()


class Sweeper:
    """Looks at each task that is not resolved, and at each that its group still takes for active.

    Every look is safe to repeat. ``last_pass`` is when the pass before this one began.
    """

    def __init__(
        self, tasks: TaskStore, groups: GroupStore, timers: Timers, advance: Advance, clock: Clock
    ) -> None:
        self._tasks, self._groups, self._timers = tasks, groups, timers
        self._advance, self._clock = advance, clock

    def sweep_tasks(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        """Look at up to ``limit`` unresolved tasks; where to go on, None at the end."""
        tasks, next_after = self._tasks.unresolved(after, limit)
        for stored in tasks:
            with _looking(task_id=stored.task.task_id):
                self._look_at(stored.task, last_pass)
        return next_after

    def sweep_groups(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        """Look at up to ``limit`` active tasks of groups; where to go on, None at the end."""
        tasks, next_after = self._groups.all_active(after, limit)
        for active in tasks:
            if is_due(active.since, last_pass, self._clock.now()):
                with _looking(task_id=active.task_id, task_group_id=active.task_group_id):
                    self._look_at_active(active)
        return next_after

    def _look_at(self, task: Task, last_pass: datetime | None) -> None:
        now, run = self._clock.now(), task.last_run
        late = now - FIRST_LOOK  # before that, a timer sees to it
        due = next_due(task)
        waits_since = run.scheduled if run else task.definition.created
        if due and due <= late:
            self._advance(task.task_id)
        elif (run is None or run.state == "pending") and is_due(waits_since, last_pass, now):
            self._advance.offer_again(task.task_id)

    def _look_at_active(self, active: ActiveTask) -> None:
        """What is not active any more ends by a timer: without it, a group whose last row is gone is lost."""
        stored = self._tasks.load(active.task_id)
        is_member = stored and stored.task.definition.task_group_id == active.task_group_id
        if stored and is_member and not stored.task.is_resolved:
            if active.activation < stored.task.activation(len(stored.task.runs) - 1):
                self._end(active)  # what a rerun left that crashed, or lost a race
            return
        self._timers.schedule(active.task_id, active.since, active.task_group_id)
        try:
            if is_member:
                log.info("resolution-completed", task_id=active.task_id)
                self._end(active)
        finally:
            self._timers.fall_behind(active.task_id, is_published=True)

    def _end(self, active: ActiveTask) -> None:
        self._groups.end(active.task_id, active.task_group_id, active.activation)


@contextmanager
def _looking(**ids: str) -> Iterator[None]:
    """Around the look at one task: what fails for it alone keeps no other from being looked at."""
    try:
        yield
    except (ServiceUnavailable, BrokerAway):
        raise
    except (ResourceNotFound, Corrupt):
        pass  # it has just expired, or depends on what cannot be read
    except Exception:
        log.exception("sweep-failed", **ids)
