"""Lets the requests of a server process run concurrently, as greenlets of one thread."""

from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent.util import wrap_errors

from legacy_queue.ports import Flag, Waiter

Result = TypeVar("Result")


class GeventWaiter(Waiter):
    """The Waiter of a process that gevent has patched."""

    def sleep(self, seconds: float) -> None:
        gevent.sleep(max(seconds, 1e-9))  # with 0, gevent would look at connections only every fiftieth time

    def wait(self, flag: Flag, seconds: float) -> bool:
        return flag.wait(seconds)

    def run_long(self, act: Callable[[], Result]) -> Result:
        """Run ``act`` in a native thread and return its result."""
        # wrapped, because gevent's threads would print a traceback
        returned: Any = gevent.get_hub().threadpool.apply(wrap_errors((Exception,), act))
        if isinstance(returned, Exception):
            raise returned
        found: Result = returned
        return found
