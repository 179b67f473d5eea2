"""Connections over TLS, of which none gets the error of another."""

import ssl
from collections.abc import Callable
from functools import wraps
from typing import Any

from gevent.ssl import SSLSocket

_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _clear_errors() -> None:
    """Empty OpenSSL's queue of errors of this thread, which Python does before it makes a connection."""
    _CONTEXT.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)


def _clearing(operation: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(operation)
    def act(*args: Any, **kwargs: Any) -> Any:
        try:
            return operation(*args, **kwargs)
        except ssl.SSLError:
            raise
        except OSError:
            _clear_errors()
            raise

    return act


class TlsSocket(SSLSocket):
    """gevent's, which leaves no error behind.

    OpenSSL queues errors for each thread, and gevent's connections share one. Python 3.13 and 3.14 leave a
    system error there, as of a client that has disconnected; the next connection that has to wait would fail
    with it.
    Source: python/cpython, issue 148594.
    """

    read = _clearing(SSLSocket.read)
    write = _clearing(SSLSocket.write)
    send = _clearing(SSLSocket.send)
    do_handshake = _clearing(SSLSocket.do_handshake)
    unwrap = _clearing(SSLSocket.unwrap)
