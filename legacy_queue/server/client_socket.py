"""A client's connection, plain and over TLS, which has to take its answers."""

import socket
from contextlib import suppress
from typing import Any, ClassVar

import structlog
from gevent import socket as gevent_socket
from gevent.ssl import SSLContext, SSLSocket

log = structlog.get_logger()

PIECE = 64 * 1024  # bytes of an answer
MAX_UNSENT = 128 * 1024 * 1024  # bytes of answers in this process that wait for their clients


class AnswerSocket:
    """A client's connection, which has to take its answers.

    If more than MAX_UNSENT wait for their clients, the connection that waits longest is shut down.
    """

    send_timeout = 60.0  # seconds for each piece: a KiB for each second
    unsent: ClassVar[dict["AnswerSocket", int]] = {}  # bytes, the longest wait first

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Raises TimeoutError for a client that is too slow."""
        connection: Any = self
        left = memoryview(data)
        connection.settimeout(self.send_timeout)
        try:
            while left:
                self.unsent[self] = len(left)
                self._make_room()
                super().sendall(left[:PIECE], flags)  # type: ignore[misc]
                left = left[PIECE:]
        except TimeoutError:
            raise TimeoutError("the client does not read its answer") from None
        finally:
            self.unsent.pop(self, None)
            connection.settimeout(None)

    def _make_room(self) -> None:
        while len(self.unsent) > 1 and sum(self.unsent.values()) > MAX_UNSENT:
            longest: Any = next(iter(self.unsent))
            del self.unsent[longest]
            log.info("connection-aborted", error="the client does not read its answer, others need its place")
            shut(longest.fileno(), socket.SHUT_RDWR)


class ClientSocket(AnswerSocket, gevent_socket.socket):
    """A client's connection."""


class TlsSocket(AnswerSocket, SSLSocket):
    """A client's connection over TLS."""


class TlsContext(SSLContext):
    """Its sockets wait in their greenlet."""

    sslsocket_class = TlsSocket


def shut(connection: int, how: int) -> None:
    """Shut down the connection of a file descriptor, through another object.

    gevent's would end a wait for it with an error, and TLS would send its end.
    """
    with suppress(OSError), socket.fromfd(connection, socket.AF_INET, socket.SOCK_STREAM) as same:
        same.shutdown(how)
