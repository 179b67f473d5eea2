"""The source of each of gunicorn's internals that this package uses is recorded here."""

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from gunicorn import arbiter
from gunicorn.http import body, errors, message, parser, unreader, wsgi
from gunicorn.workers import base, base_async, ggevent

# Each part that a subclass overrides, calls or reads, and the first digits of the hash of its source. When a
# test fails, read what gunicorn has changed, see that the code that uses it is still right, and record the
# new hash.
RECORDED: dict[Callable[..., Any], str] = {
    arbiter.Arbiter.__init__: "53b20d752bbb",
    arbiter.Arbiter.handle_hup: "50de80005cd6",
    arbiter.Arbiter.handle_term: "93d583480a66",
    arbiter.Arbiter.init_signals: "68125f99ad65",
    arbiter.Arbiter.murder_workers: "3f8fbfdf473f",
    arbiter.Arbiter.run: "1ddfab9d644f",
    arbiter.Arbiter.signal: "8b193e95e16a",
    arbiter.Arbiter.stop: "7138b6afd9c4",
    arbiter.Arbiter.spawn_worker: "6abc0d90b0b9",
    arbiter.Arbiter.wait_for_signals: "4abcab1deb7c",
    base.Worker.__init__: "e0f1de2d6057",
    base.Worker.handle_exit: "e2f7159c426d",
    base.Worker.init_process: "114caccd7a0e",
    base.Worker.init_signals: "65442e0602b0",
    base.Worker.notify: "7f509bc4046b",
    base_async.AsyncWorker.__init__: "a3c8f332bcc5",
    base_async.AsyncWorker.handle_request: "913e17a9542a",
    ggevent.GeventWorker: "e8670f94f359",
    body.Body: "2a2afc0b6a50",
    body.ChunkedReader: "c1aa79e0ae04",
    message.Message: "1998788a8a48",
    message.Request: "5fb06ef65d3b",
    parser.Parser: "3a9c06e348c7",
    parser.RequestParser: "7d4a7f9ad925",
    unreader.SocketUnreader: "786a257be09e",
    unreader.Unreader: "84aaa8f91fcd",
    wsgi.Response: "d67f8e6b29d7",
    wsgi.create: "2c35d4a2dc62",
    errors.InvalidChunkSize: "fdbd1bcfded0",
    errors.InvalidHeader: "01f859af6509",
    errors.LimitRequestHeaders: "a7825c75c6b2",
    errors.LimitRequestLine: "8cc8b670805a",
    errors.NoMoreData: "549d75f9be34",
    errors.ParseException: "e95735be2b89",
}


@pytest.mark.parametrize(
    ("part", "digits"), RECORDED.items(), ids=[f"{part.__module__}.{part.__qualname__}" for part in RECORDED]
)
def test_the_source_of_each_internal_is_the_recorded_source(part: Callable[..., Any], digits: str) -> None:
    assert hashlib.sha256(inspect.getsource(part).encode()).hexdigest()[:12] == digits
