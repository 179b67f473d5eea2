"""The connection of a request: its body as it arrives, and whether the client has disconnected."""

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from legacy_queue.domain.errors import MalformedPayload, ServiceUnavailable

_YIELD_AFTER = 64 * 1024  # bytes
_ESTABLISHED = 1  # TCP_ESTABLISHED in the kernel's include/net/tcp_states.h


class TimedBody:
    """A request's body. Reading it does not block other requests.

    A read raises ServiceUnavailable on the TimeoutError of gunicorn's worker, and MalformedPayload on any
    other error, such as malformed chunks or a closed connection. gunicorn closes the connection then.
    """

    def __init__(self, body: Any) -> None:
        self._body = body
        self._read = 0

    def read(self, size: int = -1) -> bytes:
        if self._read >= _YIELD_AFTER:
            self._read = 0
            time.sleep(0)  # let other greenlets run: gevent's recv does not yield while there are bytes
        try:
            data = bytes(self._body.read(size))
            self._read += len(data)
            return data
        except TimeoutError:
            raise ServiceUnavailable("the body came too slowly: send it again") from None
        except Exception as error:  # noqa: BLE001  gunicorn has many
            raise MalformedPayload(f"the body cannot be read ({type(error).__name__})") from None


def disconnected(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Whether the client has closed its side of the connection, or the connection is broken.

    The function may be called at any time. It costs a system call and reads nothing. Only the server of
    ``legacy-queue serve`` hands over the connection; under another server the client counts as connected.
    """
    client: Any = environ.get("gunicorn.socket")

    def is_disconnected() -> bool:
        try:
            state: int = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:  # the server has closed it
            return True
        return state != _ESTABLISHED

    return is_disconnected if client else lambda: False
