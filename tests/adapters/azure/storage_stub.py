"""A fake storage whose answers a test chooses."""

import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from legacy_queue.local_processes.azurite import ACCOUNT, DEFAULT_KEY

# bytes to send, or an action on the connection. None means no answer during the test
Reply = bytes | Callable[[socket.socket], None] | None

REQUEST_ID = "x-ms-request-id: 1"  # every answer of Azure and Azurite has this header
NO_CONTENT = f'HTTP/1.1 204 Word\r\n{REQUEST_ID}\r\netag: W/"1"\r\nx-ms-popreceipt: r\r\n\r\n'.encode()


def answer(status: int, body: bytes = b"", *headers: str) -> bytes:
    """An answer like the storage's."""
    return proxy_answer(status, body, REQUEST_ID, *headers)


def proxy_answer(status: int, body: bytes, *headers: str) -> bytes:
    """An answer like a proxy's or another server's."""
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 {status} Word\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def refused(status: int, code: str = "") -> bytes:
    return answer(status, b"", *([f"x-ms-error-code: {code}"] if code else []))


def hang_up(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def then_hang_up(reply: bytes) -> Reply:
    def act(connection: socket.socket) -> None:
        connection.sendall(reply)
        hang_up(connection)

    return act


def connection_string(url: str) -> str:
    """The connection string of an account whose services are all at this URL."""
    endpoints = "".join(f"{service}Endpoint={url};" for service in ("Blob", "Queue", "Table"))
    return f"AccountName={ACCOUNT};AccountKey={DEFAULT_KEY};{endpoints}"


class Stub(socketserver.ThreadingTCPServer):
    """Answers each request with the next of its ``replies``, then all other requests with the last."""

    request_queue_size = 256
    daemon_threads = True  # a client may keep its connection open

    def __init__(self, *replies: Reply, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.heard: list[bytes] = []  # the complete requests
        self.connections = 0
        self._replies, self._context = list(replies), context
        self._lock, self._done = threading.Lock(), threading.Event()
        at = f"https://localhost:{self.port}" if context else f"http://127.0.0.1:{self.port}"
        self.url = f"{at}/{ACCOUNT}"
        self._thread = threading.Thread(target=self.serve_forever, args=[0.01])

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def methods(self) -> list[str]:
        return [request.decode("latin-1").partition(" ")[0] for request in self.heard]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def finish_request(self, request: Any, _client: object) -> None:
        with suppress(OSError):
            connection = self._context.wrap_socket(request, server_side=True) if self._context else request
            with connection:
                with self._lock:
                    self.connections += 1
                while heard := read_request(connection):
                    with self._lock:
                        self.heard.append(heard)
                        reply = self._replies[min(len(self.heard), len(self._replies)) - 1]
                    if reply is None:
                        self._done.wait()
                    elif callable(reply):
                        reply(connection)
                    else:
                        connection.sendall(reply)


def read_request(connection: socket.socket) -> bytes:
    """Read a complete request. Empty if the connection has ended."""
    request = b""
    while b"\r\n\r\n" not in request:
        received = connection.recv(65536)
        if not received:
            return b""
        request += received
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line.partition(b": ") for line in head.lower().split(b"\r\n")[1:]]
    length = int({name: value for name, _, value in lines}.get(b"content-length", b"0"))
    while len(body) < length:
        received = connection.recv(65536)
        if not received:
            return b""
        body += received
    return head + b"\r\n\r\n" + body
