"""How many connections a process serves with the file descriptors that it may open."""

import resource

from legacy_queue.adapters.azure.connection import MAX_IDLE as MAX_TO_STORAGE
from legacy_queue.config import Settings

_MAX_CONNECTIONS = 4000
_MIN_CONNECTIONS = 32
_OF_PROCESS = 64  # standard streams, event loop, listener, pipes, logs, and a reserve
_OF_BROKER = 16
_OF_BACKGROUND = 48  # connections to storage of what no request asks for
_UNLIMITED = 1024 * 1024


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS says "unlimited" and does not take it
        return soft
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


def max_connections(limit: int, settings: Settings) -> int:
    """How many connections of clients leave room for all else within ``limit`` open files.

    With storage over HTTP a request may need a connection of its own to it, beside those that are kept.
    """
    kept, for_each = (0, 1) if settings.storage == "memory" else (3 * MAX_TO_STORAGE + _OF_BACKGROUND, 2)
    kept += _OF_BROKER if settings.amqp_url else 0
    return max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, (limit - _OF_PROCESS - kept) // for_each))
