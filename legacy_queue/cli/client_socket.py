"""A client's connection, which does not wait for ever for a client that does not read."""

import fcntl
import struct
import termios
from contextlib import suppress
from typing import Any

from gevent import socket as gevent_socket


class ClientSocket(gevent_socket.socket):
    """A connection whose time-out is for each byte of an answer, not for the whole."""

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Raises TimeoutError once the client has taken nothing for as long as the time-out."""
        left, at_once = memoryview(data), self._sock  # type: ignore[attr-defined]
        with suppress(BlockingIOError):
            left = left[at_once.send(data, flags) :]
        queued = self.queued() if left else 0
        while left:
            try:
                left = left[self.send(left, flags) :]
            except TimeoutError:
                before, queued = queued, self.queued()
                if queued >= before:  # else it is slow: a socket takes more once much of its buffer is free
                    raise
            else:
                queued = self.queued()

    def queued(self) -> int:
        """Bytes that the client has not acknowledged. Source: tcp(7), SIOCOUTQ."""
        return int(struct.unpack("i", fcntl.ioctl(self.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
