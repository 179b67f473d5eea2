"""Answers to requests that do not reach the application: errors in its form or, of signed URLs, in Azure's.

Legacy workers keep their message on a 5xx: so a 4xx is only what the same request would get again.
"""

import json
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import gevent
from gunicorn.http import errors
from werkzeug.http import http_date

from legacy_queue.domain.errors import RETRY_AFTER
from legacy_queue.domain.hawk import MAX_LENGTH
from legacy_queue.domain.times import format_time, whole_seconds
from legacy_queue.gateway.azure_protocol import API_PATH, bare_error

MAX_LINE = MAX_LENGTH + 4 * 1024  # bytes: a bewit behind the longest name of an artifact
MAX_HEAD = MAX_LINE + 4 * 1024  # bytes, with the request line: each connection may hold so many

_OF_AZURE = re.compile(rb"[A-Za-z]+ (?:https?://[^/ ]*)?/*%b/" % API_PATH.encode())


class PlainHttp(Exception):
    """The client speaks HTTP without TLS."""


@dataclass(frozen=True)
class Refusal:
    """``azure_code`` is its code in the answer to a signed URL of Azure's protocol."""

    status: int
    phrase: str
    code: str
    message: str
    azure_code: str = "InvalidInput"

    def answer(self, begin: bytes, request_id: str, headers: Iterable[tuple[str, str]]) -> bytes:
        """The whole answer to a request with that begin; ``headers`` are those of each answer."""
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
        lines = [f"HTTP/1.1 {self.status} {self.phrase}", "Connection: close", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (*own.items(), *headers)]
        return "\r\n".join([*lines, "", ""]).encode() + body


_ARGUMENTS = "InvalidRequestArguments"
_REFUSALS: tuple[tuple[type[BaseException], Refusal], ...] = (
    (
        PlainHttp,
        Refusal(400, "Bad Request", _ARGUMENTS, "this port speaks https: expected a URL that begins with it"),
    ),
    (
        gevent.Timeout,
        Refusal(
            503,
            "Service Unavailable",
            "ServiceUnavailable",
            "the head of the request came too slowly: send it again",
            "ServerBusy",
        ),
    ),
    (
        errors.LimitRequestLine,
        Refusal(
            414,
            "URI Too Long",
            "InputTooLarge",
            f"the request line is too long: expected at most {MAX_LINE} bytes",
            "RequestUrlFailedToParse",
        ),
    ),
    (
        errors.LimitRequestHeaders,
        Refusal(
            431,
            "Request Header Fields Too Large",
            "InputTooLarge",
            f"the headers are too long: expected at most 100, and {MAX_HEAD} bytes with the request line",
            "InvalidHeaderValue",
        ),
    ),
    (
        errors.ParseException,
        Refusal(400, "Bad Request", _ARGUMENTS, "the request cannot be read: expected HTTP/1.1 of RFC 9112"),
    ),
    (
        Exception,
        Refusal(
            500,
            "Internal Server Error",
            "InternalServerError",
            "an error of the server: its log has the details under the requestId",
            "InternalError",
        ),
    ),
)


def refusal_of(error: BaseException) -> Refusal:
    """The refusal of a request that raised the error in gunicorn or in the application."""
    return next(refusal for kind, refusal in _REFUSALS if isinstance(error, kind))


def new_request_id() -> str:
    return str(uuid.uuid4())
