"""The number of connections that a process serves within its limit of file descriptors."""

import resource

from legacy_queue.config import Settings
from legacy_queue.wiring import MAX_TO_STORAGE

_MAX_CONNECTIONS = 4000
_MIN_CONNECTIONS = 32
_FOR_PROCESS = 64  # standard streams, event loop, listener, pipes, logs, and a reserve
_FOR_BROKER = 16
_FOR_BACKGROUND = 48  # connections to storage of the background work
_UNLIMITED = 1024 * 1024


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit; the limit that is then in force."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _UNLIMITED if hard == resource.RLIM_INFINITY else hard


def max_connections(limit: int, settings: Settings) -> int:
    """The number of client connections that fit into ``limit`` open files, beside all other files.

    With storage over HTTP a request may need one more connection, beyond the pool to storage.
    """
    kept, for_each = (0, 1) if settings.is_embedded else (3 * MAX_TO_STORAGE + _FOR_BACKGROUND, 2)
    kept += _FOR_BROKER if settings.amqp_url else 0
    return max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, (limit - _FOR_PROCESS - kept) // for_each))
