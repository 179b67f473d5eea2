"""Answers to requests that do not reach the application.

They have the form of the application's errors or, for signed URLs, the form of Azure's errors. A legacy
worker keeps its message after a 5xx. So a 4xx is only for requests that would get the same answer again.
"""

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from gunicorn.http import errors
from werkzeug.http import http_date

from legacy_queue.domain.errors import RETRY_AFTER
from legacy_queue.domain.hawk import MAX_LENGTH
from legacy_queue.domain.times import format_time, whole_seconds
from legacy_queue.gateway.azure_protocol import API_PATH, bare_error
from legacy_queue.server.client_socket import PlainHttp

MAX_LINE = MAX_LENGTH + 4 * 1024  # bytes: room for the longest name of an artifact and a bewit
MAX_HEAD = MAX_LINE + 4 * 1024  # bytes, including the request line; each connection may need this much memory

_OF_AZURE = re.compile(rb"[A-Za-z]+ (?:https?://[^/ ]*)?/*%b/" % API_PATH.encode())


@dataclass(frozen=True)
class Refusal:
    """A refused request. ``azure_code`` is the error code for a signed URL of Azure's protocol."""

    status: int
    code: str
    azure_code: str
    message: str

    def answer(self, begin: bytes, request_id: str, headers: Iterable[tuple[str, str]]) -> bytes:
        """Returns the whole answer to a request that starts with ``begin``, with these ``headers`` too."""
        if _OF_AZURE.match(begin):
            own, body = bare_error(self.azure_code, self.message, request_id)
        else:
            info: dict[str, Any] = {"method": None, "params": {}, "payload": None}
            info |= {"time": format_time(datetime.now(UTC)), "requestId": request_id}
            body = json.dumps({"code": self.code, "message": self.message, "requestInfo": info}).encode()
            own = {"Content-Type": "application/json", "x-request-id": request_id}
        if self.status == 503:
            own["Retry-After"] = str(whole_seconds(RETRY_AFTER))
        own["Date"] = http_date(datetime.now(UTC))
        phrase = HTTPStatus(self.status).phrase
        lines = [f"HTTP/1.1 {self.status} {phrase}", "Connection: close", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (*own.items(), *headers)]
        return "\r\n".join([*lines, "", ""]).encode() + body


def refusal_of(error: Exception) -> Refusal:
    """Returns the refusal for a request that raised this error in gunicorn or in the application."""
    match error:
        case PlainHttp():
            why = "this port speaks https: expected a URL that begins with https"
            return Refusal(400, "InvalidRequestArguments", "InvalidInput", why)
        case TimeoutError():
            why = "the request came too slowly: send it again"
            return Refusal(503, "ServiceUnavailable", "ServerBusy", why)
        case errors.LimitRequestLine():
            why = f"the request line is too long: expected at most {MAX_LINE} bytes"
            return Refusal(414, "InputTooLarge", "RequestUrlFailedToParse", why)
        case errors.LimitRequestHeaders():
            why = f"the head is too long: expected at most {MAX_HEAD} bytes, and 100 headers"
            return Refusal(431, "InputTooLarge", "InvalidHeaderValue", why)
        case errors.ParseException():
            why = "the request cannot be read: expected HTTP/1.1 as in RFC 9112"
            return Refusal(400, "InvalidRequestArguments", "InvalidInput", why)
    why = "the server had an error: its log has the details under this requestId"
    return Refusal(500, "InternalServerError", "InternalError", why)


def new_request_id() -> str:
    return str(uuid.uuid4())
