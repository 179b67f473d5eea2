"""Finds pending runs that have lost their message.

If storage shows its messages, each message is looked for. Otherwise only the number of messages of a whole
pool can show that some are missing.
"""

from array import array
from collections.abc import Iterator, MutableSequence, Sequence
from datetime import datetime

from legacy_queue.cooperation import yielding
from legacy_queue.domain.due import FIRST_LOOK
from legacy_queue.domain.messages import lacks_messages, read_message, signature_is_valid
from legacy_queue.domain.priority import work_queues
from legacy_queue.domain.task import Task
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import MAX_COUNT
from legacy_queue.services.tasks.task_queues import TaskQueues
from legacy_queue.stores import WorkQueues

_YIELD_AFTER = 250  # messages, of which each takes 10 µs
_AHEAD = 3  # a claim may leave a message for one or two runs ahead: see ``transitions.claim``
# How long a reading is used. A run that has been pending for FIRST_LOOK had its message before the reading.
_MAX_AGE = FIRST_LOOK / 2
_PARTS = 4096  # parts of the hashes, because each look-up searches a part from its beginning
_ANY = ""  # stands for any queue: the run was offered after the reading

_Message = tuple[str, int, str]  # taskId and runId in a message, and the name of its queue


class LostMessages:
    """Finds lost messages. It keeps a hash of each message in memory: 8 bytes."""

    def __init__(
        self, queues: WorkQueues, task_queues: TaskQueues, secrets: Sequence[bytes], clock: Clock
    ) -> None:
        self._queues = queues
        self._task_queues = task_queues
        self._secrets = secrets
        self._clock = clock
        self._began: datetime | None = None  # when the messages were read
        self._lacking: dict[str, bool] = {}  # by taskQueueId
        self._hashes: Sequence[MutableSequence[int]] = []  # of messages

    def has_none(self, task: Task) -> bool:
        """Whether a run that has been pending for ``FIRST_LOOK`` may have no message.

        Then the caller must offer it and call ``note_offer``. Raises ServiceUnavailable.
        """
        now = self._clock.now()
        if self._began is None or abs(now - self._began) > _MAX_AGE:
            self._read()
            self._began = now
        first = len(task.runs) - 1
        if self._has((task.task_id, first, _ANY)):
            return False
        if not self._queues.shows_messages:
            return self._is_lacking(task)
        name = self._queues.name(task.work_queue)
        return not any(self._has((task.task_id, run_id, name)) for run_id in range(first, first + _AHEAD))

    def note_offer(self, task: Task) -> None:
        """Record that the pending run has a message now, so that the sweep does not offer it again."""
        self._add((task.task_id, len(task.runs) - 1, _ANY))

    def messages_needed(self, task_queue_id: str) -> int | None:
        """Returns how many tasks need a message, or None if storage shows each message."""
        return None if self._queues.shows_messages else self._task_queues.messages_needed(task_queue_id)

    def _is_lacking(self, task: Task) -> bool:
        """Whether the task's pool has fewer messages than tasks that need one."""
        queue = task.work_queue
        task_queue_id = queue.task_queue_id
        if task_queue_id not in self._lacking:
            queues = work_queues(queue.provisioner_id, queue.worker_type)
            needed = self._task_queues.messages_needed(task_queue_id)
            messages = sum(map(self._queues.count, queues))
            self._lacking[task_queue_id] = lacks_messages(min(needed, MAX_COUNT), messages)
        return self._lacking[task_queue_id]

    def _read(self) -> None:
        self._lacking = {}
        self._hashes = [array("q") for _ in range(_PARTS)]
        for message in self._messages():
            self._add(message)

    def _add(self, message: _Message) -> None:
        number = hash(message)
        self._hashes[number % _PARTS].append(number)

    def _has(self, message: _Message) -> bool:
        number = hash(message)
        return number in self._hashes[number % _PARTS]

    def _messages(self) -> Iterator[_Message]:
        for name, text in yielding(self._queues.texts(), _YIELD_AFTER):
            try:
                task_id, run_id, signature = read_message(text)
            except ValueError:
                continue
            if signature_is_valid(signature, task_id, run_id, self._secrets):
                yield task_id, run_id, name
