"""The one place that renders an error: of the queue, of werkzeug, or of a bug.

Source: "Errors" in design/api.md.
"""

import json
import uuid
from typing import Any

import structlog
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from legacy_queue.domain.errors import (
    AuthenticationFailed,
    InputTooLarge,
    InvalidRequestArguments,
    QueueError,
    ResourceNotFound,
    ServiceUnavailable,
)
from legacy_queue.domain.times import format_time, whole_seconds
from legacy_queue.http.bodies import MAX_BODY, MAX_ECHO, cut, shown
from legacy_queue.http.request_log import RequestRecord, record_of
from legacy_queue.ports import Clock, Corrupt

log = structlog.get_logger()


def render_errors(app: Flask, clock: Clock) -> None:
    """Answer whatever the application raises with ``render``."""
    app.register_error_handler(Exception, lambda error: render(error, record_of(request.environ), clock))


def render(error: Exception, record: RequestRecord, clock: Clock) -> Response:
    """The error's code, a message, and what was asked."""
    match error:
        case QueueError():
            return _render(error, record, clock)
        case HTTPException():
            return _render(_translated(error, record), record, clock)
        case Corrupt():  # it is logged already, once
            message = "what is stored about this cannot be read: the log of the server says so as row-corrupt"
            return _json(_error_body("InternalServerError", message, record, clock), 500)
    return _render_bug(error, record, clock)


def too_large() -> InputTooLarge:
    """Of a body."""
    return InputTooLarge(f"the body is larger than {MAX_BODY} bytes, the most that is accepted")


def _translated(error: HTTPException, record: RequestRecord) -> QueueError:
    if error.code == 413:
        return too_large()
    if error.code in (404, 405):
        return ResourceNotFound(
            f"there is no {record.method} {record.path[:200]}; "
            "/references/queue/v1/api.json lists what there is"
        )
    return InvalidRequestArguments(f"the request cannot be read: {error.name}")


def _render(error: QueueError, record: RequestRecord, clock: Clock) -> Response:
    record.refusal = error
    message = cut(error.message)
    if error.details:
        message = "\n\n".join([message, cut(json.dumps(error.details, indent=2), 2 * MAX_ECHO)])
    response = _json(_error_body(error.code, message, record, clock), error.status)
    if isinstance(error, AuthenticationFailed):
        response.headers["www-authenticate"] = "hawk"
    if isinstance(error, ServiceUnavailable):
        response.headers["retry-after"] = str(whole_seconds(error.retry_after))
    return response


def _render_bug(error: Exception, record: RequestRecord, clock: Clock) -> Response:
    incident = str(uuid.uuid4())
    log.error(
        "internal-error",
        incident=incident,
        method=record.method,
        path=record.shown_path,
        request_id=record.request_id,
        exc_info=error,
    )
    message = f"an error of the server, incident {incident}: its log has the details under that id"
    return _json(_error_body("InternalServerError", message, record, clock), 500)


def _error_body(code: str, message: str, record: RequestRecord, clock: Clock) -> dict[str, Any]:
    name, params = record.call or (None, {})
    return {
        "code": code,
        "message": message,
        "requestInfo": {
            "method": name,
            "params": params,
            "payload": shown(*record.payload) if record.payload else None,
            "time": format_time(clock.now()),
            "requestId": record.request_id,
        },
    }


def _json(body: Any, status: int) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")
