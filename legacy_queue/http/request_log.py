"""Logs one line for each request. The answer has the same id as the line.

The line has no secret: only the path without its signatures, and no header except the id. If credentials were
refused, only the line says why; the answer does not.
"""

import errno
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import structlog
from flask import Flask, Response, request
from werkzeug.wsgi import ClosingIterator

from legacy_queue.domain.errors import AuthenticationFailed, AuthorizationFailed, QueueError
from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.messages import RECEIVE
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.http.client_connection import TimedBody
from legacy_queue.ports.queue import QueuedMessage

log = structlog.get_logger()

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_LENGTH = 1000  # characters of a path or a reason
_QUOTED = re.compile(r"""(?<!\w)(['"])(?:[^\\]|\\.)*?(?:\1(?!\w)|$)""")
# if a client escapes the "?" of a signed URL, the signature is part of the path
_SIGNED = re.compile(r"(sig|signature|bewit|mac|accountkey|accesstoken|popreceipt)(=|%3d).*", re.IGNORECASE)
_MINUTE = 60  # seconds
_MAX_POOLS = 1000
_RECORD = "legacy_queue.record"  # a key of the WSGI environ

Environ = dict[str, Any]
WsgiApp = Callable[[Environ, Any], Iterable[bytes]]


class RequestRecord:
    """What the log line, the error and the journal say about a request.

    - ``target`` (path and query) and ``path`` are as the client sent them.
    - ``endpoint`` names the endpoint or view that served the request. ``params`` are its parameters.
    - ``payload`` is the body, raw and parsed.
    - ``refusal`` is the error of the answer. Errors of Azure have only a ``code`` and a ``reason``.
    - ``fault`` is the id of the fault that happened to the request. If it ``is_dropped``, it has no answer.
    - ``queue`` is the work queue that the request is about. ``runs`` are the taskId and runId of the runs
      that a signed URL is about, if they are known.
    - ``is_allowed_to_all`` is set if the anonymous role allows the call and the caller's own scopes do not.

    Only the journal shows the rest: when the request has ``begun`` by the queue's clock, whether its client
    ``is_disconnected``, parts of a handler's ``answer``, how long a signed URL is valid, and the ``messages``
    that the request received.
    """

    def __init__(self, environ: Environ) -> None:
        sent_id = environ.get("HTTP_X_REQUEST_ID", "")
        is_usable = sent_id and _PLAIN_ID.fullmatch(sent_id)
        self.request_id: str = sent_id if is_usable else f"{random.getrandbits(48):012x}"
        self.method: str = environ["REQUEST_METHOD"]
        self.target: str = environ["RAW_URI"]
        if not self.target.startswith("/"):
            # the absolute form: its host counts, whatever the header Host says. Source: RFC 9112, 3.2.2
            target = self.target.partition("://")[2]
            host = re.split("[/?]", target, maxsplit=1)[0]
            environ["HTTP_HOST"] = host or environ.get("HTTP_HOST", "")
            self.target = "/" + target[len(host) :].removeprefix("/")
        self.path = self.target.partition("?")[0]
        self.endpoint: str | None = None
        self.params: Mapping[str, str] = {}
        self.client_id: str | None = None
        self.payload: tuple[bytes, Any] | None = None
        self.refusal: QueueError | None = None
        self.status = 0
        self.code: str | None = None
        self.reason: str | None = None
        self.fault: str | None = None
        self.is_dropped = False
        self.queue: WorkQueue | None = None
        self.runs: Sequence[RunKey] = ()
        self.is_allowed_to_all = False
        self.begun: str | None = None
        self.is_disconnected = False
        self.answer: Mapping[str, Any] = {}
        self.url_expires: str | None = None
        self.messages: Sequence[QueuedMessage] | None = None
        self.ms = 0.0  # from the request to the end of its answer
        self._begun = time.monotonic()

    @property
    def error(self) -> tuple[str | None, str | None]:
        """The code of the error, and its reason, which may quote what the client sent."""
        refusal = self.refusal
        return (refusal.code, refusal.reason) if refusal else (self.code, self.reason)

    @property
    def is_empty_poll(self) -> bool:
        """Whether a worker polled a queue by a signed URL and found no message."""
        return self.endpoint == RECEIVE and self.status == 200 and not self.runs

    def write(self) -> None:
        """Writes the log line."""
        refusal = self.refusal
        code, reason = self.error
        if reason and not isinstance(refusal, AuthorizationFailed):  # its reason quotes only scopes
            reason = _without_values(reason)
        fields = {
            "method": self.method,
            "path": without_signature(self.path),
            "endpoint": self.endpoint,
            "status": self.status,
            "task_queue_id": self.queue and self.queue.task_queue_id,
            "priority": self.queue and self.queue.priority,
            "client_id": self.client_id,
            "code": code,
            "reason": reason and reason[:_MAX_LENGTH],
            "claimed_client_id": refusal.client_id if isinstance(refusal, AuthenticationFailed) else None,
            "fault": self.fault,
            "request_id": self.request_id,
        }
        self.ms = round((time.monotonic() - self._begun) * 1000, 1)
        write = log.debug if self.is_empty_poll else log.info
        write("request", **{name: value for name, value in fields.items() if value}, ms=self.ms)


