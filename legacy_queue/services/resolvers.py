"""What timers do when they fire. Repeating it is safe: one that is late, lost or doubled harms nothing.

Source: "Timers" in design/protocol.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from legacy_queue.domain import transitions
from legacy_queue.domain.events import told_again
from legacy_queue.domain.task import Task
from legacy_queue.domain.timers import CLAIMS, DEADLINES, FIRST_FIRES_AFTER, RESOLVED, Timer
from legacy_queue.ports import Clock
from legacy_queue.services.announcer import Announcer
from legacy_queue.services.changes import Changes
from legacy_queue.services.dependencies import Dependencies
from legacy_queue.services.groups import Groups
from legacy_queue.services.watcher import Again, Handler
from legacy_queue.services.work_messages import WorkMessages
from legacy_queue.stores import TaskStore

# After this it is certain that the call that put the timer did not come to its write
_GIVEN_UP_AFTER = timedelta(minutes=10)


class Resolvers:
    """Three handlers. Each first sees through what the timer was put for, then does what its queue is for."""

    def __init__(
        self,
        tasks: TaskStore,
        changes: Changes,
        messages: WorkMessages,
        dependencies: Dependencies,
        groups: Groups,
        announcer: Announcer,
        clock: Clock,
    ) -> None:
        self._tasks, self._changes, self._messages = tasks, changes, messages
        self._dependencies, self._groups, self._announcer = dependencies, groups, announcer
        self._clock = clock

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """By queue."""
        return {CLAIMS: self.claim_ended, DEADLINES: self.deadline_passed, RESOLVED: self.task_resolved}

    def claim_ended(self, timer: Timer, _stop: datetime) -> Again | None:
        """A claim that was not extended expires; for one that was, the timer is put off."""
        task = self._load(timer)
        if task is None or timer.run_id is None or timer.due is None:
            return None
        self._see_through(timer, task)
        run_id, due = timer.run_id, timer.due
        if self._clock.now() < due:
            if run_id >= len(task.runs) or task.runs[run_id].worker is None:
                return self._not_written(timer)
            return None if task.is_resolved else self._at(due, timer, _margin(due - timer.armed))
        task = self._changes.apply(
            task.task_id, lambda task: transitions.expire_claim(task, run_id, self._clock.now())
        )
        run = task.runs[run_id] if run_id < len(task.runs) else None
        if run is None or run.state != "running" or run.taken_until is None:
            return None
        return self._at(run.taken_until, timer, _margin(run.taken_until - due))

    def deadline_passed(self, timer: Timer, _stop: datetime) -> Again | None:
        """A task that is not resolved by then ends."""
        task = self._load(timer)
        if task is None:
            return self._not_written(timer)
        if not timer.task_group_id and not (timer.run_id is not None and timer.run_id < len(task.runs)):
            return self._not_written(timer)
        self._see_through(timer, task)
        if timer.due is None or task.is_resolved:
            return None
        if self._clock.now() < timer.due:
            return self._at(timer.due, timer)
        self._changes.apply(task.task_id, lambda task: transitions.exceed_deadline(task, self._clock.now()))
        return None

    def task_resolved(self, timer: Timer, stop: datetime) -> Again | None:
        """What waits for the task goes on, and its group is resolved if no other task of it is active."""
        task, run_id = self._load(timer), timer.run_id
        if task is None or run_id is None:
            return None
        if not task.ended_with(run_id):
            return self._not_written(timer)
        self._see_through(timer, task)
        after = self._dependencies.release_dependents(task, run_id, timer.after, stop)
        if after is not None:
            return Again(replace(timer.confirmed(), after=after), timedelta(0))
        self._groups.end(task, run_id)
        return None

    def _load(self, timer: Timer) -> Task | None:
        stored = self._tasks.load(timer.task_id)
        return stored.task if stored else None

    def _see_through(self, timer: Timer, task: Task) -> None:
        """Do what the call that put the timer may not have come to."""
        if not timer.untold:
            return
        if timer.task_group_id not in ("", task.definition.task_group_id):
            self._groups.leave(task.task_id, timer.task_group_id)  # for a definition that was refused
        self._announcer.tell(told_again(task, timer.untold, timer.run_id))
        if timer.task_group_id:
            self._dependencies.register(task)
        if task.state == "pending":
            self._messages.offer(task, task.runs[-1].run_id)
        elif task.state == "unscheduled":
            self._dependencies.recheck(task)
        elif task.is_resolved and timer.queue == DEADLINES:
            run_id = task.runs[-1].run_id
            self._announcer.tell(told_again(task, [f"task-{task.state}"], run_id))  # before its group's end
            self._groups.end(task, run_id)  # it may have joined when it was created again

    def _not_written(self, timer: Timer) -> Again | None:
        """The write that the timer belongs to has not happened, and perhaps never will."""
        age = self._clock.now() - timer.armed
        if abs(age) < _GIVEN_UP_AFTER:
            return Again(timer, max(FIRST_FIRES_AFTER, age))
        if timer.task_group_id:
            self._groups.leave(timer.task_id, timer.task_group_id)
        return None

    def _at(self, due: datetime, timer: Timer, margin: timedelta = timedelta(0)) -> Again:
        delay = max(timedelta(0), due + margin - self._clock.now())
        return Again(replace(timer.confirmed(), due=due), delay)


def _margin(claim: timedelta) -> timedelta:
    """Added where this process counts the time to the end of a claim that another's clock has set.

    If this one's clock is ahead, the claim must not end early; whoever polls finds it at its end.
    """
    return min(timedelta(minutes=1), claim / 20)
