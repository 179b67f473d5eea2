"""Sets right what no message leads to any more: the tables say what should have happened.

Source: "Sweeper" in design/protocol.md. It finds what any lost message would have told: a pending run that
nobody can poll, a claim or a deadline that nobody ended, a dependency or a group that nobody was told of.
"""

from datetime import datetime

import structlog

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.events import task_event
from legacy_queue.domain.sweep import FIRST_LOOK, is_due
from legacy_queue.domain.task import Task
from legacy_queue.ports import Clock, Corrupt
from legacy_queue.services.announcer import Announcer
from legacy_queue.services.changes import Changes
from legacy_queue.services.dependencies import Dependencies
from legacy_queue.services.groups import Groups
from legacy_queue.services.work_messages import WorkMessages
from legacy_queue.stores import ActiveTask, GroupStore, TaskStore

log = structlog.get_logger()


class Sweeper:
    """Looks at each task that is not resolved, and at each that its group still takes for active.

    Every look is safe to repeat. ``last_pass`` is when the pass before this one began.
    """

    def __init__(
        self,
        tasks: TaskStore,
        group_store: GroupStore,
        changes: Changes,
        messages: WorkMessages,
        dependencies: Dependencies,
        groups: Groups,
        announcer: Announcer,
        clock: Clock,
    ) -> None:
        self._tasks, self._group_store = tasks, group_store
        self._changes, self._messages, self._clock = changes, messages, clock
        self._dependencies, self._groups, self._announcer = dependencies, groups, announcer

    def sweep_tasks(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        """Look at up to ``limit`` unresolved tasks; where to go on, None at the end."""
        page = self._tasks.unresolved(after, limit)
        for stored in page.tasks:
            try:
                self._look_at(stored.task, last_pass)
            except ServiceUnavailable:
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
            except ServiceUnavailable:
                raise
            except Corrupt:
                continue
            except Exception:
                log.exception("not-swept", task_id=active.task_id, task_group_id=active.task_group_id)
        return page.after

    def _look_at(self, task: Task, last_pass: datetime | None) -> None:
        now, run = self._clock.now(), task.last_run
        late = now - FIRST_LOOK  # before that, a timer sees to it
        if task.definition.deadline <= late:
            self._changes.apply(task.task_id, lambda one: transitions.exceed_deadline(one, now))
        elif run is None:
            if is_due(task.definition.created, last_pass, now) and self._dependencies.satisfied(task):
                # nobody told this task's dependencies of it: perhaps nobody told of the task at all
                self._announcer.tell([task_event("task-defined", task)], after_others=True)
                self._dependencies.recheck(task)
        elif run.state == "pending":
            if is_due(run.scheduled, last_pass, now):
                self._messages.offer(task, run.run_id)
        elif run.taken_until and run.taken_until <= late:
            run_id = run.run_id
            self._changes.apply(task.task_id, lambda one: transitions.expire_claim(one, run_id, now))

    def _look_at_active(self, active: ActiveTask) -> None:
        stored = self._tasks.load(active.task_id)
        if stored is None or stored.task.definition.task_group_id != active.task_group_id:
            self._groups.leave(active.task_id, active.task_group_id)
            return
        task = stored.task
        run_id = len(task.runs) - 1
        if task.is_resolved:
            log.info("resolution-seen-through", task_id=task.task_id)
            self._dependencies.release_dependents(task, run_id)
        # what a rerun left that crashed, or lost a race
        if task.is_resolved or active.activation < task.activation(run_id):
            self._group_store.deactivate(active.task_id, active.task_group_id, active.activation)
        if task.is_resolved:
            self._groups.end(task, run_id)
