"""How the requests of a server's process go on beside each other: as greenlets of one thread."""

from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent.util import wrap_errors

from legacy_queue.ports import Flag, Waiter

Result = TypeVar("Result")


class GeventWaiter(Waiter):
    """For a process that gevent has patched."""

    def sleep(self, seconds: float) -> None:
        gevent.sleep(max(seconds, 1e-9))  # after 0 it looks at connections only every fiftieth time

    def wait(self, flag: Flag, seconds: float) -> bool:
        return flag.wait(seconds)

    def run_long(self, act: Callable[[], Result]) -> Result:
        """The result of ``act`` from a native thread."""
        # wrapped, since gevent's threads would print a traceback
        returned: Any = gevent.get_hub().threadpool.apply(wrap_errors((Exception,), act))
        if isinstance(returned, Exception):
            raise returned
        found: Result = returned
        return found
