"""Endpoints about the pending and claimed tasks of pools, which are called task queues since 2020."""

import re
from collections.abc import Callable
from functools import partial

from legacy_queue.domain.errors import InvalidRequestArguments
from legacy_queue.domain.ids import TASK_ID, TODAYS_TASK_QUEUE_ID
from legacy_queue.domain.scopes import AllOf, ForEach
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import PoolPath, WorkerRecord
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.paging import PAGED, page_answer, path_page_answer
from legacy_queue.http.parameters import in_words

_QUEUES = "/task-queues"
_QUEUE = f"{_QUEUES}/<taskQueueId>"
_POOL = "<provisionerId>/<workerType>"
_COUNTS = ("queue:pending-count:<taskQueueId>", "queue:claimed-count:<taskQueueId>")
_PLACE = rf"[0-9TZ:.-]{{24}}/{TASK_ID}"

_getting = partial(endpoint, "GET")
_listing = partial(endpoint, "GET", query=PAGED)


@_getting(
    f"/pending/{_POOL}",
    "Get Number of Pending Tasks",
    scopes=f"queue:pending-count:{_POOL}",
    output="pending-tasks-response",
    task_queue_route="/pending/<taskQueueId>",
)
def pending_tasks(call: Call) -> Reply:
    """Count the pending tasks of a pool.

    The count includes changes by this server process at once, and changes by other processes within 2 s. If
    storage takes longer than half a second to count, it may take longer.
    """
    task_queue_id = call.params.get("taskQueueId")
    if call.is_todays and task_queue_id and not re.fullmatch(TODAYS_TASK_QUEUE_ID, task_queue_id):
        raise InvalidRequestArguments(
            f"taskQueueId is {task_queue_id!r}: today's clients must name {in_words(TODAYS_TASK_QUEUE_ID)}"
        )
    wire = _counts(call, ["/".join(call.pool)])[0]
    del wire["claimedTasks"]
    return wire


@_getting(
    f"{_QUEUE}/counts",
    "Get Number of Pending and Claimed Tasks",
    scopes=AllOf(_COUNTS),
    output="task-queue-counts-response",
)
def task_queue_counts(call: Call) -> Reply:
    """Count the pending and the claimed tasks of a pool, as exactly as pendingTasks."""
    return _counts(call, [call.params["taskQueueId"]])[0]


@endpoint(
    "POST",
    f"{_QUEUES}/counts",
    "Get Pending and Claimed Task Counts for Multiple Task Queues",
    scopes=AllOf(tuple(ForEach("taskQueueId", "taskQueueIds", scope) for scope in _COUNTS)),
    input="task-queue-counts-request",
    output="task-queue-counts-list-response",
    stability="experimental",
)
def task_queue_counts_batch(call: Call) -> Reply:
    """Count the pending and the claimed tasks of up to 1,000 pools, in the order of the request."""
    return {"taskQueueCounts": _counts(call, call.body["taskQueueIds"])}


@_listing(
    f"{_QUEUE}/pending",
    "List Pending Tasks",
    scopes="queue:pending-list:<taskQueueId>",
    output="list-pending-tasks-response",
    stability="experimental",
)
def list_pending_tasks(call: Call) -> Reply:
    """List the pending tasks of a pool, in pages like listTaskGroup. They stay pending.

    The task that has waited longest comes first, whatever its priority.
    """
    return _tasks(call, "pending", _pending)


@_listing(
    f"{_QUEUE}/claimed",
    "List claimed Tasks",
    scopes="queue:claimed-list:<taskQueueId>",
    output="list-claimed-tasks-response",
    stability="experimental",
)
def list_claimed_tasks(call: Call) -> Reply:
    """List the claimed tasks of a pool, in pages like listTaskGroup. The oldest claim comes first."""
    return _tasks(call, "running", _claimed)


@_listing(
    _QUEUES,
    "Get a list of all active task queues",
    scopes="queue:list-task-queues",
    output="list-taskqueues-response",
)
def list_task_queues(call: Call) -> Reply:
    """List the known pools of all provisioners, in pages like listProvisioners."""
    return path_page_answer(call, "taskQueues", 2, call.authorize().services.workers.task_queues, _described)


@_getting(
    _QUEUE,
    "Get a task queue",
    scopes="queue:get-task-queue:<taskQueueId>",
    output="taskqueue-response",
)
def get_task_queue(call: Call) -> Reply:
    """Get the record of a pool, as getWorkerType does, but without its actions."""
    return _described(call.authorize().services.workers.load(PoolPath(*call.pool)))


def _described(record: WorkerRecord) -> dict[str, str]:
    wire = record.to_wire()
    names = ("taskQueueId", "description", "stability", "expires", "lastDateActive")
    return {name: wire[name] for name in names}


def _counts(call: Call, task_queue_ids: list[str]) -> list[dict[str, str | int]]:
    site = call.authorize(taskQueueIds=task_queue_ids)
    counts = site.services.task_queues.counts(task_queue_ids)
    return [
        {
            **dict(zip(("provisionerId", "workerType"), task_queue_id.split("/"), strict=True)),
            "taskQueueId": task_queue_id,
            "pendingTasks": pending,
            "claimedTasks": claimed,
        }
        for task_queue_id, (pending, claimed) in zip(task_queue_ids, counts, strict=True)
    ]


def _tasks(call: Call, state: str, to_wire: Callable[[Task], Reply]) -> Reply:
    ask = partial(call.authorize().services.task_queues.tasks, call.params["taskQueueId"], state)
    return page_answer(call, "tasks", _PLACE, ask, to_wire)


def _pending(task: Task) -> Reply:
    return {
        "taskId": task.task_id,
        "runId": len(task.runs) - 1,
        "inserted": format_time(task.since),
        "task": task.wire,
    }


def _claimed(task: Task) -> Reply:
    run = task.runs[-1].wire
    worker = {name: run[name] for name in ("runId", "workerGroup", "workerId")}
    return {"taskId": task.task_id, **worker, "claimed": format_time(task.since), "task": task.wire}
