"""Offers, holds, releases and deletes the signed messages of a task's runs."""

import math
from collections.abc import Callable, Sequence
from datetime import timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.messages import MessageLease, message_text, read_message
from legacy_queue.domain.outcome import DeleteMessage, Hold, Offer
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import Clock, LeaseLost
from legacy_queue.stores import WorkQueues

log = structlog.get_logger()

_NO_DELAY = timedelta(0)


class WorkMessages:
    """The messages in the work queues. The first secret signs them. They expire at their tasks' deadlines."""

    def __init__(
        self,
        queues: WorkQueues,
        clock: Clock,
        secrets: Sequence[bytes],
        on_offer: Callable[[WorkQueue, timedelta], None],
    ) -> None:
        """``on_offer`` is called for each new message, with its queue and the time until it is visible."""
        self._queues = queues
        self._clock = clock
        self._secret = secrets[0]
        self._on_offer = on_offer

    def hold(self, task: Task, hold: Hold) -> MessageLease:
        """Hide a message for ``hold.run_id`` until ``hold.until``. Returns its new lease.

        Uses the leased message if its lease is still good, otherwise a new message. Safe to repeat, because a
        claim with a duplicate is refused.
        """
        now = self._clock.now()
        hidden_for = max(_NO_DELAY, hold.until - now)
        text = message_text(task.task_id, hold.run_id, self._secret)
        queue = task.work_queue
        if hold.lease:
            try:
                return self._queues.hide(queue, hold.lease, text, hidden_for)
            except LeaseLost:
                log.info("message-replaced", task_id=task.task_id, run_id=hold.run_id)
        return self._queues.put(queue, text, task.definition.deadline - now, hidden_for)

    def is_of_another(self, task: Task, lease: MessageLease) -> bool:
        """Whether storage shows that the leased message is about another task. Azure shows no text."""
        text = self._queues.text(task.work_queue, lease.message_id)
        if text is None:
            return False
        try:
            return read_message(text)[0] != task.task_id
        except ValueError:
            return True

    def apply_effect(self, task: Task, effect: Offer | DeleteMessage | None) -> None:
        """Apply a transition's effect on messages, once the task is stored. Safe to repeat."""
        match effect:
            case Offer(run_id, lease):
                self.offer(task, run_id, lease)
            case DeleteMessage(lease, queue):
                self.delete(queue, lease)

    def offer(
        self, task: Task, run_id: int, lease: MessageLease | None = None, delay: timedelta = _NO_DELAY
    ) -> None:
        """Make a message for this run visible after ``delay``: the leased message if possible, or a new one.

        Does nothing if the deadline comes first.
        """
        text = message_text(task.task_id, run_id, self._secret)
        queue = task.work_queue
        time_left = task.definition.deadline - self._clock.now()
        if whole_seconds(delay) >= math.floor(time_left / timedelta(seconds=1)):
            return
        if not (lease and self._hide(queue, lease, text, delay)):
            self._queues.put(queue, text, time_left, delay)
        self._on_offer(queue, delay)

    def delete(self, queue: WorkQueue, lease: MessageLease) -> None:
        """Delete the message if possible. If it stays, a claim with it is refused."""
        try:
            self._queues.remove(queue, lease)
        except (LeaseLost, ServiceUnavailable):
            log.info("message-not-removed", message_id=lease.message_id)

    def _hide(self, queue: WorkQueue, lease: MessageLease, text: str, delay: timedelta) -> bool:
        """Whether the lease was still good."""
        try:
            self._queues.hide(queue, lease, text, delay)
        except LeaseLost:
            return False
        return True
