"""Work that would hold up all requests of a process."""

from collections.abc import Callable
from typing import Any, TypeVar

import gevent
from gevent import monkey
from gevent.util import wrap_errors

Result = TypeVar("Result")


def outside_loop(act: Callable[[], Result]) -> Result:
    """The result of ``act`` from a native thread, where gevent has patched: other greenlets run meanwhile."""
    if not monkey.is_module_patched("threading"):
        return act()
    # wrapped, since gevent's threads would print a traceback
    returned: Any = gevent.get_hub().threadpool.apply(wrap_errors((Exception,), act))
    if isinstance(returned, Exception):
        raise returned
    found: Result = returned
    return found
