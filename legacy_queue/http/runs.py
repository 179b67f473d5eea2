"""Endpoints about runs, for workers. Source: "Methods" in design/api.md."""

from collections.abc import Mapping
from typing import Any

from legacy_queue.domain.scopes import AllOf, AnyOf
from legacy_queue.domain.task import Worker
from legacy_queue.http.endpoint import Call, endpoint
from legacy_queue.services.claims import Presented

Answer = Mapping[str, Any]

_RUN = "/task/<taskId>/runs/<runId>"
_POOL = "<provisionerId>/<workerType>"
_AS_WORKER = "assume:worker-id:<workerGroup>/<workerId>"


def _on_run(verb: str, legacy_verb: str) -> AnyOf:
    """What the holder of a claim may: with the claim's credentials, or with those of the worker."""
    right = f"queue:{verb}:<taskId>/<runId>"
    legacy = AllOf((f"queue:{legacy_verb}", _AS_WORKER))
    return AnyOf(("queue:claim-task:<taskId>/<runId>", right, legacy))


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
    services = call.authorize_holder()
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
    services = call.authorize_holder()
    return {"status": services.tasks.report(call.task_id, call.run_id, state, reason).status()}


ENDPOINTS = (claim_task, reclaim_task, report_completed, report_failed, report_exception)
