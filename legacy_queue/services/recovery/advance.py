"""Advances a task without a call.

The resolver and the sweeper end here. Every part is safe to repeat. Source: docs/explanation/recovery.md.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from legacy_queue.domain import transitions
from legacy_queue.domain.artifact import artifact_created
from legacy_queue.domain.due import next_due
from legacy_queue.domain.events import EVER, Event
from legacy_queue.domain.task import Task
from legacy_queue.ports import BrokerAway, Clock
from legacy_queue.services.pagination import read_rows
from legacy_queue.services.process.ledger import Look
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.services.tasks.dependencies import Dependencies
from legacy_queue.services.tasks.groups import Groups
from legacy_queue.services.tasks.work_messages import WorkMessages
from legacy_queue.stores import ArtifactStore, StoredTask

_MAX_SKEW = timedelta(minutes=1)


@dataclass(frozen=True)
class Next:
    """When the task is due next, None for never. ``exists`` is false if there is no such task.

    ``is_complete`` is false while the broker is away. Then the events of the task are missing unless
    ``is_published``, None if that has not changed; ``is_marked``: its row says so.
    """

    due: datetime | None = None
    exists: bool = True
    is_complete: bool = True
    is_published: bool | None = None
    is_marked: bool = False


class Advance:
    """Repeats the effects of a task's transitions, and ends a claim or a task whose time is over."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        changes: Changes,
        messages: WorkMessages,
        dependencies: Dependencies,
        groups: Groups,
        clock: Clock,
    ) -> None:
        self._artifacts = artifacts
        self._changes = changes
        self._messages = messages
        self._dependencies = dependencies
        self._groups = groups
        self._clock = clock

    def look(self, look: Look) -> Next:
        """Repeat what is owed to the task, then end the claim or the task if its time is over.

        While the broker is away, all is done but the events. Raises ServiceUnavailable, Corrupt.
        """
        since = look.since
        if since is None:
            return self.end_if_due(look.task_id)
        must_publish = not look.is_published
        stored = None if must_publish else self._recall_ended(look.task_id, since)
        stored = stored or self._changes.find(look.task_id)
        if stored is None:
            return Next(exists=False)
        task = stored.task
        if task.is_unpublished:  # the mark stands for all that any process owes to the task
            since = EVER
        is_published = True
        published = None
        if task.is_unpublished or must_publish:
            task, is_published = self._changes.publish_again(
                stored, since, look.owed[0], self._artifact_events(task)
            )
            published = task
            if self._clock.now() < task.definition.expires:  # else its rows would stay for days
                self._dependencies.register(task)
            task = self._offer(task)
        is_complete = is_published
        try:
            self._repeat_on_others(task, since, look.task_group_id)
        except BrokerAway:  # its group is resolved: the mark says that, since there may be very many
            task = self._changes.mark_unpublished(task, look.owed[0])
            is_complete = False
        if is_complete and published and published.is_unpublished:
            self._changes.unmark(published)  # unless it has changed since
        is_own = self._changes.is_own(stored) or task.runs != stored.task.runs
        due = self._end_if_due(task, is_own=is_own).due
        return Next(due, is_complete=is_complete, is_published=is_published, is_marked=task.is_unpublished)

    def end_if_due(self, task_id: str) -> Next:
        """End the claim after takenUntil, and the task after its deadline.

        Raises ServiceUnavailable, Corrupt.
        """
        stored = self._changes.find(task_id)
        if stored is None:
            return Next(exists=False)
        return self._end_if_due(stored.task, is_own=self._changes.is_own(stored))

    def offer_again(self, task_id: str) -> None:
        """Offer a pending task again; schedule an unscheduled task whose dependencies are resolved."""
        stored = self._changes.find(task_id)
        if stored:
            self._offer(stored.task)

    def _offer(self, task: Task) -> Task:
        if task.state == "pending":
            self._messages.offer(task, task.runs[-1].run_id)
        return self._dependencies.recheck(task)  # of an unscheduled task

    def _recall_ended(self, task_id: str, since: datetime) -> StoredTask | None:
        """The task without a read, if this process remembers that it has ended since then."""
        recalled = self._changes.recall_stored(task_id)
        return recalled if recalled and _has_ended(recalled.task, since) else None  # else it may be old

    def _repeat_on_others(self, task: Task, since: datetime, task_group_id: str) -> None:
        if task_group_id not in ("", task.definition.task_group_id):
            self._groups.leave(task.task_id, task_group_id)  # its createTask was refused
        elif task_group_id and not task.is_resolved and not task.activation(len(task.runs) - 1):
            # who did not find the task may have ended its membership, and died before it joined again
            self._groups.join_again(task.task_id, task.definition)
            stored = self._changes.find(task.task_id)
            task = stored.task if stored else task  # if it has ended meanwhile, so has its membership
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
