"""gunicorn's worker and arbiter as `legacy-queue serve` runs them: to be imported once gevent has patched."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, runtime_checkable

import gevent
import structlog
from gunicorn import arbiter
from gunicorn.app.base import BaseApplication
from gunicorn.http.errors import LimitRequestHeaders, LimitRequestLine, ParseException
from gunicorn.util import write_error
from gunicorn.workers.ggevent import GeventWorker

from legacy_queue.adapters.azurite import Azurite, AzuriteUnavailable

log = structlog.get_logger()

_DISCARDED = 64 * 1024  # bytes at once of what nobody reads


@runtime_checkable
class EndsStreams(Protocol):
    """An application whose event streams can be ended."""

    def end_streams(self) -> None:
        """The process is about to end: event streams end too, and nothing new begins in the background."""


class Worker(GeventWorker):
    """gunicorn's own, with three things changed.

    Before it ends it waits for requests under way, but not for idle connections. What it cannot read
    is not repeated in the log: a request line may hold a SAS, a header a MAC. And what is left of a body
    when its request is answered keeps nobody else waiting.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections: dict[Any, socket.socket] = {}  # by the greenlet that serves it
        self._idle: set[socket.socket] = set()
        self._fresh: set[socket.socket] = set()  # connections on which nothing was heard yet

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection."""
        greenlet = gevent.getcurrent()
        self._connections[greenlet] = client
        self._fresh.add(client)
        try:
            super().handle(listener, client, addr)
        finally:
            self._fresh.discard(client)
            del self._connections[greenlet]

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> bool:
        """Answer one request, and discard what is left of its body: else the answer might never be read."""
        try:
            return super().handle_request(listener_name, req, sock, addr)
        finally:
            body = req.body
            if not body.failed:
                body.failed = True  # gunicorn closes the connection, unless the end is reached
                with self.timeout_ctx(), suppress(Exception):
                    while body.read(_DISCARDED):
                        gevent.sleep(0)
                    body.failed = False

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:  # noqa: ARG002
        """Answer to what never reached the application."""
        match exc:
            case LimitRequestLine():
                status, reason = 414, "URI Too Long"
            case LimitRequestHeaders():
                status, reason = 431, "Request Header Fields Too Large"
            case ParseException():
                status, reason = 400, "Bad Request"
            case _:
                status, reason = 500, "Internal Server Error"
        tell = log.info if status < 500 else log.error
        tell("connection-given-up", status=status, error=type(exc).__name__)
        with suppress(OSError):
            write_error(client, status, reason, "")

    @contextmanager
    def timeout_ctx(self) -> Iterator[None]:  # type: ignore[override]
        """Around the wait for a connection's next request: gunicorn's name for it."""
        client = self._connections[gevent.getcurrent()]
        self._idle.add(client)
        try:
            with super().timeout_ctx():  # type: ignore[attr-defined]
                yield
        finally:
            self._idle.discard(client)
            self._fresh.discard(client)

    def notify(self) -> None:
        """Called every second, also while it ends: an idle connection then hears no further request.

        What has arrived already is still read, and answered; who has just connected has a second for it.
        """
        super().notify()
        if not self.alive:
            assert isinstance(self.app, EndsStreams)  # noqa: S101
            self.app.end_streams()
            for client in self._idle - self._fresh:
                # by another object: gevent's own would interrupt the wait with an error
                with suppress(OSError), client.dup() as same:
                    same.shutdown(socket.SHUT_RD)
            self._fresh.clear()


class Arbiter(arbiter.Arbiter):
    """gunicorn's own, which also looks after Azurite once a second.

    An Azurite that died without a last save may have lost what the server's processes remember, even tables
    and queues: they are replaced once it is back, and the new ones begin by making the tables.
    """

    def __init__(self, app: BaseApplication, azurite: Azurite | None) -> None:
        self._azurite = azurite
        super().__init__(app)

    def murder_workers(self) -> None:
        if self._azurite and not self._azurite.alive():
            log.error("azurite-died")
            try:
                self._azurite.restart()
            except AzuriteUnavailable as error:
                log.error("azurite-not-restarted", why=str(error))
            else:
                log.warning("azurite-restarted")
                self.reload()
        super().murder_workers()
