"""One log line for each request. Its id is also in the answer.

The line holds no secret: of the target it has the path without signatures, of the headers only the id. Only
the line says why credentials were refused, never the answer.
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
# a client that escapes the "?" of a signed URL sends its query as a part of the path
_SIGNED = re.compile(r"(sig|signature|bewit|mac|accountkey|accesstoken|popreceipt)(=|%3d).*", re.IGNORECASE)
_MINUTE = 60  # seconds
_MAX_POOLS = 1000
_RECORD = "legacy_queue.record"  # in a WSGI environment

Environ = dict[str, Any]
WsgiApp = Callable[[Environ, Any], Iterable[bytes]]


class RequestRecord:
    """What the log line, the error and the journal say of a request.

    ``target`` (path and query) and ``path`` are as they were sent. ``endpoint`` is the name of the
    endpoint or view that served the request, ``params`` are the parameters of a declared endpoint.
    ``payload`` is the body, raw and parsed. ``refusal`` is the error of the answer; ``code`` and
    ``reason`` are those of Azure's errors. ``fault`` is the id of the fault that happened to the request.
    If it ``is_dropped``, it gets no answer. ``queue`` is the work queue that the request is about,
    ``runs`` are taskId and runId of the runs that a signed URL is about, as far as they are known. It
    ``is_allowed_to_all`` if the anonymous role allows it, and the caller's own scopes do not.

    The journal alone shows when the request has ``begun``, by the queue's clock, whether its client
    ``is_disconnected``, parts of the ``answer`` of an endpoint's handler, until when a signed URL is valid,
    and the ``messages`` that it has received.
    """

    def __init__(self, environ: Environ) -> None:
        sent_id = environ.get("HTTP_X_REQUEST_ID", "")
        is_usable = sent_id and _PLAIN_ID.fullmatch(sent_id)
        self.request_id: str = sent_id if is_usable else f"{random.getrandbits(48):012x}"
        self.method: str = environ["REQUEST_METHOD"]
        self.target: str = environ["RAW_URI"]
        if not self.target.startswith("/"):
            # the absolute form: its host is that of the request, whatever Host says. Source: RFC 9112, 3.2.2
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
        """The code of the error, and its reason, which may quote what was sent."""
        refusal = self.refusal
        return (refusal.code, refusal.reason) if refusal else (self.code, self.reason)

    @property
    def is_empty_poll(self) -> bool:
        """Whether a worker polled a queue by a signed URL, and there was no message."""
        return self.endpoint == RECEIVE and self.status == 200 and not self.runs

    def write(self) -> None:
        """Write the log line."""
        refusal = self.refusal
        code, reason = self.error
        if reason and not isinstance(refusal, AuthorizationFailed):  # that quotes scopes
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
    """The path without signatures, cut to a maximal length."""
    is_plain = "=" not in path and "%3" not in path
    return (path if is_plain else _SIGNED.sub("***", path))[:_MAX_LENGTH]


def _without_values(reason: str) -> str:
    """The first line of a reason, without quoted values: a value that was sent may be a secret."""
    return without_signature(_QUOTED.sub("***", reason.partition("\n")[0][:_MAX_LENGTH]))


def record_of(environ: Environ) -> RequestRecord:
    """The record of the request."""
    record: RequestRecord = environ[_RECORD]
    return record


def begin(environ: Environ) -> None:
    """Record a request, before it is routed.

    PATH_INFO is the raw path: ``a%2Fb`` stays one segment. It begins with one slash: clients whose base URL
    ends in a slash send two.
    """
    record = environ[_RECORD] = RequestRecord(environ)
    environ["PATH_INFO"] = f"/{record.path.lstrip('/')}"
    environ["wsgi.input"] = TimedBody(environ["wsgi.input"])
    if environ.get("CONTENT_LENGTH"):  # then Werkzeug, not gunicorn, sees that a body ends early
        environ.pop("wsgi.input_terminated", None)


def log_requests(app: Flask, answered: Iterable[Callable[[RequestRecord], None]] = ()) -> None:
    """Log each request of the app when its answer was sent or its client has disconnected.

    Each function of ``answered`` is called after the log line.
    """
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
        response.direct_passthrough = False  # or Werkzeug does not close the response of a range
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
    """A line for the polls of a pool that found nothing: for the first, and then one in a minute."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}  # when the last line was, and the polls since then

    def count(self, record: RequestRecord) -> None:
        """Count the request, if it is such a poll."""
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
    """An answer that makes the server close the connection, as if the client had disconnected."""

    def get_app_iter(self, environ: Environ) -> Iterable[bytes]:  # noqa: ARG002
        return ClosingIterator(self._reset(), self.close)

    def _reset(self) -> Iterator[bytes]:
        yield from ()
        raise ConnectionResetError(errno.ECONNRESET, "a fault drops the connection")
