"""Advances a task without a call.

Timers that fire, the sweeper and calls that defer effects all end here. Every part is safe to repeat.
Source: docs/explanation/recovery.md#timers.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from legacy_queue.domain import transitions
from legacy_queue.domain.artifact import artifact_created
from legacy_queue.domain.events import EVER, Event, events_since
from legacy_queue.domain.task import Task
from legacy_queue.domain.timer import ArtifactName, next_due
from legacy_queue.ports import BrokerAway, Changed, Clock
from legacy_queue.services.changes import Changes
from legacy_queue.services.dependencies import Dependencies
from legacy_queue.services.event_publisher import EventPublisher
from legacy_queue.services.groups import Groups
from legacy_queue.services.work_messages import WorkMessages
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
        self._tasks, self._artifacts, self._changes, self._messages = tasks, artifacts, changes, messages
        self._dependencies, self._groups, self._publisher = dependencies, groups, publisher
        self._clock = clock

    def __call__(
        self,
        task_id: str,
        since: datetime | None = None,
        artifacts: Sequence[ArtifactName] = (),
        task_group_id: str = "",
        *,
        is_published: bool = False,
        recalls: bool = False,
    ) -> Next:
        """Repeat the effects of transitions after ``since``. End the claim or the task if its time is over.

        ``task_group_id`` is the group that the task joined when it was created. ``is_published``: only the
        effects on other tasks are missing. ``recalls``: the task need not be read if this process
        remembers its end. Raises ServiceUnavailable, BrokerAway, Corrupt.
        """
        if since and not is_published and self._publisher.is_away:
            raise BrokerAway
        recalled = self._tasks.recall(task_id) if recalls else None
        is_current = recalled and since and _has_ended(recalled.task, since)  # else it may be old
        stored = recalled if is_current else self._tasks.load(task_id)
        if stored is None:
            return Next(exists=False)
        task, is_own = stored.task, stored.is_own
        if since and not is_published:
            artifact_events = self._artifact_events(task, artifacts)
            begin = EVER if task.is_unpublished else since
            self._publisher.publish(events_since(task, begin, artifact_events))
            if task.is_unpublished:
                task = self._published(stored)
            self._dependencies.register(task)
        if since:
            task = self._repeat(task, since, task_group_id, is_published=is_published)
        ended = self._end(task, is_own=is_own)
        return Next(_due(ended, is_own=is_own or ended is not task))

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

    def _artifact_events(self, task: Task, names: Iterable[ArtifactName]) -> dict[int, list[Event]]:
        """By run: the artifact-created events of those artifacts that exist."""
        events = defaultdict(list)
        for run_id, name in names:
            stored = self._artifacts.load(task.task_id, run_id, name)
            if stored:
                events[run_id].append(artifact_created(task, stored.artifact))
        return events

    def _repeat(self, task: Task, since: datetime, task_group_id: str, *, is_published: bool) -> Task:
        if task_group_id not in ("", task.definition.task_group_id):
            self._groups.leave(task.task_id, task_group_id)  # its createTask was refused
        if not is_published:
            task = self._offer(task)
        for run in task.runs:
            if not task.ended_with(run.run_id) or not run.resolved:
                continue
            if run.resolved >= since:
                self._dependencies.release_dependents(task, run.run_id)
            if run.resolved >= since or task_group_id:  # it joined again when it was created again
                self._groups.end(task, run.run_id)
        return task

    def _end(self, task: Task, *, is_own: bool) -> Task:
        """End a claim after takenUntil, and a task after its deadline."""
        due, now = _due(task, is_own=is_own), self._clock.now()
        if due is None or now < due:
            return task
        return self._changes.apply(task.task_id, transitions.expire)


def _has_ended(task: Task, since: datetime) -> bool:
    return any(run.resolved and run.resolved >= since and task.ended_with(run.run_id) for run in task.runs)


def _due(task: Task, *, is_own: bool) -> datetime | None:
    """When to advance the task again.

    The clock of another process that made the claim may be behind: its claim ends up to a minute late here.
    A worker that polls gets the task at takenUntil all the same.
    """
    due, run = next_due(task), task.last_run
    if is_own or due is None or run is None or run.taken_until is None or run.started is None:
        return due
    claim = run.taken_until - run.started
    return min(task.definition.deadline, run.taken_until + min(_MAX_SKEW, claim / 20))
