"""Endpoints about tasks and runs. Source: "Methods" in design/api.md."""

from collections.abc import Mapping
from typing import Any

from legacy_queue.domain.priority import at_least
from legacy_queue.domain.scopes import AllOf, AnyOf, ForEach
from legacy_queue.domain.task import Task, Worker
from legacy_queue.http.endpoint import Call, endpoint
from legacy_queue.services.claims import Presented

Answer = Mapping[str, Any]

_RUN = "/task/<taskId>/runs/<runId>"
_POOL = "<provisionerId>/<workerType>"
_GROUP = "<schedulerId>/<taskGroupId>"
_AS_WORKER = "assume:worker-id:<workerGroup>/<workerId>"

_CREATE = AllOf(
    (
        ForEach("scope", "scopes", "<scope>"),
        ForEach("route", "routes", "queue:route:<route>"),
        AnyOf(
            (
                ForEach(
                    "priority",
                    "priorities",
                    AllOf(("queue:scheduler-id:<schedulerId>", f"queue:create-task:<priority>:{_POOL}")),
                ),
                # legacy, and only for tasks of the lowest priority
                ForEach("legacy", "legacyPriority", f"queue:create-task:{_POOL}"),
                ForEach(
                    "legacy",
                    "legacyPriority",
                    AllOf(
                        (
                            f"queue:define-task:{_POOL}",
                            f"queue:task-group-id:{_GROUP}",
                            f"queue:schedule-task:{_GROUP}/<taskId>",
                        )
                    ),
                ),
            )
        ),
    )
)


def _on_task(verb: str) -> AnyOf:
    legacy = AllOf((f"queue:{verb}", f"assume:scheduler-id:{_GROUP}"))
    return AnyOf((f"queue:{verb}:{_GROUP}/<taskId>", legacy))


def _on_run(verb: str, legacy_verb: str) -> AnyOf:
    """What the holder of a claim may: with the claim's credentials, or with those of the worker."""
    right = f"queue:{verb}:<taskId>/<runId>"
    legacy = AllOf((f"queue:{legacy_verb}", _AS_WORKER))
    return AnyOf(("queue:claim-task:<taskId>/<runId>", right, legacy))


@endpoint("task", "GET", "/task/<taskId>", "Get Task Definition", output="task")
def task(call: Call) -> Answer:
    """The definition of the task, with its defaults filled in."""
    return call.authorize().tasks.load(call.task_id).definition.wire


@endpoint("status", "GET", "/task/<taskId>/status", "Get Task Status", output="task-status-response")
def status(call: Call) -> Answer:
    """The status structure of the task."""
    return _status(call.authorize().tasks.load(call.task_id))


@endpoint(
    "createTask",
    "PUT",
    "/task/<taskId>",
    "Create New Task",
    scopes=_CREATE,
    input="create-task-request",
    output="task-status-response",
)
def create_task(call: Call) -> Answer:
    """Create a task, and schedule it at once. The same definition again answers the same."""
    body = call.body
    priority = "lowest" if body.get("priority") in (None, "normal") else body["priority"]
    services = call.authorize(
        scopes=body.get("scopes", []),
        routes=body.get("routes", []),
        priorities=at_least(priority),
        legacyPriority=[priority] if priority == "lowest" else [],
        schedulerId=body.get("schedulerId", "-"),
        taskGroupId=body.get("taskGroupId", call.task_id),
        provisionerId=body["provisionerId"],
        workerType=body["workerType"],
    )
    return _status(services.tasks.create(call.task_id, body))


@endpoint(
    "cancelTask",
    "POST",
    "/task/<taskId>/cancel",
    "Cancel Task",
    scopes=_on_task("cancel-task"),
    output="task-status-response",
)
def cancel_task(call: Call) -> Answer:
    """Resolve a task that is not resolved as exception/canceled; of one that is, answer the status."""
    definition = call.task().definition
    services = call.authorize(schedulerId=definition.scheduler_id, taskGroupId=definition.task_group_id)
    return _status(services.tasks.cancel(call.task_id))


@endpoint(
    "claimTask",
    "POST",
    f"{_RUN}/claim",
    "Claim Task",
    scopes=AnyOf(
        (
            AllOf((f"queue:claim-task:{_POOL}", "queue:worker-id:<workerGroup>/<workerId>")),
            AllOf(("queue:claim-task", f"assume:worker-type:{_POOL}", _AS_WORKER)),
        )
    ),
    input="task-claim-request",
    output="task-claim-response",
)
def claim_task(call: Call) -> Answer:
    """Claim a run that is pending, or the one after a claim that has expired."""
    body, task = call.body, call.task()
    queue = task.definition.work_queue
    services = call.authorize(
        provisionerId=queue.provisioner_id,
        workerType=queue.worker_type,
        workerGroup=body["workerGroup"],
        workerId=body["workerId"],
    )
    # a Go client sends the fields that it does not set as empty strings
    presented = Presented(*(body.get(name) or None for name in ("messageId", "receipt", "signature")))
    worker = Worker(body["workerGroup"], body["workerId"])
    return services.claims.claim(task, call.run_id, worker, presented)


@endpoint(
    "reclaimTask",
    "POST",
    f"{_RUN}/reclaim",
    "Reclaim Task",
    scopes=_on_run("reclaim-task", "claim-task"),
    output="task-reclaim-response",
)
def reclaim_task(call: Call) -> Answer:
    """Extend the claim on a run before it expires."""
    services = call.authorize(**_holder(call))
    return services.claims.reclaim(call.task_id, call.run_id)


@endpoint(
    "reportCompleted",
    "POST",
    f"{_RUN}/completed",
    "Report Run Completed",
    scopes=_on_run("resolve-task", "resolve-task"),
    input="task-completed-request",
    input_optional=True,
    output="task-status-response",
)
def report_completed(call: Call) -> Answer:
    """Resolve a running run as completed; as failed where a very old worker says ``success: false``."""
    state = "failed" if call.body and call.body.get("success") is False else "completed"
    return _reported(call, state, state)


@endpoint(
    "reportFailed",
    "POST",
    f"{_RUN}/failed",
    "Report Run Failed",
    scopes=_on_run("resolve-task", "resolve-task"),
    output="task-status-response",
)
def report_failed(call: Call) -> Answer:
    """Resolve a running run as failed: the task's own code did."""
    return _reported(call, "failed", "failed")


@endpoint(
    "reportException",
    "POST",
    f"{_RUN}/exception",
    "Report Task Exception",
    scopes=_on_run("resolve-task", "resolve-task"),
    input="task-exception-request",
    output="task-status-response",
)
def report_exception(call: Call) -> Answer:
    """Resolve a running run as exception; a new run follows for worker-shutdown and intermittent-task."""
    reason = call.body["reason"]
    return _reported(call, "exception", reason.replace("resources-", "resource-"))


def _reported(call: Call, state: str, reason: str) -> Answer:
    services = call.authorize(**_holder(call))
    return _status(services.tasks.report(call.task_id, call.run_id, state, reason))


def _holder(call: Call) -> dict[str, str]:
    """The worker of the run, to fill the legacy scopes from; one that nobody claimed has none."""
    worker = call.holder()
    return {
        "workerGroup": worker.worker_group if worker else "",
        "workerId": worker.worker_id if worker else "",
    }


def _status(task: Task) -> Answer:
    return {"status": task.status()}


ENDPOINTS = (
    task,
    status,
    create_task,
    cancel_task,
    claim_task,
    reclaim_task,
    report_completed,
    report_failed,
    report_exception,
)
