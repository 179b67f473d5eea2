"""Runs our gunicorn worker on real sockets, with an application that records its requests."""

import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import gevent
from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.sock import TCPSocket

from legacy_queue.config import Settings
from legacy_queue.server.client_socket import Timeouts
from legacy_queue.server.gunicorn_worker import SETTINGS, GunicornWorker
from legacy_queue.server.tls import ServerTls

LONG = 60.0  # seconds; nothing in these tests takes that long
SHORT = 0.05
GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


@dataclass(frozen=True)
class Tls:
    """The TLS contexts of a server, and of a client that trusts it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def contexts(folder: Path) -> Tls:
    """TLS contexts with a new authority."""
    server = ServerTls(Settings(tls="auto", data_dir=folder))
    assert server.authority
    return Tls(server.context, ssl.create_default_context(cafile=server.authority.certificate))


class Application(BaseApplication):
    """Answers with the length of the body when ``may_answer`` is set, or raises ``failure``."""

    def __init__(self, tls: Tls | None) -> None:
        self.tls_context = tls and tls.server
        self.environs: list[dict[str, Any]] = []
        self.answer = b""
        self.reads = True
        self.failure: Exception | None = None
        self.headers = (("x-of-each-answer", "yes"),)
        self.may_answer = threading.Event()
        self.may_answer.set()
        super().__init__()

    def load_config(self) -> None:
        pass

    def load(self) -> Callable[..., Any]:
        return self.serve

    def end_streams(self) -> None:
        self.may_answer.set()

    def serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.environs.append(environ)
        if self.failure:
            start_response("200 OK", [])
            raise self.failure
        while not self.may_answer.is_set():
            gevent.sleep(0.01)
        body = self.answer or b"%d" % len(environ["wsgi.input"].read() if self.reads else b"")
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


@dataclass
class Served:
    """A gunicorn worker that serves in a thread of its own."""

    address: tuple[str, int]
    tls: Tls | None
    application: Application
    worker: GunicornWorker
    stack: ExitStack = field(default_factory=ExitStack)

    def plain(self, sent: bytes = b"") -> socket.socket:
        """A new connection without TLS."""
        connection = self.stack.enter_context(socket.create_connection(self.address, LONG))
        connection.sendall(sent)
        return connection

    def connect(self, sent: bytes = b"", name: str = "localhost") -> socket.socket:
        connection = self.plain()
        if self.tls:
            connection = self.tls.client.wrap_socket(connection, server_hostname=name)
            self.stack.enter_context(connection)
        connection.sendall(sent)
        return connection

    def stop(self) -> None:
        """Stop the worker like SIGTERM does."""
        self.worker.alive = False
        with suppress(OSError):  # it may have ended already
            os.write(self.worker.PIPE[1], b"!")


@contextmanager
def serving(tls: Tls | None = None, worker_connections: int = 100, **timeouts: float) -> Iterator[Served]:
    """Run a worker with these timeouts in seconds."""
    application = Application(tls)
    config = Config()
    config.set("worker_connections", worker_connections)
    for name, value in SETTINGS.items():
        config.set(name, value)
    logger = Logger(config)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    pipe = os.pipe()
    kind = type("Worker", (GunicornWorker,), {"timeouts": Timeouts(**timeouts), "PIPE": pipe})
    ready: Queue[GunicornWorker] = Queue()

    def run() -> None:
        sock = TCPSocket(address, config, logger, fd=listener.detach())
        # like gunicorn in its process
        own = gevent.socket.socket(sock.FAMILY, socket.SOCK_STREAM, fileno=sock.sock.detach())
        worker = kind(1, os.getppid(), [own], application, 30, config, logger)
        worker.wsgi = application.load()
        gevent.spawn(ready.put, worker)
        worker.run()
        for end in pipe:
            os.close(end)
        worker.tmp.close()

    thread = threading.Thread(target=run)
    thread.start()
    served = Served(address, tls, application, ready.get(timeout=LONG))
    try:
        yield served
    finally:
        application.may_answer.set()
        served.stack.close()
        served.stop()
        thread.join(LONG)
        assert not thread.is_alive()


def answer(connection: socket.socket) -> bytes:
    """Read one complete answer."""
    data = b""
    while b"\r\n\r\n" not in data or not data.partition(b"\r\n\r\n")[2]:
        more = connection.recv(65536)
        assert more, data
        data += more
    return data


def closing(head: bytes) -> bytes:
    return head + b"Connection: close\r\n\r\n"


def reset(connection: socket.socket) -> None:
    """Break the connection with a TCP reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
