"""A client's connection over TLS, with the time-outs of a plain one."""

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
    """Plain until the handshake is done. TLS works on memory: all waiting is done by the plain socket.

    gevent's own SSL socket waits anew for each byte that arrives of a record; here a time-out is for the
    whole record. The end of the connection without TLS's own end is an end.
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
                    self._send_queued()  # an alert that says why
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
        """As of a plain socket; ``flags`` are of use before the handshake only."""
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
        """As of a plain socket."""
        if self._tls is None:
            super().sendall(data, flags)
            return
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]
            if not left or self._outgoing.pending >= _QUEUED:
                self._send_queued()

    def is_closed(self) -> bool:
        """As of a plain socket. What has come is decrypted, to tell TLS's own end from a next request."""
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
        """An end of writing is said in TLS too."""
        if how == socket.SHUT_WR:
            self._say_end()
        super().shutdown(how)

    def close(self) -> None:
        self._say_end()
        super().close()

    def _say_end(self) -> None:
        """To a client that takes it at once: nobody waits for it."""
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
