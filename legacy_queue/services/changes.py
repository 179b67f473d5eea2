"""The one way in which a stored task changes: read, decide, arm, hold, write on the ETag, tell, settle.

What a crash or a failure leaves undone after the write, the timer that was armed before it does. Once the
task is written, nothing fails the caller.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from legacy_queue.domain.errors import QueueError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task
from legacy_queue.ports import Changed
from legacy_queue.services.announcer import Announcer
from legacy_queue.services.timers import Armed, Timers
from legacy_queue.services.work_messages import WorkMessages
from legacy_queue.stores import StoredTask, TaskStore

log = structlog.get_logger()


class Changes:
    """Applies transitions to stored tasks."""

    def __init__(
        self, tasks: TaskStore, messages: WorkMessages, timers: Timers, announcer: Announcer
    ) -> None:
        self._tasks, self._messages = tasks, messages
        self._timers, self._announcer = timers, announcer

    def apply(
        self,
        task_id: str,
        decide: Callable[[Task], Outcome],
        run_id: int = 0,
        presented: Lease | None = None,
    ) -> Task:
        """The task after the transition; a lost race decides again.

        What this process remembers of the task may be old, so only a write that succeeds proves it: before
        anything is refused, or left as it is, the task is read. It is read first where ``run_id``, which the
        transition is about, is not remembered: the message presented for that run may be the only one that
        leads to it, and holding it for what is long past would lose it. ``presented`` is the message that a
        claim came with: where the claim is a conflict, it is of no use to anybody and withdrawn, unless the
        task holds it.

        Raises what ``decide`` raises, and ResourceNotFound.
        """
        stored = self._recall(task_id, run_id)
        is_fresh = False
        while True:
            if stored is None:
                stored, is_fresh = self.read(task_id), True
            try:
                outcome = decide(stored.task)
            except QueueError as refusal:
                if is_fresh:
                    self._withdraw_useless(stored.task, presented, refusal)
                    raise
                stored = None
                continue
            if outcome.hold is None and outcome.task == stored.task:
                if is_fresh:
                    self.finish(outcome, stored.is_own)
                    return outcome.task
                stored = None
                continue
            armed = self._timers.arm(outcome.timer) if outcome.timer else None
            task = self._held(outcome)
            try:
                self._tasks.replace(stored, task)
                break
            except Changed:
                before, stored, is_fresh = stored.task, self.read(task_id), True
                if stored.task == task:
                    break  # the answer was lost, and not the race
                self._undo(before, task, stored.task, outcome, armed)
        with self.committed(task, armed):
            self.finish(replace(outcome, task=task), stored.is_own)
            if outcome.refusal:
                self._withdraw_useless(task, presented, outcome.refusal)
        if outcome.refusal:
            raise outcome.refusal
        return task

    @contextmanager
    def committed(self, task: Task, armed: Armed | None) -> Iterator[None]:
        """Around what a write causes, once it is stored: confirms the timer afterwards, and raises nothing.

        After a failure the timer is not confirmed. It fires, and does what is left.
        """
        try:
            yield
            if armed:
                self._timers.confirm(armed)
        except ServiceUnavailable as error:
            log.warning("effects-left-to-timer", task_id=task.task_id, why=error.message)
        except Exception:
            log.exception("effects-left-to-timer", task_id=task.task_id)

    def finish(self, outcome: Outcome, is_own: bool) -> None:
        """Do what is left to do once the task is stored: tell first, so that no worker is ahead of it.

        ``is_own``: nobody but this process has written the task before.
        """
        self._announcer.tell(outcome.events, after_others=not is_own)
        self._messages.settle(outcome.task, outcome.after)

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

    def _held(self, outcome: Outcome) -> Task:
        if outcome.hold is None:
            return outcome.task
        return replace(outcome.task, held=self._messages.hold(outcome.task, outcome.hold))

    def _withdraw_useless(self, task: Task, presented: Lease | None, refusal: QueueError) -> None:
        if presented and isinstance(refusal, RequestConflict):
            self._withdraw_unless_held(task, presented)

    def _undo(self, before: Task, wanted: Task, task: Task, outcome: Outcome, armed: Armed | None) -> None:
        """Take back timer and held message of a transition that lost the race.

        A run that is pending now may have no other message. The timer stays where a run tells that the write
        was not lost, and somebody else wrote after it.
        """
        was_written = any(run in task.runs and run not in before.runs for run in wanted.runs)
        if armed and not was_written:
            self._timers.withdraw(armed)
        if outcome.hold is None or wanted.held is None:
            return
        if task.state == "pending":
            self._messages.offer(task, task.runs[-1].run_id, wanted.held)
        else:
            self._withdraw_unless_held(task, wanted.held)

    def _withdraw_unless_held(self, task: Task, lease: Lease) -> None:
        if task.held is None or task.held.message_id != lease.message_id:
            self._messages.withdraw(task, lease)
