"""Sets right what no message leads to any more: the tables say what should have happened.

Source: "Sweeper" in design/protocol.md. It finds what any lost message would have told: a pending run that
nobody can poll, a claim or a deadline that nobody ended, a dependency or a group that nobody was told of.
"""

from datetime import datetime

import structlog

from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.task import Task
from legacy_queue.domain.timers import FIRST_LOOK, is_due, next_due
from legacy_queue.ports import BrokerAway, Clock, Corrupt
from legacy_queue.services.advance import Advance
from legacy_queue.services.groups import Groups
from legacy_queue.stores import ActiveTask, GroupStore, TaskStore

log = structlog.get_logger()


class Sweeper:
    """Looks at each task that is not resolved, and at each that its group still takes for active.

    Every look is safe to repeat. ``last_pass`` is when the pass before this one began.
    """

    def __init__(
        self, tasks: TaskStore, group_store: GroupStore, advance: Advance, groups: Groups, clock: Clock
    ) -> None:
        self._tasks, self._group_store = tasks, group_store
        self._advance, self._groups, self._clock = advance, groups, clock

    def sweep_tasks(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        """Look at up to ``limit`` unresolved tasks; where to go on, None at the end."""
        page = self._tasks.unresolved(after, limit)
        for stored in page.tasks:
            try:
                self._look_at(stored.task, last_pass)
            except (ServiceUnavailable, BrokerAway):
                raise
            except (ResourceNotFound, Corrupt):
                continue  # it has just expired, or depends on what cannot be read
            except Exception:
                log.exception("not-swept", task_id=stored.task.task_id)  # the others are
        return page.after

    def sweep_groups(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        """Look at up to ``limit`` active tasks of groups; where to go on, None at the end."""
        page = self._group_store.all_active(after, limit)
        for active in page.active:
            if not is_due(active.since, last_pass, self._clock.now()):
                continue
            try:
                self._look_at_active(active)
            except (ServiceUnavailable, BrokerAway):
                raise
            except Corrupt:
                continue
            except Exception:
                log.exception("not-swept", task_id=active.task_id, task_group_id=active.task_group_id)
        return page.after

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
        stored = self._tasks.load(active.task_id)
        if stored is None or stored.task.definition.task_group_id != active.task_group_id:
            self._groups.leave(active.task_id, active.task_group_id)
            return
        task = stored.task
        # what a rerun left that crashed, or lost a race
        if task.is_resolved or active.activation < task.activation(len(task.runs) - 1):
            self._group_store.end(active.task_id, active.task_group_id, active.activation)
        if task.is_resolved:
            log.info("resolution-seen-through", task_id=task.task_id)
            self._advance(task.task_id, active.since, is_published=True)
