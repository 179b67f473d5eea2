"""The only way to change a stored task: read, decide, begin, hold, write on the ETag, publish.

The rule: the conditional write of the task's row is the one step that decides. Before it nothing has
happened; after it the call has succeeded, whatever fails.

So the order of the other steps follows from what a crash right after each of them leaves behind:

1. *Begin*: this process says what it is about to write (``Processes.begin``). If it dies after this step,
   another process repeats the effects (``advance``).
2. *Hold* the message, for a claim. If the claim were written first, a worker could get the message too early.
   If the message is held and the claim is never written, the message is only late.
3. *Write* the row, if it is still the version that the decision was made on.
4. *Publish* the events. This comes after the write, because an event must not report what did not happen.
5. *Offer* the run, or delete its message. This comes after the events, because no worker may act before
   task-pending is published.
6. *Close*: nothing is owed any more.

Each step may be repeated. So a name, an event or a message too many only costs work.

The first copies of a task's events must arrive in order. So before a process writes a version, it finds out
whether the events of the version before are published. The process that wrote that version knows
(``Processes.has_events``), and a worker's claim or report proves it (``Outcome.shows_events``). If they may
be unpublished, the whole history is published before the new events.

What is ugly: the answer to a write may be lost, or the write may arrive late. Then nobody knows whether it
happened, and this module must compare runs to find out (``_was_written``). Azure offers no other way.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime

import structlog

from legacy_queue.domain.due import next_due
from legacy_queue.domain.errors import QueueError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.events import EVER, Event, events_since
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.outcome import DeleteMessage, Outcome
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Run, Task
from legacy_queue.ports import BrokerAway, Changed, Clock
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.process.ledger import Ledger, Owed
from legacy_queue.services.process.liveness import UNKNOWN_WRITE
from legacy_queue.services.process.processes import Processes
from legacy_queue.services.tasks.work_messages import WorkMessages
from legacy_queue.stores import StoredTask, TaskStore

log = structlog.get_logger()


class Changes:
    """Applies transitions to stored tasks."""

    def __init__(
        self,
        tasks: TaskStore,
        messages: WorkMessages,
        processes: Processes,
        ledger: Ledger,
        publisher: EventPublisher,
        clock: Clock,
    ) -> None:
        self._tasks = tasks
        self._messages = messages
        self._processes = processes
        self._ledger = ledger
        self._publisher = publisher
        self._clock = clock

    def apply(
        self,
        task_id: str,
        decide: Callable[[Task, datetime], Outcome],
        run_id: int = 0,
        message: MessageLease | None = None,
    ) -> Task:
        """Apply the transition that ``decide`` chooses. Returns the task after it.

        If another call changes the task first, ``decide`` is called again on the new version.

        The first decision is made on the task as this process remembers it, without a read. If that version
        is outdated, the write fails. Before a call is refused, or leaves the task unchanged, the task is
        read. It is also read if this process does not remember ``run_id``, the run of the transition: a
        decision on older runs could hide the only message of that run for too long.

        ``message`` is the message of a claim. If the claim is a conflict, it is deleted, unless the task
        holds it.

        Raises the errors of ``decide``, and ResourceNotFound.
        """
        remembered = self._recall(task_id, run_id)
        began = self._clock.now()
        while True:
            is_fresh = remembered is None
            stored = remembered or self.read(task_id)
            remembered = None  # it may be outdated, so each further round reads the task
            try:
                outcome = decide(stored.task, self._clock.now() if is_fresh else began)
            except QueueError as refusal:
                if is_fresh:
                    self._delete_refused(stored.task, message, refusal)
                    raise
                continue
            # without a write, nothing would show that the remembered task is outdated
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

    def wait_for_room(self) -> None:
        """See ``Ledger.wait_for_room``."""
        self._ledger.wait_for_room()

    def writing(
        self, task_id: str, since: datetime, task_group_id: str = "", *, needs_name: bool = True
    ) -> "_Writing":
        """Returns a context in which the caller makes one write of the task.

        Afterwards the caller must call ``finish`` or ``publish_artifact``, or close what is owed.
        """
        owed = self._processes.begin(task_id, since, task_group_id, needs_name=needs_name)
        return _Writing(self._ledger, owed)

    @contextmanager
    def owing(
        self, task_id: str, since: datetime, task_group_id: str, *, is_published: bool = False
    ) -> Iterator[None]:
        """Returns a context for work that writes no task. Then the resolver repeats the effects since then.

        Raises ServiceUnavailable before the context begins.
        """
        owed = self._processes.begin(task_id, since, task_group_id)
        try:
            yield
        finally:
            self._ledger.repeat_later([owed], is_published=is_published)

    def version(self, owed: Owed) -> str:
        """See ``Processes.version``."""
        return self._processes.version(owed)

    def marked(self, task: Task) -> Task:
        """Returns the task to write. It is marked if its events cannot be published now.

        The mark is part of the write, because this may be the last write that succeeds for a while. The mark
        stays until the events are published, because this process may die before that.
        """
        if task.is_unpublished or not self._publisher.is_away:
            return task
        return replace(task, is_unpublished=True)

    def finish(
        self,
        task: Task,
        outcome: Outcome,
        owed: Owed,
        before: StoredTask | None = None,
        register: Callable[[Task], Task] | None = None,
    ) -> Task:
        """Apply the effects of a successful write. Raises nothing: what fails is repeated later.

        ``task`` is what was written, and ``before`` is the version before it. For a new task, ``before`` is
        None, and ``register`` records it as a dependent of other tasks. The effects that the end of a task
        has on other tasks are always left to the resolver.
        """
        is_published = is_complete = False
        try:
            is_published = self._publish(task, outcome, before)
            if not is_published:
                task = self.mark_unpublished(task, owed)
            self._messages.apply_effect(task, outcome.message_effect)
            task = register(task) if register else task
            is_complete = is_published
        except ServiceUnavailable as error:
            log.warning("effects-deferred", task_id=task.task_id, why=error.message)
        except Exception:
            log.exception("effects-deferred", task_id=task.task_id)
        if not is_published:
            owed.repeats_all = True  # the events of the version before may be missing too
        self._ledger.note_due(task.task_id, next_due(task), owed.number)
        # effects on dependents and the group need more operations, so they are left to the resolver
        ends = before is not None and task.is_resolved and not before.task.is_resolved
        if is_complete and not ends:
            self._ledger.close([owed])
        else:
            self._ledger.repeat_later([owed], is_published=is_complete, is_marked=task.is_unpublished)
        return task

    def _publish(self, task: Task, outcome: Outcome, before: StoredTask | None) -> bool:
        """Publish the events. If earlier events may be missing, publish these first. Returns whether it did.

        The history of a marked task is left to the resolver, because it also has events of artifacts.
        """
        if task.is_unpublished:
            return False
        lacks_events = before and self._lacks_events(before, shows_events=outcome.shows_events)
        return self._try_to_publish(events_since(task, EVER) if lacks_events else outcome.events)

    def _lacks_events(self, stored: StoredTask, *, shows_events: bool) -> bool:
        """Whether the events of the version may be missing. ``shows_events``: see Outcome."""
        if number := self._processes.number(stored.written):
            return not self._ledger.is_applied(number)
        return not (shows_events or self._processes.has_events(stored.written))

    def _try_to_publish(self, events: Sequence[Event]) -> bool:
        try:
            self._publisher.publish(events)
        except BrokerAway:
            return False
        return True

    def mark_unpublished(self, task: Task, owed: Owed) -> Task:
        """Mark the task in its row as unpublished.

        From then on, any process that changes the task, or takes over for this one, publishes all its events.
        Returns the task as it is stored. If storage fails, it is not marked.
        """
        if task.is_unpublished:
            return task
        stored = self._tasks.recall(task.task_id)
        with suppress(ServiceUnavailable):
            stored = stored or self._tasks.load(task.task_id)
            while stored and not stored.task.is_unpublished:
                try:
                    marked = replace(stored.task, is_unpublished=True)
                    stored = self._tasks.replace(stored, marked, self._processes.version(owed))
                except Changed:
                    stored = self._tasks.load(task.task_id)
        return stored.task if stored and stored.task.is_unpublished else task

    def publish_again(
        self, stored: StoredTask, since: datetime, owed: Owed, artifacts: Mapping[int, list[Event]]
    ) -> tuple[Task, bool]:
        """Publish the events since ``since``. If the broker is away, mark the task.

        Returns the task, and whether the events are published. ``artifacts`` has the artifact-created events
        by run. The mark shows where work is left. It stays until the caller owes nothing else (``unmark``).
        """
        task = stored.task
        if not self._try_to_publish(events_since(task, since, artifacts)):
            return self.mark_unpublished(task, owed), False
        return task, True

    def unmark(self, task: Task) -> None:
        """Clear the mark of a task whose events are all published, unless the task has changed since.

        If the mark cannot be cleared, the events are published again later.
        """
        stored = self._tasks.recall(task.task_id) or self._tasks.load(task.task_id)
        if stored and stored.task == task:  # otherwise it may be the mark of another process
            with suppress(Changed):
                self._tasks.replace(stored, replace(task, is_unpublished=False))

    def publish_artifact(self, stored: StoredTask, created: Event, owed: Owed) -> None:
        """Publish artifact-created after the write of an artifact. If this fails, it is published later.

        ``stored`` is the version of the task that the call has read.
        """
        task = stored.task
        # its worker has the answer to its claim, but the events of the claim must come first
        missing = events_since(task, EVER) if self._lacks_events(stored, shows_events=True) else []
        if not task.is_unpublished and self._try_to_publish([*missing, created]):
            self._ledger.close([owed])
        else:
            self._ledger.repeat_later([owed])

    def _repeat(self, stored: StoredTask, outcome: Outcome) -> None:
        """Repeat the effects of a transition that has already happened. Raises ServiceUnavailable."""
        task = outcome.task
        if outcome.events and not self._publish(task, outcome, stored):
            owed = self._processes.begin(task.task_id, self._clock.now())
            owed.repeats_all = True
            task = self.mark_unpublished(task, owed)
            self._ledger.note_due(task.task_id, next_due(task), owed.number)
            self._ledger.repeat_later([owed], is_marked=task.is_unpublished)
        self._messages.apply_effect(outcome.task, outcome.message_effect)

    def find(self, task_id: str) -> StoredTask | None:
        """Reads the task. Returns None if it does not exist."""
        return self._tasks.load(task_id)

    def recall_stored(self, task_id: str) -> StoredTask | None:
        """Returns the version of the task that this process remembers, or None. It may be outdated."""
        return self._tasks.recall(task_id)

    def is_own(self, stored: StoredTask) -> bool:
        """Whether this process wrote the version."""
        return self._processes.number(stored.written) > 0

    def read(self, task_id: str) -> StoredTask:
        """Reads the task. Raises ResourceNotFound."""
        stored = self._tasks.load(task_id)
        if stored is None:
            raise ResourceNotFound(f"there is no task {task_id}; it may have expired")
        return stored

    def recall(self, task_id: str) -> Task:
        """Returns the task. Its definition is right, its runs may be outdated. Raises ResourceNotFound."""
        return (self._tasks.recall(task_id) or self.read(task_id)).task

    def _recall(self, task_id: str, run_id: int) -> StoredTask | None:
        stored = self._tasks.recall(task_id)
        return stored if stored and run_id < len(stored.task.runs) else None

    def _hold(self, outcome: Outcome) -> Task:
        if outcome.hold is None:
            return outcome.task
        return outcome.task.with_runs(outcome.task.runs, self._messages.hold(outcome.task, outcome.hold))

    def _delete_refused(self, task: Task, message: MessageLease | None, refusal: QueueError) -> None:
        if message and isinstance(refusal, RequestConflict):
            self._delete_unless_held(task, message, task.work_queue)

    def _write(self, stored: StoredTask, outcome: Outcome, began: datetime) -> Task | None:
        """Write the task and apply the effects. Returns the task, or None after a lost race.

        After a lost race, either nothing was written or the effects are repeated later.
        """
        if outcome.events or outcome.message_effect:
            return self._write_transition(stored, outcome, began)
        # A reclaim has no effects. The look at takenUntil finds that the claim was extended.
        task = self._hold(outcome)
        return task if self._replace(stored, task, outcome) == task else None

    def _write_transition(self, stored: StoredTask, outcome: Outcome, began: datetime) -> Task | None:
        task_id = stored.task.task_id
        with self.writing(task_id, began) as owed:
            task = self.marked(self._hold(outcome))
            current = self._replace(stored, task, outcome, self._processes.version(owed))
        if current == task:
            return self.finish(task, outcome, owed, stored)
        # The answer to the write may be lost, and another process may have written since. If this write were
        # closed then, the events of a transition that did happen would be lost.
        if any(run not in stored.task.runs and _was_written(run, current) for run in task.runs):
            self._ledger.repeat_later([owed])  # it was written, and another process wrote after it
        else:
            self._ledger.close([owed])
        return None

    def _replace(self, stored: StoredTask, task: Task, outcome: Outcome, written: str = "") -> Task:
        """Write the task. Returns the stored task, which is another version if another call was faster."""
        try:
            return self._tasks.replace(stored, task, written).task
        except Changed:
            current = self.read(task.task_id).task
            if current != task:  # if they are equal, only the answer was lost
                self._undo(task, current, outcome)
            return current

    def _undo(self, wanted: Task, task: Task, outcome: Outcome) -> None:
        """Offer or delete the message that a transition held before it lost the race.

        If a run is pending now, this may be its only message, unless its priority and queue have changed.
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


class _Writing:
    """The context of a write.

    After an error below 500, nothing was written. After any other, the write may have happened.
    """

    def __init__(self, ledger: Ledger, owed: Owed) -> None:
        self._ledger = ledger
        self._owed = owed

    def __enter__(self) -> Owed:
        return self._owed

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            return
        if isinstance(error, QueueError) and error.status < 500:
            self._ledger.close([self._owed])
        elif isinstance(error, Exception):
            # Not at once, because a write that timed out may still arrive. An earlier look would find the
            # task unchanged, and nobody would repeat the effects of the late write.
            self._ledger.repeat_later([self._owed], UNKNOWN_WRITE)


def _was_written(run: Run, task: Task) -> bool:
    """Whether this run was stored in the task at some time."""
    if run.run_id >= len(task.runs):
        return False
    now = task.runs[run.run_id]
    if run.is_resolved:
        return now == run
    is_held = run.worker is None or (now.worker, now.started) == (run.worker, run.started)
    return now.scheduled == run.scheduled and is_held
