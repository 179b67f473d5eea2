"""Renders every error: of the queue, of Werkzeug, or of a bug here. Source: docs/reference/errors.md."""

import json
import re
import uuid

import structlog
from flask import Response
from werkzeug.exceptions import HTTPException

from legacy_queue.domain.errors import (
    RETRY_AFTER,
    InputTooLarge,
    InvalidRequestArguments,
    QueueError,
    ResourceNotFound,
    ServiceUnavailable,
)
from legacy_queue.domain.times import format_time, whole_seconds
from legacy_queue.http.request_bodies import MAX_BODY, MAX_ECHO, cut, indented, shown
from legacy_queue.http.request_log import RequestRecord, without_signature
from legacy_queue.ports import Clock, Corrupt

log = structlog.get_logger()

_SERVED = ("queue", "object")
_SERVICE = re.compile("/api/([A-Za-z0-9_-]{1,50})(?:/|$)")


def render(error: Exception, record: RequestRecord, clock: Clock) -> Response:
    """Returns the answer to an error. Its body has the code, the message, and what the request was."""
    if isinstance(error, HTTPException):
        error = _translated(error, record)
    if not isinstance(error, QueueError):
        return _answer(500, "InternalServerError", _logged(error, record), record, clock)
    record.refusal = error
    message = cut(error.message)
    if error.details:
        message = "\n\n".join([message, cut(indented(error.details, 2 * MAX_ECHO), 2 * MAX_ECHO)])
    response = _answer(error.status, error.code, message, record, clock)
    if error.status == 401:
        response.headers["www-authenticate"] = "hawk"
    if error.status == 503:
        retry_after = error.retry_after if isinstance(error, ServiceUnavailable) else RETRY_AFTER
        response.headers["retry-after"] = str(whole_seconds(retry_after))
    return response


def _translated(error: HTTPException, record: RequestRecord) -> QueueError:
    if error.code == 413:
        return InputTooLarge(f"the body is too large: expected at most {MAX_BODY} bytes")
    if error.code in (404, 405):
        service = _SERVICE.match(record.path)
        if service and service[1] not in _SERVED:
            return ResourceNotFound(
                f"{service[1]} is another service: expected {' or '.join(_SERVED)}. With --legacy-stubs this "
                "server also answers some calls to auth and purge-cache"
            )
        name = "control" if record.path.startswith(("/control/", "/inspect/")) else "queue"
        methods = sorted({*(getattr(error, "valid_methods", None) or ())} - {"HEAD", "OPTIONS"})
        known = " or ".join(methods) or f"an endpoint that /references/{name}/v1/api.json lists"
        return ResourceNotFound(f"there is no {record.method} {record.path[:200]}: expected {known}")
    return InvalidRequestArguments(f"the request cannot be read: {error.name}")


def _logged(error: Exception, record: RequestRecord) -> str:
    """Logs the error. Returns the message for the caller, which has no details."""
    if isinstance(error, Corrupt):  # it was logged where it was read
        return "a stored row or message cannot be read: look for row-corrupt in the log of the server"
    incident = str(uuid.uuid4())
    log.error(
        "internal-error",
        incident=incident,
        method=record.method,
        path=without_signature(record.path),
        request_id=record.request_id,
        exc_info=error,
    )
    return f"internal error, incident {incident}: look for this id in the log of the server"


def _answer(status: int, code: str, message: str, record: RequestRecord, clock: Clock) -> Response:
    info = {
        "method": record.endpoint,
        "params": record.params,
        "payload": shown(*record.payload) if record.payload else None,
        "time": format_time(clock.now()),
        "requestId": record.request_id,
    }
    body = json.dumps({"code": code, "message": message, "requestInfo": info})
    return Response(body, status, content_type="application/json")
