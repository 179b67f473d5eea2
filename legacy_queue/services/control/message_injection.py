"""Puts messages that should not be there into a queue, so that tests can see how workers handle them."""

import base64
from collections.abc import Mapping
from datetime import timedelta

from legacy_queue.domain.errors import InputError
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.services.tasks.tasks import Tasks
from legacy_queue.stores import WorkQueues

KINDS: Mapping[str, str] = {
    "poisoned": "not a message about a task at all",
    "forged": "a message about a task, signed with another secret",
    "foreign": "a message about a task of another pool",
    "doubled": "a second message about a task's last run",
}
_LIFE = timedelta(hours=1)
_NO_DELAY = timedelta(0)


class MessageInjection:
    """Puts messages that are visible at once and expire after an hour."""

    def __init__(self, queues: WorkQueues, tasks: Tasks, secret: bytes) -> None:
        self._queues = queues
        self._tasks = tasks
        self._secret = secret

    def put(self, kind: str, queue: WorkQueue, task_id: str | None) -> str:
        """Put a message of one of the KINDS into that queue. Returns its messageId.

        Every kind except ``poisoned`` needs a task. Raises InputError, ResourceNotFound, ServiceUnavailable.
        """
        text = base64.b64encode(b"no message of a task").decode()
        if kind != "poisoned":
            text = self._text(kind, queue, task_id)
        elif task_id:
            raise InputError("taskId: a poisoned message is not about a task, so leave taskId out")
        return self._queues.put(queue, text, _LIFE, _NO_DELAY).message_id

    def _text(self, kind: str, queue: WorkQueue, task_id: str | None) -> str:
        if task_id is None:
            raise InputError(f"taskId: a {kind} message is about a task, so give its taskId")
        task = self._tasks.load(task_id)
        own = task.work_queue.task_queue_id
        if (own == queue.task_queue_id) is (kind == "foreign"):
            other = "another pool" if kind == "foreign" else f"the queue of {own}"
            raise InputError(f"a {kind} message of {task_id} goes to {other}, not to {queue.task_queue_id}")
        secret = b"not the server's" if kind == "forged" else self._secret
        return message_text(task_id, max(0, len(task.runs) - 1), secret)
