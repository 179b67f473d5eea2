"""Advances a task without a call from a client.

The resolver and the sweeper both use it. Every part is safe to repeat. Source: docs/explanation/recovery.md.
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
class LookResult:
    """What a look at a task has found out."""

    # when the task is due next; None means never
    due: datetime | None = None
    exists: bool = True
    # false while the broker is away
    is_complete: bool = True
    # whether all events of the task are published; None if that has not changed
    is_published: bool | None = None
    # whether the row of the task says that its events are unpublished
    is_marked: bool = False


class Advance:
    """Repeats the effects of a task's transitions, and ends claims and tasks that are due."""

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

    def look(self, look: Look) -> LookResult:
        """Repeat the effects that the task may lack, then end the claim or the task if it is due.

        While the broker is away, everything except the events is done. Raises ServiceUnavailable, Corrupt.
        """
        since = look.since
        if since is None:
            return self.end_if_due(look.task_id)
        must_publish = not look.is_published
        stored = None if must_publish else self._recall_ended(look.task_id, since)
        stored = stored or self._changes.find(look.task_id)
        if stored is None:
            return LookResult(exists=False)
        task = stored.task
        if task.is_unpublished:  # with the mark, any process may owe any event of the task
            since = EVER
        is_published = True
        published = None
        if task.is_unpublished or must_publish:
            task, is_published = self._changes.publish_again(
                stored, since, look.owed[0], self._artifact_events(task)
            )
            published = task
            if self._clock.now() < task.definition.expires:  # otherwise its rows would stay for days
                self._dependencies.register(task)
            task = self._offer(task)
        is_complete = is_published
        try:
            self._repeat_on_others(task, since, look.task_group_id)
        # only the event of its group is missing: the mark is enough, and there may be very many such tasks
        except BrokerAway:
            task = self._changes.mark_unpublished(task, look.owed[0])
            is_complete = False
        if is_complete and published and published.is_unpublished:
            self._changes.unmark(published)  # does nothing if the task has changed since
        is_own = self._changes.is_own(stored) or task.runs != stored.task.runs
        due = self._end_if_due(task, is_own=is_own).due
        return LookResult(
            due, is_complete=is_complete, is_published=is_published, is_marked=task.is_unpublished
        )

    def end_if_due(self, task_id: str) -> LookResult:
        """End the claim at takenUntil or the task at its deadline. Raises ServiceUnavailable, Corrupt."""
        stored = self._changes.find(task_id)
        if stored is None:
            return LookResult(exists=False)
        return self._end_if_due(stored.task, is_own=self._changes.is_own(stored))

    def offer_again(self, task_id: str) -> None:
        """Offer a pending task again. Schedule an unscheduled task whose dependencies are resolved."""
        stored = self._changes.find(task_id)
        if stored:
            self._offer(stored.task)

    def _offer(self, task: Task) -> Task:
        if task.state == "pending":
            self._messages.offer(task, task.runs[-1].run_id)
        return self._dependencies.recheck(task)  # only an unscheduled task has something to check

    def _recall_ended(self, task_id: str, since: datetime) -> StoredTask | None:
        """Returns the task without a read, if this process remembers that it ended after ``since``."""
        recalled = self._changes.recall_stored(task_id)
        # any other may be outdated
        return recalled if recalled and _has_ended(recalled.task, since) else None

    def _repeat_on_others(self, task: Task, since: datetime, task_group_id: str) -> None:
        if task_group_id not in ("", task.definition.task_group_id):
            self._groups.leave(task.task_id, task_group_id)  # its createTask was refused
        elif task_group_id and not task.is_resolved and not task.activation(len(task.runs) - 1):
            # a process that did not find the task may have ended its membership, and died before the task
            # joined the group again
            self._groups.join_again(task.task_id, task.definition)
            stored = self._changes.find(task.task_id)
            task = stored.task if stored else task  # if the task has ended meanwhile, its membership has too
        for run in task.runs:
            if not task.ended_with(run.run_id) or not run.resolved:
                continue
            if run.resolved >= since:
                self._dependencies.release_dependents(task, run.run_id)
            if run.resolved >= since or task_group_id:  # a task that is created again joins its group again
                self._groups.end(task, run.run_id)

    def _artifact_events(self, task: Task) -> dict[int, list[Event]]:
        """Returns artifact-created of all artifacts, by run. Some of them may have been published already."""
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

    def _end_if_due(self, task: Task, *, is_own: bool) -> LookResult:
        due = _due(task, is_own=is_own)
        if due is None or self._clock.now() < due:
            return LookResult(due)
        ended = self._changes.apply(task.task_id, transitions.expire)
        return LookResult(_due(ended, is_own=is_own or ended is not task))


def _has_ended(task: Task, since: datetime) -> bool:
    return any(run.resolved and run.resolved >= since and task.ended_with(run.run_id) for run in task.runs)


def _due(task: Task, *, is_own: bool) -> datetime | None:
    """When to advance the task again.

    If another process made the claim, its clock may be behind. So this process ends the claim up to a minute
    late. A worker that polls still gets the task at takenUntil.
    """
    due = next_due(task)
    run = task.last_run
    if is_own or due is None or run is None or run.taken_until is None or run.started is None:
        return due
    claim = run.taken_until - run.started
    return min(task.definition.deadline, run.taken_until + min(_MAX_SKEW, claim / 20))
