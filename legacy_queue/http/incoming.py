"""Bodies of requests as they come in: no request makes others wait for its body."""

import time
from collections.abc import Iterable
from typing import Any

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.http.request_log import Environ, WsgiApp


class FairBodies:
    """The application, where reading a body raises ServiceUnavailable if it comes too slowly.

    gunicorn's worker says so by TimeoutError, and closes the connection as after every error of reading.
    """

    def __init__(self, app: WsgiApp) -> None:
        self._app = app

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        environ["wsgi.input"] = _Body(environ["wsgi.input"])
        return self._app(environ, start_response)


class _Body:
    def __init__(self, body: Any) -> None:
        self._body = body

    def read(self, size: int = -1) -> bytes:
        time.sleep(0)  # everybody else's turn: gevent's recv gives none away while there are bytes
        try:
            return bytes(self._body.read(size))
        except TimeoutError:
            raise ServiceUnavailable("the body came too slowly: send it again") from None
