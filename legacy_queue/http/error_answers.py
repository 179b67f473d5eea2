"""The one place that renders an error: of the queue, of werkzeug, or of a bug.

Source: "Errors" in design/api.md.
"""

import json
import uuid
from typing import Any

import structlog
from flask import Flask, Response, g, request
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
from legacy_queue.http.bodies import MAX_BODY, MAX_ECHO, cut
from legacy_queue.http.request_log import note_refusal, request_id, shown_path
from legacy_queue.ports import Clock, Corrupt

log = structlog.get_logger()


def render_errors(app: Flask, clock: Clock) -> None:
    """Answer whatever the application raises with the error's code, a message, and what was asked."""
    app.register_error_handler(QueueError, lambda error: _render(error, clock))
    app.register_error_handler(HTTPException, lambda error: _render(_translated(error), clock))
    app.register_error_handler(Corrupt, lambda _: _render_corrupt(clock))
    app.register_error_handler(Exception, lambda error: _render_bug(error, clock))


def too_large() -> InputTooLarge:
    """Of a body."""
    return InputTooLarge(f"the body is larger than {MAX_BODY} bytes, the most that is accepted")


def _translated(error: HTTPException) -> QueueError:
    if error.code == 413:
        return too_large()
    if error.code in (404, 405):
        return ResourceNotFound(
            f"there is no {request.method} {request.path[:200]}; "
            "/references/queue/v1/api.json lists what there is"
        )
    return InvalidRequestArguments(f"the request cannot be read: {error.name}")


def _render(error: QueueError, clock: Clock) -> Response:
    note_refusal(error)
    message = cut(error.message)
    if error.details:
        message = "\n\n".join([message, cut(json.dumps(error.details, indent=2), 2 * MAX_ECHO)])
    response = _json(_error_body(error.code, message, clock), error.status)
    if isinstance(error, AuthenticationFailed):
        response.headers["www-authenticate"] = "hawk"
    if isinstance(error, ServiceUnavailable):
        response.headers["retry-after"] = str(whole_seconds(error.retry_after))
    return response


def _render_corrupt(clock: Clock) -> Response:
    """Of a row that cannot be read; it is logged already, once."""
    message = "what is stored about this cannot be read: the log of the server says so as row-corrupt"
    return _json(_error_body("InternalServerError", message, clock), 500)


def _render_bug(error: Exception, clock: Clock) -> Response:
    incident = str(uuid.uuid4())
    log.error(
        "internal-error",
        incident=incident,
        method=request.method,
        path=shown_path(),
        request_id=request_id(),
        exc_info=error,
    )
    message = f"an error of the server, incident {incident}: its log has the details under that id"
    return _json(_error_body("InternalServerError", message, clock), 500)


def _error_body(code: str, message: str, clock: Clock) -> dict[str, Any]:
    declared, params = g.get("call", (None, {}))
    return {
        "code": code,
        "message": message,
        "requestInfo": {
            "method": declared.name if declared else None,
            "params": params,
            "payload": g.get("payload"),
            "time": format_time(clock.now()),
            "requestId": request_id(),
        },
    }


def _json(body: Any, status: int) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")
