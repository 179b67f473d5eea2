"""How the requests of a server's process go on beside each other: as greenlets of one thread."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent.util import wrap_errors

from legacy_queue.ports import Flag, Waiter

Result = TypeVar("Result")


def let_others_run() -> None:
    """Let other greenlets run. gevent's ``sleep(0)`` may return 50 times before it looks at connections."""
    gevent.sleep(1e-9)


class GeventWaiter(Waiter):
    """For a process that gevent has patched."""

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)
        else:
            let_others_run()

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
