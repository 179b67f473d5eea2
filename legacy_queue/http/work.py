"""Endpoints that tell workers and provisioners where work is. Source: "Methods" in design/api.md."""

from collections.abc import Mapping
from typing import Any

from legacy_queue.domain.scopes import AllOf, AnyOf
from legacy_queue.domain.task import Worker
from legacy_queue.http.connection import hung_up
from legacy_queue.http.endpoint import Call, endpoint

_POOL = "<provisionerId>/<workerType>"


@endpoint(
    "pollTaskUrls",
    "GET",
    f"/poll-task-url/{_POOL}",
    "Get Urls to Poll Pending Tasks",
    scopes=AnyOf(
        (
            f"queue:poll-task-urls:{_POOL}",
            AllOf(("queue:poll-task-urls", f"assume:worker-type:{_POOL}")),
        )
    ),
    output="poll-task-urls-response",
)
def poll_task_urls(call: Call) -> Mapping[str, Any]:
    """Signed URLs for polling, and deleting from, the Azure queues of a worker type; poll them in order."""
    services = call.authorize()
    return services.polling.poll_urls(call.params["provisionerId"], call.params["workerType"], call.client_id)


@endpoint(
    "pendingTasks",
    "GET",
    f"/pending/{_POOL}",
    "Get Number of Pending Tasks",
    output="pending-tasks-response",
)
def pending_tasks(call: Call) -> Mapping[str, Any]:
    """How many tasks of a worker type are pending, at most; with memory storage exactly so many."""
    names = ("provisionerId", "workerType")
    pool = {name: call.params[name] for name in names}
    return {**pool, "pendingTasks": call.authorize().pending.count(*pool.values())}


@endpoint(
    "claimWork",
    "POST",
    f"/claim-work/{_POOL}",
    "Claim Work",
    scopes=AllOf((f"queue:claim-work:{_POOL}", "queue:worker-id:<workerGroup>/<workerId>")),
    input="claim-work-request",
    output="claim-work-response",
)
def claim_work(call: Call) -> Mapping[str, Any]:
    """Claim pending tasks, up to ``tasks`` of them, highest priority first.

    The answer comes as soon as there are any, and within 20 seconds: then it holds none. Fewer than were
    asked for does not mean that there are no more. A client that hangs up before claims nothing.
    """
    group, worker_id = call.body["workerGroup"], call.body["workerId"]
    services = call.authorize(workerGroup=group, workerId=worker_id)
    return services.claim_work.claim(
        call.params["provisionerId"],
        call.params["workerType"],
        Worker(group, worker_id),
        call.body.get("tasks", 1),
        hung_up(call.environ),
    )


ENDPOINTS = (poll_task_urls, claim_work, pending_tasks)
