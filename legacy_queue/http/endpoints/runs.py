"""Endpoints with which workers poll, claim runs, and report them.

Source: docs/explanation/http-contract.md.
"""

import re
from datetime import timedelta
from functools import partial

from werkzeug.http import parse_dict_header

from legacy_queue.domain.scopes import AllOf, AnyOf
from legacy_queue.domain.task import Worker
from legacy_queue.http.client_connection import disconnected
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.request_log import record_of
from legacy_queue.services.tasks.claims import ClaimProof

_RUN = "/task/<taskId>/runs/<runId>"
_POOL = "<provisionerId>/<workerType>"
_WORKER_ID = "queue:worker-id:<workerGroup>/<workerId>"
_AS_WORKER = "assume:worker-id:<workerGroup>/<workerId>"
_AS_WORKER_TYPE = f"assume:worker-type:{_POOL}"

_POLLING = AnyOf((f"queue:poll-task-urls:{_POOL}", AllOf(("queue:poll-task-urls", _AS_WORKER_TYPE))))
_LEGACY_CLAIMING = AllOf(("queue:claim-task", _AS_WORKER_TYPE, _AS_WORKER))
_CLAIMING = AnyOf((AllOf((f"queue:claim-task:{_POOL}", _WORKER_ID)), _LEGACY_CLAIMING))


def _on_run(verb: str, legacy_verb: str) -> AnyOf:
    """The scopes that a claim's credentials have, or alternatively those that its worker has."""
    legacy = AllOf((f"queue:{legacy_verb}", _AS_WORKER))
    return AnyOf(("queue:claim-task:<taskId>/<runId>", f"queue:{verb}:<taskId>/<runId>", legacy))


_resolving = partial(endpoint, scopes=_on_run("resolve-task", "resolve-task"), output="task-status-response")


@endpoint(
    "GET",
    f"/poll-task-url/{_POOL}",
    "Get Urls to Poll Pending Tasks",
    scopes=_POLLING,
    output="poll-task-urls-response",
)
def poll_task_urls(call: Call) -> Reply:
    """Get signed URLs with which a worker polls the Azure queues of a pool and deletes their messages.

    Poll the queues in the order of the answer: the first has the highest priority.
    """
    return call.authorize().services.polling.poll_urls(*call.pool, call.client_id, call.url_life)


@endpoint(
    "POST",
    f"/claim-work/{_POOL}",
    "Claim Work",
    scopes=AllOf((f"queue:claim-work:{_POOL}", _WORKER_ID)),
    input="claim-work-request",
    output="claim-work-response",
    task_queue_route="/claim-work/<taskQueueId>",
)
def claim_work(call: Call) -> Reply:
    """Claim up to ``tasks`` pending tasks of a pool, highest priority first.

    If a task is pending, the server answers at once. Otherwise it waits until there is one, and answers with
    an empty list after 20 seconds. With the header ``Prefer: wait=2`` (RFC 7240) it waits at most 2 seconds,
    with ``wait=0`` not at all. If you get fewer tasks than you asked for, others may still be pending. If the
    client disconnects before the answer, nothing is claimed.
    """
    worker = _worker(call)
    site = call.authorize(workerGroup=worker.worker_group, workerId=worker.worker_id)
    count = call.body.get("tasks", 1)
    names_task_queue = "taskQueueId" in call.params
    is_disconnected = disconnected(call.environ)
    answer = site.services.claim_work.claim(
        *call.pool, worker, count, is_disconnected, names_task_queue, _preferred_wait(call)
    )
    record_of(call.environ).is_disconnected = is_disconnected()
    return answer


@endpoint(
    "POST",
    f"{_RUN}/claim",
    "Claim Task",
    scopes=_CLAIMING,
    input="task-claim-request",
    output="task-claim-response",
)
def claim_task(call: Call) -> Reply:
    """Claim a pending run. If the claim on a run has expired, this claims the next run of the task."""
    task = call.task()
    worker = _worker(call)
    queue = task.work_queue
    site = call.authorize(
        provisionerId=queue.provisioner_id,
        workerType=queue.worker_type,
        workerGroup=worker.worker_group,
        workerId=worker.worker_id,
    )
    # Go clients send an empty string for a field that is not set
    proof = ClaimProof(*(call.body.get(name) or None for name in ("messageId", "receipt", "signature")))
    return site.services.claims.claim(task, call.run_id, worker, proof, call.client_id)


@endpoint(
    "POST",
    f"{_RUN}/reclaim",
    "Reclaim Task",
    scopes=_on_run("reclaim-task", "claim-task"),
    output="task-reclaim-response",
)
def reclaim_task(call: Call) -> Reply:
    """Extend a claim that has not expired yet. The answer has the new takenUntil and new credentials."""
    return call.authorize_holder().services.claims.reclaim(call.task_id, call.run_id)


@_resolving(
    "POST", f"{_RUN}/completed", "Report Run Completed", input="task-completed-request", input_optional=True
)
def report_completed(call: Call) -> Reply:
    """Resolve a running run as completed, or as failed if the body says ``success: false``.

    Only very old workers say that.
    """
    state = "failed" if call.body and call.body.get("success") is False else "completed"
    return _reported(call, state, state)


@_resolving("POST", f"{_RUN}/failed", "Report Run Failed")
def report_failed(call: Call) -> Reply:
    """Resolve a running run as failed: the task's own code failed."""
    return _reported(call, "failed", "failed")


@_resolving("POST", f"{_RUN}/exception", "Report Task Exception", input="task-exception-request")
def report_exception(call: Call) -> Reply:
    """Resolve a running run as exception, for the given reason.

    If the reason is worker-shutdown or intermittent-task, the task gets a new run while it has retries left.
    """
    return _reported(call, "exception", call.body["reason"].replace("resources-", "resource-"))


def _preferred_wait(call: Call) -> timedelta | None:
    seconds = parse_dict_header(call.environ.get("HTTP_PREFER", "")).get("wait") or ""
    return timedelta(seconds=int(seconds)) if re.fullmatch("[0-9]{1,5}", seconds) else None


def _worker(call: Call) -> Worker:
    return Worker(call.body["workerGroup"], call.body["workerId"])


def _reported(call: Call, state: str, reason: str) -> Reply:
    tasks = call.authorize_holder().services.tasks
    return {"status": tasks.report(call.task_id, call.run_id, state, reason).status()}
