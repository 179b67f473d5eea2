"""Timers of an earlier version, in queues that this version does not read."""

from legacy_queue.ports.queue import QueueNotFound
from legacy_queue.stores import Storage

_QUEUES = ("claims", "resolved", "deadlines")  # the last marks the version


def take_over(storage: Storage, prefix: str) -> bool:
    """Whether this version may run on the storage, which has been checked.

    Removes the queues of timers that nothing waits for. Reads tasks only where there are such queues, and
    until one is not resolved. Safe to repeat.
    """
    queues = [storage.account.queue(f"{prefix}-{name}") for name in _QUEUES]
    try:
        queues[-1].metadata()
    except QueueNotFound:
        return True
    if storage.tasks.ids("", 1, resolved_too=False):
        return False
    for queue in queues:
        queue.remove()
    return True
