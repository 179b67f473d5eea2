"""One line of the log for each request, and an id that its answer, its error and its line have in common.

Nothing secret is in the line: of the target it has the path, which has no signature in it, of the headers
nothing but the id. Why credentials were refused is in the line alone, never in the answer.
"""

import re
import secrets
import time
from typing import Any

import structlog
from flask import Flask, Response, g, request

from legacy_queue.domain.errors import AuthenticationFailed, AuthorizationFailed, QueueError

log = structlog.get_logger()

HEADER = "x-request-id"
_HARMLESS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONGEST = 1000  # characters of a path or a reason
# a client that escapes the "?" of a signed URL too sends it as a path
_SIGNED = re.compile(r"(sig|signature|bewit|mac|accountkey|accesstoken|popreceipt)(=|%3d).*", re.IGNORECASE)


def log_requests(app: Flask) -> None:
    """Log each request of the application when its answer is sent, or its client is gone."""
    app.before_request(_begin)
    app.after_request(_answer)


def request_id() -> str:
    """The id of the request under way: its own x-request-id where that is harmless, else a new one."""
    if "request_id" not in g:
        given = request.headers.get(HEADER, "")
        g.request_id = given if _HARMLESS.fullmatch(given) else secrets.token_urlsafe(9)
    return str(g.request_id)


def note_refusal(error: QueueError) -> None:
    """Have the line of the request under way say what was refused, and why where the answer does not."""
    g.refusal = error


def shown_path() -> str:
    """The path of the request under way as it was sent, without what might sign it."""
    path = request.environ["PATH_INFO"]
    return _SIGNED.sub("***", path)[:_LONGEST]


def _begin() -> None:
    g.begun = time.monotonic()


def _answer(response: Response) -> Response:
    fields = _fields(response)
    begun = g.get("begun", time.monotonic())
    response.headers[HEADER] = fields["request_id"]

    def write() -> None:
        log.info("request", **fields, ms=round((time.monotonic() - begun) * 1000, 1))

    response.call_on_close(write)
    return response


def _fields(response: Response) -> dict[str, Any]:
    declared = g.call[0].name if "call" in g else request.endpoint
    fields = {
        "method": request.method,
        "path": shown_path(),
        "endpoint": declared,
        "status": response.status_code,
        "client_id": g.get("client_id"),
        "code": response.headers.get("x-ms-error-code"),
        **_refusal(),
        "request_id": request_id(),
    }
    return {name: value for name, value in fields.items() if value}


def _refusal() -> dict[str, str]:
    error = g.get("refusal")
    match error:
        case None:
            return {}
        case AuthenticationFailed():
            return {"code": error.code, "reason": error.reason, "claimed_client_id": error.client_id}
        case AuthorizationFailed():
            return {"code": error.code, "reason": error.message[:_LONGEST]}
    return {"code": error.code}
