"""How much there is to do, counted no more often than is worth it."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock

from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.ports import Clock
from legacy_queue.services.together import for_each
from legacy_queue.stores import TaskStore, WorkQueues
from legacy_queue.stores.recent import Recent

KNOWN_FOR = timedelta(seconds=2)  # the original's 20 s start machines for work that others have done
MOST_KNOWN = 1000  # worker types


@dataclass(eq=False)
class _Count:
    """``added``: messages that this process has put since they were counted, less those it has removed."""

    begun: datetime
    added: int = 0
    messages: "Future[int]" = field(default_factory=Future)


class PendingCounts:
    """One count for all callers that ask about a worker type within 2 s, and what this process did since."""

    def __init__(self, queues: WorkQueues, tasks: TaskStore, clock: Clock) -> None:
        self._queues, self._tasks, self._clock = queues, tasks, clock
        self._counts: Recent[tuple[str, str], _Count] = Recent(MOST_KNOWN)
        self._lock = Lock()

    def count(self, provisioner_id: str, worker_type: str) -> int:
        """How many tasks of the worker type are pending: exact where the task store knows it.

        Elsewhere how many messages its queues have held within the last 2 s, visible or not, held and doubled
        ones too: an upper bound that is never older than what this process did. Raises ServiceUnavailable,
        also for the callers that share the count; the next call counts again.
        Source: docs/explanation/http-contract.md#claims.
        """
        pool = provisioner_id, worker_type
        pending = self._tasks.pending(*pool)
        if pending is not None:
            return pending
        with self._lock:
            now, count = self._clock.now(), self._counts.get(pool)
            is_known = count is not None and timedelta(0) <= now - count.begun < KNOWN_FOR
            if count is None or not is_known:
                count = _Count(now)
                self._counts.put(pool, count)
        if not is_known:
            self._finish(pool, count)
        return max(0, count.messages.result() + count.added)

    def changed(self, queue: WorkQueue, added: int) -> None:
        """Adjust the count for a message that was put (1) or removed (-1). Costs no storage operation."""
        pool = queue.provisioner_id, queue.worker_type
        with self._lock:
            count = self._counts.get(pool)
            if count and count.messages.done():
                count.added += added
            elif count:  # the message may be counted or not: the next call counts again
                self._counts.forget(pool)

    def _finish(self, pool: tuple[str, str], count: _Count) -> None:
        try:
            count.messages.set_result(sum(for_each(self._queues.count, work_queues(*pool))))
        except BaseException as error:  # also when the thread is being ended: others wait
            with self._lock:
                if self._counts.get(pool) is count:
                    self._counts.forget(pool)
            count.messages.set_exception(error)
            raise
