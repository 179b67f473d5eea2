"""A client's connection over TLS, with the timeouts of a plain connection."""

import errno
import socket
import ssl
import time
from contextlib import suppress
from typing import Any

from legacy_queue.cli.response import ClientSocket

_RECEIVED = 32 * 1024  # bytes of ciphertext at once: a record has at most 16 KiB and a little
_QUEUED = 64 * 1024  # bytes of ciphertext, before they are sent


class PlainHttp(Exception):
    """The client speaks HTTP without TLS."""


class TlsSocket(ClientSocket):
    """A plain socket until the handshake is done. TLS works in memory, and only the plain socket waits.

    gevent's SSL socket starts its timeout again with each byte of a record. Here the timeout is for the whole
    record. A connection that ends without the end of TLS has ended.
    """

    _tls: ssl.SSLObject | None = None
    _peeked = b""

    def handshake(self, context: ssl.SSLContext, timeout: float) -> None:
        """Raises PlainHttp, TimeoutError after ``timeout`` seconds, and OSError."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        end = time.monotonic() + timeout
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_queued()
            except ssl.SSLError as error:
                if error.reason == "HTTP_REQUEST":
                    raise PlainHttp from None
                with suppress(OSError):
                    self._send_queued()  # an alert with the reason
                raise
            else:
                self._send_queued()
                self._tls = tls
                return
            self.settimeout(_left(end))
            if not (data := super().recv(_RECEIVED)):
                raise ConnectionResetError(errno.ECONNRESET, "the client ended the handshake")
            self._incoming.write(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """As a plain socket. ``flags`` count before the handshake only."""
        if self._tls is None:
            return bytes(super().recv(size, flags))
        if self._peeked:
            data, self._peeked = self._peeked, b""
            return data
        timeout = self.gettimeout()
        end = time.monotonic() + timeout if timeout else 0.0
        try:
            while True:
                if self._incoming.pending or self._tls.pending():
                    with suppress(ssl.SSLWantReadError):
                        return self._tls.read(size)
                if not (data := super().recv(_RECEIVED)):
                    return b""
                self._incoming.write(data)
                if timeout:
                    self.settimeout(_left(end))
        finally:
            self.settimeout(timeout)

    def sendall(self, data: Any, flags: int = 0) -> None:
        """As a plain socket."""
        if self._tls is None:
            super().sendall(data, flags)
            return
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
            self.held = len(left)
            if not left or self._outgoing.pending >= _QUEUED:
                self._send_queued()

    def is_closed(self) -> bool:
        """As a plain socket. Decrypts the bytes that have arrived: the end of TLS, or the next request."""
        if self._tls is None or self._peeked:
            return self._tls is None and super().is_closed()
        timeout = self.gettimeout()
        try:
            self.settimeout(0)
            self._peeked = self.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.settimeout(timeout)
        return not self._peeked

    def shutdown(self, how: int) -> None:
        """As a plain socket. The end of writing ends TLS too."""
        if how == socket.SHUT_WR:
            self._send_end()
        super().shutdown(how)

    def close(self) -> None:
        self._send_end()
        super().close()

    def _send_end(self) -> None:
        """Send the end of TLS, without waiting for the client to take it."""
        tls, self._tls = self._tls, None
        if tls:
            with suppress(OSError):
                tls.unwrap()
            with suppress(OSError):
                self.at_once.send(self._outgoing.read())

    def _send_queued(self) -> None:
        if self._outgoing.pending:
            super().sendall(self._outgoing.read())


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
