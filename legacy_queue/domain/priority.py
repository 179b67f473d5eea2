"""Priorities, highest first, and the work queues of each.

Source: docs/explanation/protocols.md#work-queues.
"""

import base64
import hashlib
import string
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

PRIORITIES = ("highest", "very-high", "high", "medium", "low", "very-low", "lowest")
MAX_SHARDS = 4
_RANKS = string.digits[1:] + string.ascii_lowercase  # a character each: a name has room for no more


def at_least(priority: str) -> tuple[str, ...]:
    """The priority itself and all above it, highest first."""
    return PRIORITIES[: PRIORITIES.index(priority) + 1]


def direction(old: str, new: str) -> str:
    """``raise``, ``lower``, or "" for the same priority."""
    if old == new:
        return ""
    return "raise" if new in at_least(old) else "lower"


@dataclass(frozen=True)
class WorkQueue:
    """A queue of the messages for a pool and a priority: one of some shards."""

    provisioner_id: str
    worker_type: str
    priority: str
    shard: int = 0

    @property
    def task_queue_id(self) -> str:
        """``<provisionerId>/<workerType>``."""
        return f"{self.provisioner_id}/{self.worker_type}"

    def name(self, prefix: str) -> str:
        """``<prefix>-<24 characters>-<24 characters>-<1..7>``: a valid Azure queue name for any ids.

        Further shards have 8, 9 and letters in place of the number.
        """
        ids = f"{_short_hash(self.provisioner_id)}-{_short_hash(self.worker_type)}"
        rank = len(PRIORITIES) - PRIORITIES.index(self.priority)
        return f"{prefix}-{ids}-{_RANKS[len(PRIORITIES) * self.shard + rank - 1]}"

    def sharded(self, task_id: str, shards: int) -> "WorkQueue":
        """The shard of that task."""
        shard = zlib.crc32(task_id.encode()) % shards
        return self if shard == self.shard else replace(self, shard=shard)


def work_queues(provisioner_id: str, worker_type: str, shards: int = 1) -> tuple[WorkQueue, ...]:
    """The queues of a pool, seven for each shard, in the order in which they are polled."""
    return tuple(
        WorkQueue(provisioner_id, worker_type, priority, shard)
        for priority in PRIORITIES
        for shard in range(shards)
    )


def rotated(queues: Sequence[WorkQueue], turn: int) -> Sequence[WorkQueue]:
    """The queues in the order of a poll: by priority, each time another shard first."""
    shards = len(queues) // len(PRIORITIES)
    return sorted(queues, key=lambda queue: (PRIORITIES.index(queue.priority), (queue.shard + turn) % shards))


@lru_cache(10_000)
def _short_hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:15]).decode().lower()
