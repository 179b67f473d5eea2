"""The priorities, highest first, and the work queue of a pool for each of them.

Source: docs/explanation/protocols.md#work-queues.
"""

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache

PRIORITIES = ("highest", "very-high", "high", "medium", "low", "very-low", "lowest")


def at_least(priority: str) -> tuple[str, ...]:
    """Returns this priority and all higher ones, highest first."""
    return PRIORITIES[: PRIORITIES.index(priority) + 1]


def direction(old: str, new: str) -> str:
    """``raise``, ``lower``, or "" for the same priority."""
    if old == new:
        return ""
    return "raise" if new in at_least(old) else "lower"


@dataclass(frozen=True)
class WorkQueue:
    """The queue that has the messages of one pool and one priority."""

    provisioner_id: str
    worker_type: str
    priority: str

    @property
    def task_queue_id(self) -> str:
        """``<provisionerId>/<workerType>``."""
        return f"{self.provisioner_id}/{self.worker_type}"

    def name(self, prefix: str) -> str:
        """``<prefix>-<24 characters>-<24 characters>-<1..7>``: a valid Azure queue name for any ids."""
        ids = f"{_short_hash(self.provisioner_id)}-{_short_hash(self.worker_type)}"
        rank = len(PRIORITIES) - PRIORITIES.index(self.priority)
        return f"{prefix}-{ids}-{rank}"


def work_queues(provisioner_id: str, worker_type: str) -> tuple[WorkQueue, ...]:
    """The seven queues of a pool, in the order in which they are polled."""
    return tuple(WorkQueue(provisioner_id, worker_type, priority) for priority in PRIORITIES)


@lru_cache(10_000)
def _short_hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:15]).decode().lower()
