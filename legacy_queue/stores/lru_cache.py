"""Caches values that this process has read or written. They may be outdated: the truth is in storage."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

CacheKey = TypeVar("CacheKey")
Cached = TypeVar("Cached")


class SharedLruCache(Generic[CacheKey, Cached]):
    """Keeps the ``size`` entries that were used last. Several threads may use it.

    The lock is needed: the keys of some caches are compared by Python code, so another thread may run in
    between, and two threads in one OrderedDict can crash the process.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # the entry that was used last is at the end
        self._entries: OrderedDict[CacheKey, Cached] = OrderedDict()
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
