"""TLS connections that do not get each other's errors."""

import ssl
from collections.abc import Callable
from functools import wraps
from typing import Any

from gevent.ssl import SSLSocket

_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _clear_errors() -> None:
    """Empty this thread's error queue of OpenSSL. Python does so before it makes a connection."""
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
    """gevent's TLS socket, but it leaves no error behind for another connection.

    OpenSSL has an error queue for each thread, and all connections of gevent share one thread. Python 3.13
    and 3.14 leave a system error in the queue, for example when a client has disconnected. The next
    connection that has to wait would fail with this error. Source: python/cpython, issue 148594.
    """

    read = _clearing(SSLSocket.read)
    write = _clearing(SSLSocket.write)
    send = _clearing(SSLSocket.send)
    do_handshake = _clearing(SSLSocket.do_handshake)
    unwrap = _clearing(SSLSocket.unwrap)
