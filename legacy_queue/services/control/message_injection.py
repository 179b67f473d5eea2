"""Puts messages that a queue should not have: what a worker and claimTask must live with. For tests."""

import base64
from collections.abc import Mapping
from datetime import timedelta

from legacy_queue.domain.errors import InputError
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.services.tasks.tasks import Tasks
from legacy_queue.stores import WorkQueues

KINDS: Mapping[str, str] = {
    "poisoned": "no message of a task at all",
    "forged": "a message of a task, signed with another secret",
    "foreign": "a message of a task of another pool",
    "doubled": "another message of a task's last run",
}
_LIFE = timedelta(hours=1)
_NO_DELAY = timedelta(0)


class MessageInjection:
    """Messages are visible at once, and expire after an hour."""

    def __init__(self, queues: WorkQueues, tasks: Tasks, secret: bytes) -> None:
        self._queues = queues
        self._tasks = tasks
        self._secret = secret

    def put(self, kind: str, queue: WorkQueue, task_id: str | None) -> str:
        """Put a message of one of the KINDS in that queue; its messageId.

        Every kind but ``poisoned`` is of a task. Raises InputError, ResourceNotFound, ServiceUnavailable.
        """
        text = base64.b64encode(b"no message of a task").decode()
        if kind != "poisoned":
            text = self._text(kind, queue, task_id)
        elif task_id:
            raise InputError("a poisoned message is of no task: leave taskId out")
        return self._queues.put(queue, text, _LIFE, _NO_DELAY).message_id

    def _text(self, kind: str, queue: WorkQueue, task_id: str | None) -> str:
        if task_id is None:
            raise InputError(f"a {kind} message is of a task: taskId is missing")
        task = self._tasks.load(task_id)
        own = task.work_queue.task_queue_id
        if (own == queue.task_queue_id) is (kind == "foreign"):
            other = "another pool" if kind == "foreign" else f"the queue of {own}"
            raise InputError(f"a {kind} message of {task_id} goes to {other}, not to {queue.task_queue_id}")
        secret = b"not the server's" if kind == "forged" else self._secret
        return message_text(task_id, max(0, len(task.runs) - 1), secret)
