"""Advances a task without a call.

Timers that fire, the sweeper and calls that defer effects all end here. Every part is safe to repeat.
Source: docs/explanation/recovery.md#timers.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from legacy_queue.domain import transitions
from legacy_queue.domain.artifact import artifact_created
from legacy_queue.domain.events import EVER, Event, events_since
from legacy_queue.domain.task import Task
from legacy_queue.domain.timer import next_due
from legacy_queue.ports import BrokerAway, Changed, Clock
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.pages import read_rows
from legacy_queue.services.recovery.timers import FiredTimer
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.services.tasks.dependencies import Dependencies
from legacy_queue.services.tasks.groups import Groups
from legacy_queue.services.tasks.work_messages import WorkMessages
from legacy_queue.stores import ArtifactStore, StoredTask, TaskStore

_MAX_SKEW = timedelta(minutes=1)


@dataclass(frozen=True)
class Next:
    """When to advance the task again, None for never. ``exists`` is false if there is no such task."""

    due: datetime | None = None
    exists: bool = True


class Advance:
    """Repeats the effects of a task's transitions, and ends a claim or a task whose time is over."""

    def __init__(
        self,
        tasks: TaskStore,
        artifacts: ArtifactStore,
        changes: Changes,
        messages: WorkMessages,
        dependencies: Dependencies,
        groups: Groups,
        publisher: EventPublisher,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._artifacts = artifacts
        self._changes = changes
        self._messages = messages
        self._dependencies = dependencies
        self._groups = groups
        self._publisher = publisher
        self._clock = clock

    def repeat_effects(self, fired: FiredTimer) -> Next:
        """Repeat the missing effects of a fired timer, then end the claim or the task if its time is over.

        Raises ServiceUnavailable, BrokerAway, Corrupt.
        """
        since = fired.since
        if since is None:
            return self.end_if_due(fired.task_id)
        if self._publisher.is_away and not fired.is_published:
            raise BrokerAway
        stored = self._load(fired)
        if stored is None:
            return Next(exists=False)
        task = stored.task
        if not fired.is_published:
            task = self._repeat_on_task(stored, since)
        self._repeat_on_others(task, since, fired.task_group_id)
        return self._end_if_due(task, is_own=stored.is_own or task.runs != stored.task.runs)

    def end_if_due(self, task_id: str, *, is_published: bool = True) -> Next:
        """End the claim after takenUntil, and the task after its deadline. Mark it if it is not published:
        who wrote it may have failed to.

        Raises ServiceUnavailable, Corrupt.
        """
        stored = self._tasks.load(task_id)
        if stored is None:
            return Next(exists=False)
        if not (is_published or stored.task.is_unpublished):
            self._changes.mark_unpublished(task_id)
        return self._end_if_due(stored.task, is_own=stored.is_own)

    def offer_again(self, task_id: str) -> None:
        """Offer a pending task again; schedule an unscheduled task whose dependencies are resolved."""
        stored = self._tasks.load(task_id)
        if stored:
            self._offer(stored.task)

    def _offer(self, task: Task) -> Task:
        if task.state == "pending":
            self._messages.offer(task, task.runs[-1].run_id)
        return self._dependencies.recheck(task)  # of an unscheduled task

    def _published(self, stored: StoredTask) -> Task:
        task = replace(stored.task, is_unpublished=False)
        with suppress(Changed):
            self._tasks.replace(stored, task)
        return task

    def _load(self, fired: FiredTimer) -> StoredTask | None:
        """The task. It need not be read if this process has just ended it, and remembers that."""
        if fired.is_published and fired.since:
            recalled = self._tasks.recall(fired.task_id)
            if recalled and _has_ended(recalled.task, fired.since):  # else it may be old
                return recalled
        return self._tasks.load(fired.task_id)

    def _repeat_on_task(self, stored: StoredTask, since: datetime) -> Task:
        task = stored.task
        # marked: another process may have written before, whose timer is not this one
        begin = EVER if task.is_unpublished else since
        self._publisher.publish(events_since(task, begin, self._artifact_events(task)))
        if task.is_unpublished:
            task = self._published(stored)
        self._dependencies.register(task)
        return self._offer(task)

    def _repeat_on_others(self, task: Task, since: datetime, task_group_id: str) -> None:
        if task_group_id not in ("", task.definition.task_group_id):
            self._groups.leave(task.task_id, task_group_id)  # its createTask was refused
        elif task_group_id and not task.is_resolved and not task.activation(len(task.runs) - 1):
            # who did not find the task may have ended its membership, and died before it joined again
            self._groups.join_again(task.task_id, task.definition)
        for run in task.runs:
            if not task.ended_with(run.run_id) or not run.resolved:
                continue
            if run.resolved >= since:
                self._dependencies.release_dependents(task, run.run_id)
            if run.resolved >= since or task_group_id:  # it joined again when it was created again
                self._groups.end(task, run.run_id)

    def _artifact_events(self, task: Task) -> dict[int, list[Event]]:
        """By run: artifact-created of all artifacts. Which of them were published is not known."""
        return {
            run.run_id: [
                artifact_created(task, artifact)
                for artifact in read_rows(
                    partial(self._artifacts.list, task.task_id, run.run_id), lambda row: row.name, ""
                )
            ]
            for run in task.runs
            if run.worker
        }

    def _end_if_due(self, task: Task, *, is_own: bool) -> Next:
        due = _due(task, is_own=is_own)
        if due is None or self._clock.now() < due:
            return Next(due)
        ended = self._changes.apply(task.task_id, transitions.expire)
        return Next(_due(ended, is_own=is_own or ended is not task))


def _has_ended(task: Task, since: datetime) -> bool:
    return any(run.resolved and run.resolved >= since and task.ended_with(run.run_id) for run in task.runs)


def _due(task: Task, *, is_own: bool) -> datetime | None:
    """When to advance the task again.

    The clock of another process that made the claim may be behind: its claim ends up to a minute late here.
    A worker that polls gets the task at takenUntil all the same.
    """
    due = next_due(task)
    run = task.last_run
    if is_own or due is None or run is None or run.taken_until is None or run.started is None:
        return due
    claim = run.taken_until - run.started
    return min(task.definition.deadline, run.taken_until + min(_MAX_SKEW, claim / 20))
