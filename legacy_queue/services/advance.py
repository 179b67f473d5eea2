"""What a task needs now: the one way in which anything happens to it that nobody asks for.

Timers that fire, the sweeper, and a call that leaves the end of a task to the background all come here.
Every part is safe to repeat. Source: docs/explanation/recovery.md#timers.
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
    """When the task is to be advanced again, None for never; or it is not there."""

    due: datetime | None = None
    is_there: bool = True


class Advance:
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
        """Repeat the effects of what happened to the task ``since``, and end what is over.

        ``task_group_id`` is what the task joined as it was created. ``is_published``: those effects are only
        what its end means for others. ``recalls``: what this process remembers of the task is good enough.
        Answers when to come again. Raises ServiceUnavailable, BrokerAway,
        Corrupt.
        """
        if since and not is_published and self._publisher.is_away:
            raise BrokerAway
        recalled = self._tasks.recall(task_id) if recalls else None
        is_known = recalled and since and _has_ended(recalled.task, since)  # else it may be old
        stored = recalled if is_known else self._tasks.load(task_id)
        if stored is None:
            return Next(is_there=False)
        task, is_own = stored.task, stored.is_own
        if since and not is_published:
            told_of = self._artifact_events(task, artifacts)
            self._publisher.publish(events_since(task, EVER if task.is_unpublished else since, told_of))
            if task.is_unpublished:
                task = self._published(stored)
            self._dependencies.register(task)
        if since:
            task = self._repeat(task, since, task_group_id, is_published=is_published)
        ended = self._end(task, is_own=is_own)
        return Next(_due(ended, is_own=is_own or ended is not task))

    def offer_again(self, task_id: str) -> None:
        """Offer a task that waits to be claimed; or schedule it, where what it waits for is resolved."""
        stored = self._tasks.load(task_id)
        if stored:
            self._offer(stored.task)

    def _offer(self, task: Task) -> Task:
        if task.state == "pending":
            self._messages.offer(task, task.runs[-1].run_id)
        return self._dependencies.recheck(task)  # of one that is not scheduled

    def _published(self, stored: StoredTask) -> Task:
        task = replace(stored.task, is_unpublished=False)
        with suppress(Changed):
            self._tasks.replace(stored, task)
        return task

    def _artifact_events(self, task: Task, names: Iterable[ArtifactName]) -> dict[int, list[Event]]:
        """Of each run, artifact-created of those of the artifacts that there are."""
        events = defaultdict(list)
        for run_id, name in names:
            found = self._artifacts.load(task.task_id, run_id, name)
            if found:
                events[run_id].append(artifact_created(task, found.artifact))
        return events

    def _repeat(self, task: Task, since: datetime, task_group_id: str, *, is_published: bool) -> Task:
        if task_group_id not in ("", task.definition.task_group_id):
            self._groups.leave(task.task_id, task_group_id)  # for a definition that was refused
        if not is_published:
            task = self._offer(task)
        for run in task.runs:
            if not task.ended_with(run.run_id) or not run.resolved:
                continue
            if run.resolved >= since:
                self._dependencies.release_dependents(task, run.run_id)
            if run.resolved >= since or task_group_id:  # it has joined again, being created again
                self._groups.end(task, run.run_id)
        return task

    def _end(self, task: Task, *, is_own: bool) -> Task:
        """A claim or a task whose time is over ends."""
        due, now = _due(task, is_own=is_own), self._clock.now()
        if due is None or now < due:
            return task
        return self._changes.apply(task.task_id, transitions.expire)


def _has_ended(task: Task, since: datetime) -> bool:
    return any(run.resolved and run.resolved >= since and task.ended_with(run.run_id) for run in task.runs)


def _due(task: Task, *, is_own: bool) -> datetime | None:
    """When a claim was counted by another process, whose clock may be behind, it does not end early here.

    It ends up to a minute late. Whoever polls finds the task at takenUntil all the same.
    """
    due, run = next_due(task), task.last_run
    if is_own or due is None or run is None or run.taken_until is None or run.started is None:
        return due
    claim = run.taken_until - run.started
    return min(task.definition.deadline, run.taken_until + min(_MAX_SKEW, claim / 20))
