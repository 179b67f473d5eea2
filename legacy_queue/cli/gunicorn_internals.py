"""All that this package uses of gunicorn's internals: no documentation promises them.

No other module imports them. tests/cli/test_gunicorn_internals.py records the source of each, and fails when
gunicorn changes it: then the code that overrides it is to be read again.
"""

from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.http import errors
from gunicorn.http.body import Body, ChunkedReader, LengthReader
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.http.wsgi import Response, create
from gunicorn.workers.ggevent import GeventWorker

__all__ = [
    "Arbiter",
    "Body",
    "ChunkedReader",
    "GeventWorker",
    "Request",
    "RequestParser",
    "Response",
    "SocketUnreader",
    "create",
    "errors",
    "has_failed",
    "is_read_to_end",
    "set_failed",
]


def is_read_to_end(request: Any) -> bool:
    """Whether the body of the request has a length, and was read to its end."""
    return isinstance(request.body.reader, LengthReader) and request.body.reader.length == 0


def has_failed(request: Any) -> bool:
    """Whether the end of the request's body is unknown, so that its connection is to be closed."""
    return bool(request.body.failed)


def set_failed(request: Any, failed: bool) -> None:
    """Have the connection closed behind this request, or not."""
    request.body.failed = failed
