"""Which pending runs have no message.

Where storage shows its messages, each is looked for. Elsewhere only their number can tell, for a whole pool.
"""

import heapq
from collections.abc import Iterator, Sequence

from legacy_queue.domain.messages import lacks_messages, read_message, signature_is_valid
from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.task import Task
from legacy_queue.ports.queue import MAX_COUNT
from legacy_queue.services.tasks.task_queues import TaskQueues
from legacy_queue.stores import WorkQueues
from legacy_queue.stores.rows import yielding

_YIELD_AFTER = 250  # messages: each takes 10 µs
_AHEAD = 3  # a message of the run, or of one or two after it, which a claim left: see ``transitions.claim``

_Message = tuple[str, int, str]  # the taskId and run that it is for, and the name of its queue


class LostMessages:
    """Looks at tasks in the order of their ids: ``begin_pass``, then each task.

    It keeps up to ``max_kept`` messages in memory: those of the tasks that come next.
    """

    def __init__(
        self,
        queues: WorkQueues,
        task_queues: TaskQueues,
        secrets: Sequence[bytes],
        max_kept: int = 50_000,
    ) -> None:
        self._queues = queues
        self._task_queues = task_queues
        self._secrets = secrets
        self._max_kept = max_kept
        self.begin_pass()

    def begin_pass(self) -> None:
        """Forget what was read for the pass before."""
        self._lacking: dict[str, bool] = {}  # by taskQueueId
        self._kept: set[_Message] = set()
        # the messages of the taskIds from the first on, up to but not with the end, are kept; "" for no end
        self._first = ""
        self._end: str | None = None

    def has_none(self, task: Task) -> bool:
        """Whether the pending run of the task may have no message. Raises ServiceUnavailable."""
        if not self._queues.shows_messages:
            return self._is_lacking(task)
        if self._end is None or task.task_id < self._first or (self._end and self._end <= task.task_id):
            self._read(task.task_id)
        names = self._queues.names(task.work_queue)
        first = len(task.runs) - 1
        wanted = {(task.task_id, run_id, name) for run_id in range(first, first + _AHEAD) for name in names}
        return wanted.isdisjoint(self._kept)

    def messages_needed(self, task_queue_id: str) -> int | None:
        """How many tasks need a message; None where it is not their number that tells."""
        return None if self._queues.shows_messages else self._task_queues.messages_needed(task_queue_id)

    def _is_lacking(self, task: Task) -> bool:
        """Whether the task's pool has fewer messages than tasks that need one."""
        queue = task.work_queue
        task_queue_id = queue.task_queue_id
        if task_queue_id not in self._lacking:
            queues = work_queues(queue.provisioner_id, queue.worker_type, self._queues.shards)
            needed = self._task_queues.messages_needed(task_queue_id)
            messages = sum(map(self._queues.count, queues))
            self._lacking[task_queue_id] = lacks_messages(min(needed, MAX_COUNT), messages)
        return self._lacking[task_queue_id]

    def _read(self, first: str) -> None:
        """Keep the messages of the tasks from ``first`` on."""
        kept = heapq.nsmallest(self._max_kept, self._messages(first))
        self._kept = set(kept)
        self._first = first
        self._end = kept[-1][0] if len(kept) == self._max_kept else ""

    def _messages(self, first: str) -> Iterator[_Message]:
        for name, text in yielding(self._queues.texts(), _YIELD_AFTER):
            try:
                task_id, run_id, signature = read_message(text)
            except ValueError:
                continue
            if first <= task_id and signature_is_valid(signature, task_id, run_id, self._secrets):
                yield task_id, run_id, name
