"""Passes requests to the current application, which a reset replaces."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from threading import Condition
from typing import Any

import structlog
from werkzeug.wsgi import ClosingIterator

from legacy_queue.http.request_log import Environ, WsgiApp

log = structlog.get_logger()

_TIMEOUT = timedelta(seconds=2)  # within which requests under way should end


class CurrentApp:
    """A WSGI application that passes each request to the current application."""

    def __init__(self, app: WsgiApp, timeout: timedelta = _TIMEOUT) -> None:
        """``timeout`` is how long a replacement waits for requests under way."""
        self._app = app
        self._timeout = timeout.total_seconds()
        self._changed = Condition()
        self._under_way: set[object] = set()  # changed without a lock, which would slow down each request
        self._replacing = 0
        self._is_replaced = False

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        answer = object()
        self._under_way.add(answer)
        while self._is_replaced:  # read after the addition: either this waits, or the replacement does
            self._end(answer)
            with self._changed:
                self._changed.wait_for(lambda: not self._is_replaced)
            self._under_way.add(answer)
        try:
            return ClosingIterator(self._app(environ, start_response), partial(self._end, answer))
        except BaseException:
            self._end(answer)
            raise

    def replace(self, end: Callable[[], None], make: Callable[[], WsgiApp]) -> None:
        """Calls ``end``, waits until the requests under way have ended, then serves the result of ``make``.

        New requests wait meanwhile. The request that calls this is not waited for. If ``make`` raises an
        exception, this raises it too, and the old application stays.
        """
        with self._changed:
            self._replacing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_replaced)
            self._is_replaced = True
        try:
            end()
            with self._changed:
                is_idle = self._changed.wait_for(self._is_idle, self._timeout)
            if not is_idle:
                log.warning("requests-not-finished", count=len(self._under_way) - self._replacing)
            self._app = make()
        finally:
            with self._changed:
                self._replacing -= 1
                self._is_replaced = False
                self._changed.notify_all()

    def _is_idle(self) -> bool:
        return len(self._under_way) <= self._replacing

    def _end(self, answer: object) -> None:
        self._under_way.discard(answer)
        if self._is_replaced:
            with self._changed:
                self._changed.notify_all()
