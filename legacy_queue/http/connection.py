"""The connection of a request: its body as it arrives, and whether the client is still connected."""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from legacy_queue.domain.errors import MalformedPayload, ServiceUnavailable


class FairBody:
    """A request's body that makes no other request wait.

    A read raises ServiceUnavailable on the TimeoutError of gunicorn's worker, and MalformedPayload on any
    other error: chunks that are none, a connection that ends. gunicorn closes the connection after it.
    """

    def __init__(self, body: Any) -> None:
        self._body = body

    def read(self, size: int = -1) -> bytes:
        time.sleep(0)  # let others run: gevent's recv does not yield while there are bytes
        try:
            return bytes(self._body.read(size))
        except TimeoutError:
            raise ServiceUnavailable("the body came too slowly: send it again") from None
        except Exception as error:  # noqa: BLE001  whatever gunicorn's is
            raise MalformedPayload(f"the body cannot be read ({type(error).__name__})") from None


def disconnected(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Whether the client has closed its side of the connection, or the connection is broken.

    The answer can be asked for at any time, from any thread; it costs a system call and reads nothing.
    Only gunicorn says which connection that is; elsewhere the client counts as connected.
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
