"""Whether the client of a request is still there."""

import socket
from collections.abc import Callable, Mapping
from typing import Any


def hung_up(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Whether the client has closed its side of the connection, or the connection is broken: asked at any
    time, from any thread, at the cost of a system call, and nothing is read.

    Only gunicorn says which connection that is; elsewhere nobody hangs up.
    """
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return lambda: False
    connection = getattr(connection, "_sock", connection)  # gevent's own would wait

    def is_closed() -> bool:
        try:
            return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    return is_closed
