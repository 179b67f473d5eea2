"""Bodies of requests as they come in: nobody else waits for them, and nobody waits for them for ever."""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from legacy_queue.domain.errors import ServiceUnavailable

WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]


class FairBodies:
    """The application, where reading a body raises ServiceUnavailable after ``patience`` without a byte.

    gunicorn then closes the connection, as after every error of reading.
    """

    def __init__(self, app: WsgiApp, patience: timedelta) -> None:
        self._app, self._patience = app, patience

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        connection = environ.get("gunicorn.socket")  # only gunicorn says which it is
        environ["wsgi.input"] = _Body(environ["wsgi.input"], connection, self._patience)
        return self._app(environ, start_response)


class _Body:
    def __init__(self, body: Any, connection: Any, patience: timedelta) -> None:
        self._body, self._connection, self._patience = body, connection, patience

    def read(self, size: int = -1) -> bytes:
        time.sleep(0)  # everybody else's turn: gevent's recv gives none away while there are bytes
        if self._connection is None:
            return bytes(self._body.read(size))
        before = self._connection.gettimeout()
        self._connection.settimeout(self._patience.total_seconds())
        try:
            return bytes(self._body.read(size))
        except TimeoutError:
            raise ServiceUnavailable(
                f"nothing of the body came for {self._patience.total_seconds():g} seconds: send it again"
            ) from None
        finally:
            self._connection.settimeout(before)