def without_signature(path: str) -> str:
    """Returns the path without signatures, and at most 1,000 characters of it."""
    is_plain = "=" not in path and "%3" not in path
    return (path if is_plain else _SIGNED.sub("***", path))[:_MAX_LENGTH]


def _without_values(reason: str) -> str:
    """Returns the first line of a reason, without quoted values: what a client sent may be a secret."""
    return without_signature(_QUOTED.sub("***", reason.partition("\n")[0][:_MAX_LENGTH]))


def record_of(environ: Environ) -> RequestRecord:
    """Returns the record of the request."""
    record: RequestRecord = environ[_RECORD]
    return record


def begin(environ: Environ) -> None:
    """Begins the record of a request, before it is routed.

    PATH_INFO becomes the raw path, so that ``a%2Fb`` stays one segment. It begins with exactly one slash,
    because clients whose base URL ends with a slash send two.
    """
    record = environ[_RECORD] = RequestRecord(environ)
    environ["PATH_INFO"] = f"/{record.path.lstrip('/')}"
    environ["wsgi.input"] = TimedBody(environ["wsgi.input"])
    if environ.get("CONTENT_LENGTH"):  # so Werkzeug, not gunicorn, notices that a body ends early
        environ.pop("wsgi.input_terminated", None)


def log_requests(app: Flask, answered: Iterable[Callable[[RequestRecord], None]] = ()) -> None:
    """Logs each request when its answer is sent or its client is gone, then calls each of ``answered``."""
    polls = _EmptyPolls()

    @app.after_request
    def log_request(response: Response) -> Response:
        record = record_of(request.environ)
        record.endpoint = record.endpoint or request.endpoint

        def end() -> None:
            record.write()
            polls.count(record)
            for hook in answered:
                hook(record)

        response.headers.add("x-request-id", record.request_id)
        response.direct_passthrough = False  # otherwise Werkzeug would not close the response to a range
        if record.is_dropped:
            response.close()
            response = _Dropped()
            record.refusal = None
            record.reason = "a fault closed the connection"
        else:
            record.status = response.status_code
            if record.status >= 400:
                record.code = response.headers.get("x-ms-error-code")
        response.call_on_close(end)
        return response


class _EmptyPolls:
    """Logs the polls of a pool that found nothing: the first one, then one line a minute for all."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}  # when a line was last logged, and the polls since

    def count(self, record: RequestRecord) -> None:
        """Counts the request if it is such a poll."""
        if not (record.is_empty_poll and record.queue):
            return
        pool = record.queue.task_queue_id
        now = time.monotonic()
        last, times = self._counts.get(pool, (-_MINUTE, 0))
        if now - last >= _MINUTE:
            log.info("polled", task_queue_id=pool, times=times + 1, found=0)
            last = now
            times = -1
        if len(self._counts) >= _MAX_POOLS:
            self._counts.clear()
        self._counts[pool] = last, times + 1


class _Dropped(Response):
    """A response that makes the server close the connection without an answer."""

    def get_app_iter(self, environ: Environ) -> Iterable[bytes]:  # noqa: ARG002
        return ClosingIterator(self._reset(), self.close)

    def _reset(self) -> Iterator[bytes]:
        yield from ()
        raise ConnectionResetError(errno.ECONNRESET, "a fault drops the connection")
