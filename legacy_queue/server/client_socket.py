"""A client's connection, which has to take its answers."""

import socket
from contextlib import suppress
from typing import Any, ClassVar

import structlog

log = structlog.get_logger()

PIECE = 64 * 1024  # bytes of an answer
MAX_UNSENT = 128 * 1024 * 1024  # bytes of answers in this process that wait for their clients


class ClientSocket:
    """A client's connection, plain or over TLS, which has to take its answers.

    If more than MAX_UNSENT wait for their clients, the connection that waits longest is shut down.
    """

    send_timeout = 60.0  # seconds for each piece: a KiB for each second
    unsent: ClassVar[dict["ClientSocket", int]] = {}  # bytes, the longest wait first

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def sendall(self, data: Any) -> None:
        """Raises TimeoutError for a client that is too slow."""
        left = memoryview(data)
        self._connection.settimeout(self.send_timeout)
        try:
            while left:
                self.unsent[self] = len(left)
                self._make_room()
                left = left[self._connection.send(left[:PIECE]) :]
        except TimeoutError:
            raise TimeoutError("the client does not read its answer") from None
        finally:
            self.unsent.pop(self, None)
            self._connection.settimeout(None)

    def _make_room(self) -> None:
        while len(self.unsent) > 1 and sum(self.unsent.values()) > MAX_UNSENT:
            longest = next(iter(self.unsent))
            del self.unsent[longest]
            log.info("connection-aborted", error="the client does not read its answer, others need its place")
            shut(longest.fileno(), socket.SHUT_RDWR)


def shut(connection: int, how: int) -> None:
    """Shut down the connection of a file descriptor, through another object.

    gevent's would end a wait for it with an error, and TLS would send its end.
    """
    with suppress(OSError), socket.fromfd(connection, socket.AF_INET, socket.SOCK_STREAM) as same:
        same.shutdown(how)
