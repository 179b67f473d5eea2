"""The signed messages of a task's runs: offered, held, released, withdrawn."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.messages import MessageLease, message_text
from legacy_queue.domain.outcome import DeleteMessage, Hold, Offer
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import Clock, LeaseLost
from legacy_queue.stores import ReceivedMessage, WorkQueues

log = structlog.get_logger()

_AT_ONCE = timedelta(0)


class WorkMessages:
    """Signs with the first of the secrets. No message outlives its task's deadline.

    ``offered`` is called with each queue in which a message has become visible.
    """

    def __init__(self, queues: WorkQueues, clock: Clock, secrets: Sequence[bytes]) -> None:
        self._queues, self._clock, self._secret = queues, clock, secrets[0]
        self.offered: Callable[[WorkQueue], None] = lambda _queue: None

    def hold(self, task: Task, hold: Hold) -> MessageLease:
        """The message for ``hold.run_id`` is invisible until then; its new lease.

        The leased message is used while the lease is good, else a fresh one. Safe to repeat: a double is
        refused when it is claimed.
        """
        hidden_for = max(_AT_ONCE, hold.until - self._clock.now())
        text = message_text(task.task_id, hold.run_id, self._secret)
        queue = task.work_queue
        if hold.lease:
            try:
                return self._queues.hide(queue, hold.lease, text, hidden_for)
            except LeaseLost:
                log.info("message-replaced", task_id=task.task_id, run_id=hold.run_id)
        return self._queues.put(queue, text, self._time_left(task), hidden_for)

    def settle(self, task: Task, after: Offer | DeleteMessage | None) -> None:
        """Do what a transition left to be done once the task is stored. Repeating it is safe."""
        match after:
            case Offer(run_id, lease):
                self.offer(task, run_id, lease)
            case DeleteMessage(lease, queue):
                self.drop(queue, lease)

    def offer(
        self, task: Task, run_id: int, lease: MessageLease | None = None, delay: timedelta = _AT_ONCE
    ) -> None:
        """A message for this run becomes visible after ``delay``: the leased one, or else a fresh one.

        None does where the deadline, and with it the message's own end, comes first.
        """
        text = message_text(task.task_id, run_id, self._secret)
        queue = task.work_queue
        if whole_seconds(delay) >= math.floor(self._time_left(task) / timedelta(seconds=1)):
            return
        if not (lease and self._hidden(queue, lease, text, delay)):
            self._queues.put(queue, text, self._time_left(task), delay)
        if delay <= _AT_ONCE:
            self.offered(queue)

    def put_back(self, queue: WorkQueue, message: ReceivedMessage, delay: timedelta = _AT_ONCE) -> None:
        """A polled message is visible again after ``delay``; where that fails, at the end of its lease."""
        with suppress(ServiceUnavailable):
            if self._hidden(queue, message.lease, message.text, delay) and delay <= _AT_ONCE:
                self.offered(queue)

    def drop(self, queue: WorkQueue, lease: MessageLease) -> None:
        """Delete the message if that can be done: one that stays is refused when it is claimed."""
        try:
            self._queues.remove(queue, lease)
        except (LeaseLost, ServiceUnavailable):
            log.info("message-not-removed", message_id=lease.message_id)

    def _hidden(self, queue: WorkQueue, lease: MessageLease, text: str, delay: timedelta) -> bool:
        """Whether the lease was good for it."""
        try:
            self._queues.hide(queue, lease, text, delay)
        except LeaseLost:
            return False
        return True

    def _time_left(self, task: Task) -> timedelta:
        return task.definition.deadline - self._clock.now()
