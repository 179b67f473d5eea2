"""Reads the facts about what a task waits for. ``explanation`` turns them into sentences."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from legacy_queue.domain.call_statistics import Caller
from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.messages import Peeked
from legacy_queue.domain.task import Run, Task
from legacy_queue.ports import Clock
from legacy_queue.services.inspection.explanation import Facts, Wait, explain
from legacy_queue.services.inspection.peeking import Peeking
from legacy_queue.services.service_settings import ServiceSettings
from legacy_queue.services.tasks.dependencies import Dependencies
from legacy_queue.services.tasks.lost_messages import LostMessages
from legacy_queue.services.tasks.tasks import Tasks
from legacy_queue.services.workers.recorded_calls import RecordedCalls

_MAX_WORKERS = 20  # for an explanation, the last task of so many workers is read


class WaitReasons:
    """Explains why a task is not running, or when its claim expires."""

    def __init__(
        self,
        tasks: Tasks,
        dependencies: Dependencies,
        lost_messages: LostMessages,
        calls: RecordedCalls,
        peeking: Peeking,
        clock: Clock,
        settings: ServiceSettings,
    ) -> None:
        self._tasks = tasks
        self._dependencies = dependencies
        self._lost_messages = lost_messages
        self._calls = calls
        self._peeking = peeking
        self._clock = clock
        self._settings = settings

    def of(self, task_id: str) -> tuple[Task, list[Wait]]:
        """Returns the task and what it waits for. Raises ResourceNotFound, ServiceUnavailable."""
        task = self._tasks.load(task_id)
        pool = task.work_queue.provisioner_id, task.work_queue.worker_type
        task_queue_id = task.work_queue.task_queue_id
        callers = self._calls.callers() if task.state == "pending" else []
        facts = Facts(
            now=self._clock.now(),
            required={} if task.runs else self._dependencies.states(task.waits_for),
            callers=callers,
            queue=self._peeking.messages(*pool) if task.state == "pending" else Peeked([], 0),
            messages_needed=self._lost_messages.messages_needed(task_queue_id),
            is_proof_required=self._settings.policy(*pool) == "required",
            last_runs=dict(self._last_runs(each for each in callers if each.task_queue_id == task_queue_id)),
            sees_polls=self._peeking.sees_polls,
        )
        return task, explain(task, facts)

    def _last_runs(self, callers: Iterable[Caller]) -> Iterator[tuple[str, tuple[str, Run]]]:
        """The last claimed task and run, by worker, for the workers that called most recently."""
        last_first = sorted(callers, key=lambda caller: caller.last_call, reverse=True)
        claims = [(each.name, each.worker.recent_claims[-1:]) for each in last_first if each.worker]
        claimed = [(name, last) for name, claim in claims for last in claim]
        for name, (task_id, run_id) in claimed[:_MAX_WORKERS]:
            with suppress(ResourceNotFound):
                yield name, (task_id, self._tasks.load(task_id).run(run_id))
