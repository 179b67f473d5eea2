"""Tasks, groups and work queues in this process's memory: no Node, nothing to install, nothing survives.

It makes the same promises as Azure to the services, and to workers through the gateway. A lock is held only
while values are changed, never while something is waited for, so threads and greenlets are the same to it.
"""

import base64
import itertools
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Lock

from legacy_queue.adapters.memory_queue import MemoryQueue, QueuedMessage, QueueNotFound
from legacy_queue.adapters.sas import signed_urls
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import (
    AlreadyExists,
    Changed,
    Clock,
    Group,
    GroupStore,
    SignedUrls,
    Storage,
    StoredTask,
    TaskStore,
    WorkQueues,
)


class MemoryTaskStore(TaskStore):
    def __init__(self) -> None:
        self._tasks: dict[str, StoredTask] = {}
        self._etags = map(str, itertools.count(1))
        self._lock = Lock()

    def load(self, task_id: str) -> StoredTask | None:
        return self._tasks.get(task_id)

    def insert(self, task: Task) -> StoredTask:
        with self._lock:
            if task.task_id in self._tasks:
                raise AlreadyExists
            return self._store(task)

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:
        with self._lock:
            now = self._tasks.get(task.task_id)
            if now is None or now.etag != stored.etag:
                raise Changed
            return self._store(task)

    def _store(self, task: Task) -> StoredTask:
        stored = self._tasks[task.task_id] = StoredTask(task, next(self._etags))
        return stored


class MemoryGroupStore(GroupStore):
    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._members: dict[str, set[str]] = {}
        self._lock = Lock()

    def join(self, task_id: str, task_group_id: str, scheduler_id: str, expires: datetime) -> Group:
        with self._lock:
            group = self._groups.get(task_group_id) or Group(task_group_id, scheduler_id, expires)
            if group.scheduler_id == scheduler_id:
                group = replace(group, expires=max(group.expires, expires))
                self._groups[task_group_id] = group
                self._members.setdefault(task_group_id, set()).add(task_id)
            return group


class MemoryWorkQueues(WorkQueues):
    """``receive`` and ``delete`` are what workers do through the gateway; the rest is the port."""

    def __init__(self, clock: Clock, queue_url: str, queue_prefix: str, account: str, key: str) -> None:
        self._clock, self._prefix = clock, queue_prefix
        self._queue_url, self._account, self._key = queue_url, account, key
        self._queues: dict[str, MemoryQueue] = {}
        self._lock = Lock()

    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        time_to_live = timedelta(seconds=expires_in // timedelta(seconds=1))
        with self._lock:
            now = self._clock.now()
            hidden_until = now + _rounded_up(hidden_for)
            return self._create(queue).put(text, now + time_to_live, hidden_until, now).lease

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        with self._lock:
            now = self._clock.now()
            messages = self._find(queue.name(self._prefix))
            return messages.update(lease, text, now + _rounded_up(hidden_for), now).lease

    def remove(self, queue: WorkQueue, lease: Lease) -> None:
        self.delete(queue.name(self._prefix), lease)

    def count(self, queue: WorkQueue) -> int:
        with self._lock:
            used = self._queues.get(queue.name(self._prefix))
            return used.count(self._clock.now()) if used else 0

    def signed_urls(
        self, queues: Sequence[WorkQueue], start: datetime, expiry: datetime, visibility: timedelta
    ) -> list[SignedUrls]:
        with self._lock:
            for queue in queues:
                self._create(queue)
        names = [queue.name(self._prefix) for queue in queues]
        endpoint = f"{self._queue_url}/{self._account}"
        return [
            signed_urls(endpoint, self._account, self._key, name, start, expiry, visibility) for name in names
        ]

    def receive(self, queue_name: str, count: int, visibility: timedelta) -> list[QueuedMessage]:
        """Up to ``count`` visible messages, invisible for so long from now; raises QueueNotFound."""
        with self._lock:
            now = self._clock.now()
            return self._find(queue_name).receive(count, now + visibility, now)

    def delete(self, queue_name: str, lease: Lease) -> None:
        """Delete the leased message; raises QueueNotFound, MessageNotFound or PopReceiptMismatch."""
        with self._lock:
            self._find(queue_name).delete(lease, self._clock.now())

    def _create(self, queue: WorkQueue) -> MemoryQueue:
        return self._queues.setdefault(queue.name(self._prefix), MemoryQueue())

    def _find(self, queue_name: str) -> MemoryQueue:
        try:
            return self._queues[queue_name]
        except KeyError:
            raise QueueNotFound from None


class MemoryStorage(Storage):
    """A storage account of its own, whose queues answer at ``<queue_url>/<account>``.

    The key that signs URLs is made for this process unless one is given.
    """

    tasks: MemoryTaskStore
    groups: MemoryGroupStore
    work_queues: MemoryWorkQueues

    def __init__(
        self,
        clock: Clock,
        queue_url: str,
        queue_prefix: str,
        account: str = "memorystore1",
        key: bytes | None = None,
    ) -> None:
        self.account = account
        self.key = secrets.token_bytes(64) if key is None else key
        queue_url = queue_url.rstrip("/")
        self.endpoints = {"queue": f"{queue_url}/{account}", "table": None, "blob": None}
        self.tasks = MemoryTaskStore()
        self.groups = MemoryGroupStore()
        self.work_queues = MemoryWorkQueues(
            clock, queue_url, queue_prefix, account, base64.b64encode(self.key).decode()
        )

    def check(self) -> None:
        """Memory always answers."""


def _rounded_up(duration: timedelta) -> timedelta:
    return timedelta(seconds=whole_seconds(duration))
