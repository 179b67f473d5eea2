"""What the queue is doing and why, for a person: read from what is stored. Nothing is recorded for it."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.messages import Peeked
from legacy_queue.domain.priority import PRIORITIES
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import RecordPath, WorkerRecord
from legacy_queue.ports import Clock
from legacy_queue.services.events.event_buffer import EventBuffer
from legacy_queue.services.inspection.explanation import Facts, Wait, explain
from legacy_queue.services.inspection.peeking import Peeking
from legacy_queue.services.inspection.story import Moment, story
from legacy_queue.services.pages import Page, read_page
from legacy_queue.services.tasks.claims import Claims
from legacy_queue.services.tasks.dependencies import Dependencies
from legacy_queue.services.tasks.lost_messages import LostMessages
from legacy_queue.services.tasks.task_queues import TaskQueues
from legacy_queue.services.tasks.tasks import Tasks
from legacy_queue.services.workers.workers import Workers
from legacy_queue.stores.open_tasks import OpenCount

_NO_TASKS: Mapping[str, tuple[OpenCount, OpenCount]] = dict.fromkeys(PRIORITIES, (OpenCount(), OpenCount()))
_MAX_CLOCK_MOVES = 1000  # in memory
_MAX_WORKERS = 20  # whose last task is read for an explanation


@dataclass(frozen=True)
class Pool:
    """A pool: its tasks by priority and state, and who has called for it, the last first."""

    task_queue_id: str
    tasks: Mapping[str, tuple[OpenCount, OpenCount]]  # pending and running, by priority
    callers: Sequence[WorkerRecord]

    @property
    def pending(self) -> int:
        return sum(pending.count for pending, _ in self.tasks.values())

    @property
    def running(self) -> int:
        return sum(running.count for _, running in self.tasks.values())

    @property
    def oldest(self) -> datetime | None:
        """Since when the task is pending that has been so for longest."""
        return min((pending.oldest for pending, _ in self.tasks.values() if pending.oldest), default=None)


@dataclass(frozen=True)
class InspectedPool(Pool):
    """A pool with its messages."""

    policy: str
    queue: Peeked


class Inspection:
    """Reads for the page, the commands and the reports of tests. ``clock_moves`` are the last ones."""

    def __init__(
        self,
        tasks: Tasks,
        dependencies: Dependencies,
        task_queues: TaskQueues,
        lost_messages: LostMessages,
        workers: Workers,
        claims: Claims,
        peeking: Peeking,
        clock: Clock,
        event_buffer: EventBuffer,
    ) -> None:
        self._tasks = tasks
        self._dependencies = dependencies
        self._task_queues = task_queues
        self._lost_messages = lost_messages
        self._workers = workers
        self._claims = claims
        self._peeking = peeking
        self._clock = clock
        self._event_buffer = event_buffer
        self.clock_moves: deque[Moment] = deque(maxlen=_MAX_CLOCK_MOVES)

    def record_clock_move(self, begin: datetime, what: str, moved_to: datetime, is_frozen: bool) -> None:
        """Keep one of the last moves of the clock, for the stories of the tasks that lived then."""
        facts = {"movedTo": format_time(moved_to), "frozen": is_frozen}
        self.clock_moves.append(Moment(format_time(begin), what, "clock", facts))

    def story(self, task: Task, requests: Iterable[Mapping[str, Any]] | None) -> list[Moment]:
        """What happened to the task. ``requests`` are those of it in the journal, if there is one.

        Its events are those that this process has published since its start, and still has in memory.
        """
        kept = self._event_buffer.of_task(task.task_id)
        events = [Moment(format_time(event.time), f"{event.exchange} published", "event") for event in kept]
        sees_polls = requests is not None and self.sees_polls
        return story(task, requests or (), events, [*self.clock_moves], sees_polls=sees_polls)

    @property
    def sees_polls(self) -> bool:
        """Whether workers poll this server, and not Azure."""
        return self._peeking.sees_polls

    def explain(self, task_id: str) -> tuple[Task, list[Wait]]:
        """The task, and what it waits for. Raises ResourceNotFound, ServiceUnavailable."""
        task = self._tasks.load(task_id)
        pool = task.work_queue.provisioner_id, task.work_queue.worker_type
        callers = self._workers.callers() if task.state == "pending" else []
        facts = Facts(
            now=self._clock.now(),
            required={} if task.runs else self._dependencies.states(task.waits_for),
            callers=callers,
            queue=self._peeking.messages(*pool) if task.state == "pending" else Peeked([], 0),
            messages_needed=self._lost_messages.messages_needed(task.work_queue.task_queue_id),
            is_proof_required=self._claims.policy(*pool) == "required",
            last_runs=dict(self._last_runs([record for record in callers if record.path[:2] == pool])),
            sees_polls=self.sees_polls,
        )
        return task, explain(task, facts)

    def _last_runs(self, callers: Sequence[WorkerRecord]) -> Iterator[tuple[RecordPath, tuple[str, Run]]]:
        """Of the workers that called last."""
        claimed = sorted(
            (record for record in callers if record.recent_claims), key=lambda record: record.last_call
        )
        for record in claimed[-_MAX_WORKERS:]:
            task_id, run_id = record.recent_claims[-1]
            with suppress(ResourceNotFound):
                yield record.path, (task_id, self._tasks.load(task_id).run(run_id))

    def overview(self) -> Sequence[Pool]:
        """The pools with unresolved tasks, or with callers in the last ten days, by their names.

        Reads no task and no message. Raises ServiceUnavailable.
        """
        open_counts = self._task_queues.open_counts()
        callers: dict[str, list[WorkerRecord]] = {}
        for record in sorted(self._workers.callers(), key=lambda record: record.last_call, reverse=True):
            callers.setdefault("/".join(record.path[:2]), []).append(record)
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
        """The pool with the messages of its queues. Raises ServiceUnavailable."""
        pools = {pool.task_queue_id: pool for pool in self.overview()}
        return self._with_messages(pools.get(task_queue_id) or Pool(task_queue_id, _NO_TASKS, ()))

    def pools(self, after: str, limit: int, render: Callable[[InspectedPool], bytes]) -> Page[str]:
        """Up to ``limit`` pools of ``overview`` behind the name ``after``.

        Raises ServiceUnavailable.
        """
        pools = {pool.task_queue_id: pool for pool in self.overview()}
        names = [*pools]

        def read(after: str, count: int) -> Sequence[str]:
            return names[bisect_right(names, after) :][:count]

        page = read_page(read, str, after, limit, lambda name: render(self._with_messages(pools[name])))
        return replace(page, total=len(names))

    def _with_messages(self, pool: Pool) -> InspectedPool:
        provisioner_id, worker_type = pool.task_queue_id.split("/")
        policy = self._claims.policy(provisioner_id, worker_type)
        queue = self._peeking.messages(provisioner_id, worker_type)
        return InspectedPool(**vars(pool), policy=policy, queue=queue)
