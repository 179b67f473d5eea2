"""The only way to change a stored task: read, decide, schedule, hold, write on the ETag, publish.

Theory. The conditional write of the task's row is the one step that decides: before it nothing has happened,
after it the call has succeeded, whatever fails. So each other step has its place by what a crash after it
leaves behind:

* the timer first: after a process that dies below it, another repeats the effects (``advance``);
* the hold of the message before the write: a worker would soon get the message of a claim that was written
  and not held, while a message that is held for a claim that was not written is only late;
* the events after the write, since none may tell of what did not happen, but before the message that offers
  a run, since a worker must not act before its task-pending;
* the timer is completed last. Each step may be repeated, so a timer too many costs only work.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime

import structlog

from legacy_queue.domain.errors import QueueError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.events import EVER, Event, events_since
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.outcome import DeleteMessage, Outcome
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.timer import next_due
from legacy_queue.ports import BrokerAway, Changed, Clock
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.recovery.jobs import TIMER_LEASE
from legacy_queue.services.recovery.timers import Timers
from legacy_queue.services.tasks.work_messages import WorkMessages
from legacy_queue.stores import StoredTask, TaskStore

log = structlog.get_logger()

_NOT_BY_ITS_WORKER = ("claim-expired", "deadline-exceeded", "canceled")  # of reasonResolved


class Changes:
    """Applies transitions to stored tasks."""

    def __init__(
        self,
        tasks: TaskStore,
        messages: WorkMessages,
        timers: Timers,
        publisher: EventPublisher,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._messages = messages
        self._timers = timers
        self._publisher = publisher
        self._clock = clock

    def apply(
        self,
        task_id: str,
        decide: Callable[[Task, datetime], Outcome],
        run_id: int = 0,
        message: MessageLease | None = None,
    ) -> Task:
        """The task after the transition. After a lost race, ``decide`` is called again.

        Decides on the task as this process remembers it, without a read: if that is old, the write fails.
        Before it refuses a call or leaves the task unchanged, it reads the task. It also reads the task if it
        does not remember ``run_id``, the run of the transition: a decision on older runs could hide the only
        message of that run for too long. ``message`` is the message of a claim: it is deleted if the claim is
        a conflict, unless the task holds it.

        Raises the errors of ``decide``, and ResourceNotFound.
        """
        remembered = self._recall(task_id, run_id)
        began = self._clock.now()
        while True:
            is_fresh = remembered is None
            stored = remembered or self.read(task_id)
            remembered = None  # it may be old: any further round reads
            try:
                outcome = decide(stored.task, self._clock.now() if is_fresh else began)
            except QueueError as refusal:
                if is_fresh:
                    self._delete_refused(stored.task, message, refusal)
                    raise
                continue
            # no write would show that the remembered task is old
            if outcome.hold is None and outcome.task == stored.task:
                if is_fresh:
                    self._repeat(stored, outcome)
                    return outcome.task
                continue
            task = self._write(stored, outcome, began)
            if task:
                break
        if outcome.refusal:
            try:
                self._delete_refused(task, message, outcome.refusal)
            except Exception:
                log.exception("stale-message-not-deleted", task_id=task_id)
            raise outcome.refusal
        return task

    @contextmanager
    def writing(self, task_id: str, since: datetime, task_group_id: str = "") -> Iterator[None]:
        """Schedule the timer of the write within. The caller then calls ``finish``, ``publish_artifact``, or
        abandons the timer.

        An error below 500 says that nothing was written. After any other error, the write may have happened.
        """
        self._timers.schedule(task_id, since, task_group_id)
        try:
            yield
        except QueueError as error:
            if error.status < 500:
                self._timers.cancel(task_id)
            else:
                # Not at once: a write that timed out may still arrive. A look before that would find the task
                # unchanged, and complete the timer of effects that come after it.
                self._timers.retry_later(task_id, delay=TIMER_LEASE)
            raise
        except Exception:
            self._timers.retry_later(task_id, delay=TIMER_LEASE)
            raise

    def marked(self, task: Task) -> Task:
        """The task as it is to be written, marked if its events cannot be published now.

        The mark goes with the write, not after it: the write may be the last that succeeds for a while. And a
        mark stays until the events are published: this process may die before.
        """
        is_behind = self._publisher.is_away or self._timers.is_unpublished(task.task_id)
        return replace(task, is_unpublished=True) if is_behind and not task.is_unpublished else task

    def _unmarked(self, task: Task) -> Task:
        """The task without its mark: all its events are published. One that stays publishes them again."""
        stored = self._tasks.recall(task.task_id) or self._tasks.load(task.task_id)
        if stored and stored.task == task:  # else another process has written, whose mark it may be
            with suppress(Changed):
                return self._tasks.replace(stored, replace(task, is_unpublished=False)).task
        return task

    def finish(
        self,
        task: Task,
        outcome: Outcome,
        stored: StoredTask | None = None,
        register: Callable[[Task], Task] = lambda task: task,
    ) -> Task:
        """Apply the effects of a successful write: publish first, so that no worker acts before the event.

        ``task`` is what was written. ``stored`` is the task before the write, None for a new task, which
        ``register`` then registers. Raises nothing. The timer applies failed effects, and always the effects
        of a task's end on others.
        """
        is_done = False
        before = stored.task if stored else None
        try:
            # Missing events come first: the broker gets the events of a task in their order. The mark may be
            # another process', also on a task that is created again, and it is removed below.
            is_behind = task.is_unpublished or (
                stored and (_may_lack_events(stored, task) or self._timers.has_other_calls(task.task_id))
            )
            events = events_since(task, EVER) if is_behind else outcome.events
            is_published = self._publish(task.task_id, events)
            if not is_published:
                # the timer keeps the order in this process alone; the row says it to the others
                self.mark_unpublished(task.task_id)
            self._messages.apply_effect(task, outcome.message_effect)
            task = register(task)
            if is_published and task.is_unpublished:
                task = self._unmarked(task)
            is_done = is_published  # only the effects on other tasks are missing
        except ServiceUnavailable as error:
            log.warning("effects-deferred", task_id=task.task_id, why=error.message)
        except Exception:
            log.exception("effects-deferred", task_id=task.task_id)
        # dependents and group take further operations: a resolver applies them, not this call
        ends = before is not None and task.is_resolved and not before.is_resolved
        if is_done and not ends:
            self._timers.complete(task.task_id, next_due(task))
        else:
            self._timers.retry_later(task.task_id, next_due(task), is_published=is_done)
        return task

    def _publish(self, task_id: str, events: Sequence[Event]) -> bool:
        """Publish the events, unless earlier events of the task are unpublished; returns whether it did."""
        if self._timers.is_unpublished(task_id):
            return False
        try:
            self._publisher.publish(events)
        except BrokerAway:
            return False
        return True

    def mark_unpublished(self, task_id: str) -> None:
        """Mark the task: the next process that changes it and has a broker publishes all its events."""
        stored = self._tasks.recall(task_id)
        with suppress(ServiceUnavailable):
            stored = stored or self._tasks.load(task_id)
            while stored and not stored.task.is_unpublished:
                try:
                    stored = self._tasks.replace(stored, replace(stored.task, is_unpublished=True))
                except Changed:
                    stored = self._tasks.load(task_id)

    def publish_artifact(self, task: Task, created: Event) -> None:
        """Publish artifact-created after the write of an artifact; the timer does it later if that fails."""
        task_id = task.task_id
        missing = events_since(task, EVER) if task.is_unpublished else []  # task-running comes first
        if self._publish(task_id, [*missing, created]):
            self._timers.cancel(task_id)
        else:
            self._timers.retry_later(task_id)

    def _repeat(self, stored: StoredTask, outcome: Outcome) -> None:
        """Repeat the effects of a transition that had happened before. Raises ServiceUnavailable."""
        task_id = outcome.task.task_id
        # another process may have died between the write and its events, and those of the changes before; a
        # call of this one may not have published yet
        is_behind = not stored.is_own or self._timers.has_other_calls(task_id, own=0)
        events = events_since(outcome.task, EVER) if is_behind else outcome.events
        if outcome.events and not self._publish(task_id, events):
            self.mark_unpublished(task_id)
            self._timers.schedule(task_id, EVER)
            self._timers.retry_later(task_id)
        self._messages.apply_effect(outcome.task, outcome.message_effect)

    def read(self, task_id: str) -> StoredTask:
        """The task as it is now; raises ResourceNotFound."""
        stored = self._tasks.load(task_id)
        if stored is None:
            raise ResourceNotFound(f"there is no task {task_id}; it may have expired")
        return stored

    def recall(self, task_id: str) -> Task:
        """The task with its definition; its runs may be old. Raises ResourceNotFound."""
        return (self._tasks.recall(task_id) or self.read(task_id)).task

    def _recall(self, task_id: str, run_id: int) -> StoredTask | None:
        stored = self._tasks.recall(task_id)
        return stored if stored and run_id < len(stored.task.runs) else None

    def _hold(self, outcome: Outcome) -> Task:
        if outcome.hold is None:
            return outcome.task
        return replace(outcome.task, held=self._messages.hold(outcome.task, outcome.hold))

    def _delete_refused(self, task: Task, message: MessageLease | None, refusal: QueueError) -> None:
        if message and isinstance(refusal, RequestConflict):
            self._delete_unless_held(task, message, task.work_queue)

    def _write(self, stored: StoredTask, outcome: Outcome, began: datetime) -> Task | None:
        """The written task with its effects, None after a lost race: then nothing of it was written, or the
        timer has its effects.
        """
        if outcome.events or outcome.message_effect:
            return self._write_transition(stored, outcome, began)
        # A reclaim: there is nothing to repeat, and the timer that is there still fires in time.
        task = self._hold(outcome)
        return task if self._replace(stored, task, outcome) == task else None

    def _write_transition(self, stored: StoredTask, outcome: Outcome, began: datetime) -> Task | None:
        task_id = stored.task.task_id
        with self.writing(task_id, began):
            task = self._hold(outcome)
            task = self.marked(task)
            current = self._replace(stored, task, outcome)
        if current == task:
            self.finish(task, outcome, stored)
            return task
        # The answer of the write may be lost, and another process may have written since. To cancel the timer
        # then would lose the events of a transition that happened.
        if any(run not in stored.task.runs and _was_written(run, current) for run in task.runs):
            self._timers.retry_later(task_id)  # it was written, and another process wrote after it
        else:
            self._timers.cancel(task_id)
        return None

    def _replace(self, stored: StoredTask, task: Task, outcome: Outcome) -> Task:
        """Write the task. The task as it is stored now, another after a lost race."""
        try:
            return self._tasks.replace(stored, task).task
        except Changed:
            current = self.read(task.task_id).task
            if current != task:  # else only the answer was lost
                self._undo(task, current, outcome)
            return current

    def _undo(self, wanted: Task, task: Task, outcome: Outcome) -> None:
        """Offer or delete the message that a transition held before it lost the race.

        A run that is pending now may have no other message, unless its priority and so its queue changed.
        """
        if outcome.hold is None or wanted.held is None:
            return
        if task.state == "pending" and task.work_queue == wanted.work_queue:
            self._messages.offer(task, task.runs[-1].run_id, wanted.held)
        else:
            self._delete_unless_held(task, wanted.held, wanted.work_queue)

    def _delete_unless_held(self, task: Task, lease: MessageLease, queue: WorkQueue) -> None:
        if task.held is None or task.held.message_id != lease.message_id:
            self._messages.apply_effect(task, DeleteMessage(lease, queue))


def _may_lack_events(stored: StoredTask, task: Task) -> bool:
    """Whether events before the change to ``task`` may be unpublished.

    Another process may have died between its write and its events. A worker that claims, reclaims or reports
    has an answer or a message, which came after the events. But the message of a retry was put when the run
    before was claimed, and a changed priority puts none. Whoever else changes the task needs neither.
    """
    if stored.is_own:
        return False
    run = stored.task.last_run
    changes = stored.task.priority_changes
    if run is None or run.is_resolved or stored.task.priority != task.priority:
        return True  # it is scheduled, run again, or moved to another queue
    if (run.state == "pending" and run.is_retry) or (changes and changes[-1].changed >= stored.task.since):
        return True
    return task.runs[run.run_id].reason_resolved in _NOT_BY_ITS_WORKER


def _was_written(run: Run, task: Task) -> bool:
    """Whether the task had this run at some time."""
    if run.run_id >= len(task.runs):
        return False
    now = task.runs[run.run_id]
    if run.is_resolved:
        return now == run
    is_held = run.worker is None or (now.worker, now.started) == (run.worker, run.started)
    return now.scheduled == run.scheduled and is_held
