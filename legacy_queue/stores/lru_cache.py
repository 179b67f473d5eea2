"""A cache of values that this process read or wrote last. The truth is in storage."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

CacheKey = TypeVar("CacheKey")
Cached = TypeVar("Cached")


class SharedLruCache(Generic[CacheKey, Cached]):
    """The ``size`` entries that were used last; safe for several threads.

    It needs the lock: the keys of some caches compare in Python, where another thread may come between, and
    two threads in one OrderedDict then end the process.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[CacheKey, Cached] = OrderedDict()  # the one that was used last is the last
        self._lock = Lock()

    def get(self, key: CacheKey) -> Cached | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key]

    def put(self, key: CacheKey, value: Cached) -> None:
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def remove(self, key: CacheKey) -> None:
        """Remove the entry. Safe to repeat."""
        with self._lock:
            self._entries.pop(key, None)
