"""Endpoints that tell workers and provisioners where work is. Source: "Methods" in design/api.md."""

from collections.abc import Mapping
from typing import Any

from legacy_queue.domain.scopes import AllOf, AnyOf
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
    return services.polling.poll_urls(call.params["provisionerId"], call.params["workerType"])


@endpoint(
    "pendingTasks",
    "GET",
    f"/pending/{_POOL}",
    "Get Number of Pending Tasks",
    output="pending-tasks-response",
)
def pending_tasks(call: Call) -> Mapping[str, Any]:
    """How many tasks of a worker type are pending, at most."""
    names = ("provisionerId", "workerType")
    pool = {name: call.params[name] for name in names}
    return {**pool, "pendingTasks": call.authorize().polling.pending_tasks(*pool.values())}


ENDPOINTS = (poll_task_urls, pending_tasks)
