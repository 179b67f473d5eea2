"""Injects faults into requests to endpoints and to signed URLs."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from threading import Event as Flag

from legacy_queue.domain.errors import InjectedError, ResourceNotFound
from legacy_queue.http.endpoint import Call, Endpoint, Reply
from legacy_queue.http.request_log import Environ, record_of
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.services.control.fault import Fault, Target
from legacy_queue.services.control.fault_registry import FaultRegistry

_CODES = {
    400: "InputError",
    401: "AuthenticationFailed",
    403: "InsufficientScopes",
    404: "ResourceNotFound",
    406: "NoMatchingMethod",
    409: "RequestConflict",
    410: "ResourceExpired",
    411: "LengthRequired",
    413: "InputTooLarge",
    500: "InternalServerError",
    503: "ServiceUnavailable",
}


class FaultInjection:
    """Decides for each request whether a fault happens to it. When ``stopping`` is set, delays end."""

    def __init__(self, faults: FaultRegistry, stopping: Flag) -> None:
        self._faults = faults
        self._stopping = stopping

    def handle(self, call: Call) -> Reply:
        """Returns the handler's answer, or a fault's. A call with invalid credentials meets no fault."""
        if call.failure:
            return call.endpoint.handler(call)
        task_id = call.params.get("taskId", "")
        fault = self.cause_fault(call.environ, call.endpoint.name, task_id, lambda: _worker(call))
        if fault and fault.effect == "sas":
            call = replace(call, url_life=fault.url_life)
        return call.endpoint.handler(call)

    def cause_fault(
        self,
        environ: Environ,
        endpoint: str,
        task_id: str = "",
        worker: Callable[[], str] = str,
        *,
        has_message: bool = False,
    ) -> Fault | None:
        """Applies the delay or the error of a fault to a request about the task. Returns the fault, if any.

        ``worker`` and ``has_message`` mean the same as in ``FaultRegistry.next``. Raises InjectedError if the
        fault prevents the request.
        """
        fault = self._faults.next(endpoint, task_id, worker, has_message=has_message)
        if fault is None:
            return None
        record = record_of(environ)
        record.fault = fault.fault_id
        if fault.delay:
            self._stopping.wait(fault.delay.total_seconds())
        record.is_dropped = record.is_dropped or fault.effect == "drop"
        if fault.is_before:
            raise _error(fault)
        return fault


def target_of(endpoint: Endpoint) -> Target:
    """Returns which filters a fault of this endpoint may have. A run's worker is looked up when needed."""
    body = SCHEMAS[endpoint.input].get("properties", {}) if endpoint.input else {}
    has_worker = "workerId" in endpoint.args or "workerId" in body or "runId" in endpoint.args
    return Target(endpoint.name, "taskId" in endpoint.args, has_worker)


def _worker(call: Call) -> str:
    fields = {**call.params, **(call.body if isinstance(call.body, dict) else {})}
    if "workerId" in fields:
        return f"{fields.get('workerGroup')}/{fields['workerId']}"
    with suppress(ResourceNotFound):
        worker = call.task_now().run(call.run_id).worker
        return f"{worker.worker_group}/{worker.worker_id}" if worker else ""
    return ""


def _error(fault: Fault) -> InjectedError:
    status = int(fault.wire.get("status", 503))  # if the connection is dropped, nobody sees it
    message = fault.wire.get("message", f"a fault makes {fault.endpoint} answer {status}")
    return InjectedError(f"{message} (fault {fault.fault_id})", status, _code(status))


def _code(status: int) -> str:
    """Returns the code that the server uses for this status, or the name that HTTP gives it."""
    if status in _CODES:
        return _CODES[status]
    with suppress(ValueError):
        return re.sub("[^A-Za-z]", "", HTTPStatus(status).phrase.title())
    return "InternalServerError" if status >= 500 else "InputError"
