"""Reads the pools: their tasks by priority, their messages, and who calls for them."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from legacy_queue.domain.call_statistics import Caller
from legacy_queue.domain.messages import Peeked
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.services.inspection.peeking import Peeking
from legacy_queue.services.pagination import Page, read_page
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.tasks.task_queues import TaskQueues
from legacy_queue.services.workers.recorded_calls import RecordedCalls
from legacy_queue.stores.open_tasks import OpenCount

_NO_TASKS: Mapping[str, tuple[OpenCount, OpenCount]] = dict.fromkeys(PRIORITIES, (OpenCount(), OpenCount()))


@dataclass(frozen=True)
class Pool:
    """A pool with its open tasks and its callers. The most recent caller comes first."""

    task_queue_id: str
    tasks: Mapping[str, tuple[OpenCount, OpenCount]]  # pending and running, by priority
    callers: Sequence[Caller]

    @property
    def pending(self) -> int:
        return sum(pending.count for pending, _ in self.tasks.values())

    @property
    def running(self) -> int:
        return sum(running.count for _, running in self.tasks.values())

    @property
    def oldest(self) -> datetime | None:
        """When the task that has waited longest became pending."""
        return min((pending.oldest for pending, _ in self.tasks.values() if pending.oldest), default=None)


@dataclass(frozen=True)
class InspectedPool(Pool):
    """A pool together with the messages in its queues."""

    policy: str
    queue: Peeked


class Pools:
    """Reads the pools that have unresolved tasks or callers."""

    def __init__(
        self, task_queues: TaskQueues, calls: RecordedCalls, peeking: Peeking, settings: ServiceSettings
    ) -> None:
        self._task_queues = task_queues
        self._calls = calls
        self._peeking = peeking
        self._settings = settings

    def overview(self) -> Sequence[Pool]:
        """Returns the pools that have unresolved tasks, or had callers in the last ten days, sorted by name.

        Reads no task and no message. Raises ServiceUnavailable.
        """
        open_counts = self._task_queues.open_counts()
        callers: dict[str, list[Caller]] = {}
        for caller in sorted(self._calls.callers(), key=lambda caller: caller.last_call, reverse=True):
            callers.setdefault(caller.task_queue_id, []).append(caller)
        tasks: dict[str, dict[str, tuple[OpenCount, OpenCount]]] = {}
        for (name, priority, state), count in open_counts.items():
            of_pool = tasks.setdefault(name, {**_NO_TASKS})
            pending, running = of_pool[priority]
            of_pool[priority] = (count, running) if state == "pending" else (pending, count)
        return [
            Pool(name, tasks.get(name, _NO_TASKS), callers.get(name, ()))
            for name in sorted({*callers, *tasks})
        ]

    def pool(self, task_queue_id: str) -> InspectedPool:
        """Returns the pool and the messages of its queues. Raises ServiceUnavailable."""
        pools = {pool.task_queue_id: pool for pool in self.overview()}
        return self._with_messages(pools.get(task_queue_id) or Pool(task_queue_id, _NO_TASKS, ()))

    def list(self, after: str, limit: int, render: Callable[[InspectedPool], bytes]) -> Page[str]:
        """Returns up to ``limit`` pools whose names come after ``after``. Raises ServiceUnavailable."""
        pools = {pool.task_queue_id: pool for pool in self.overview()}
        names = [*pools]

        def read(after: str, count: int) -> Sequence[str]:
            return names[bisect_right(names, after) :][:count]

        page = read_page(read, str, after, limit, lambda name: render(self._with_messages(pools[name])))
        return replace(page, total=len(names))

    def _with_messages(self, pool: Pool) -> InspectedPool:
        provisioner_id, worker_type = pool.task_queue_id.split("/")
        policy = self._settings.policy(provisioner_id, worker_type)
        queue = self._peeking.messages(provisioner_id, worker_type)
        return InspectedPool(**vars(pool), policy=policy, queue=queue)
