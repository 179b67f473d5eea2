"""Reads the messages in the queues of a pool without receiving them."""

from collections.abc import Iterator
from datetime import timedelta

from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.messages import Peeked, PeekedMessage, read_message
from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import MAX_COUNT, QueuedMessage
from legacy_queue.stores import WorkQueues


class Peeking:
    """Shows messages without changing them."""

    def __init__(self, queues: WorkQueues, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock

    @property
    def sees_polls(self) -> bool:
        """Whether workers poll this server, not Azure."""
        return self._queues.sees_polls

    def messages(self, provisioner_id: str, worker_type: str) -> Peeked:
        """Returns the messages of all priorities. Raises ServiceUnavailable."""
        queues = work_queues(provisioner_id, worker_type)
        shown = [[*self._peek(queue)] for queue in queues]
        messages = [message for of_queue in shown for message in of_queue]
        count = sum(map(self._queues.count, queues))
        # a queue that shows MAX_COUNT messages may have more, which storage neither shows nor counts
        may_be_cut = any(len(of_queue) >= MAX_COUNT for of_queue in shown)
        return Peeked(messages, max(int(may_be_cut), count - len(messages)))

    def _peek(self, queue: WorkQueue) -> Iterator[PeekedMessage]:
        for message in self._queues.peek(queue):
            next_visible = message.next_visible
            visible_in = next_visible - self._clock.now() if next_visible else timedelta(0)
            yield PeekedMessage(
                message.lease.message_id,
                run_of(message),
                queue.priority,
                max(timedelta(0), visible_in),
                message.dequeue_count,
                message.inserted,
            )


def run_of(message: QueuedMessage) -> RunKey | None:
    """Returns taskId and runId of a work message, else None. Does not verify the signature."""
    try:
        task_id, run_id, _ = read_message(message.text)
    except ValueError:
        return None
    return task_id, run_id
