"""A cache of values that this process read or wrote last. The truth is in storage."""

from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

CacheKey = TypeVar("CacheKey")
Cached = TypeVar("Cached")


class SharedLruCache(Generic[CacheKey, Cached]):
    """The ``size`` entries that were used last; safe for several threads, as cachetools alone is not."""

    def __init__(self, size: int) -> None:
        self._entries: LRUCache[CacheKey, Cached] = LRUCache(size)
        self._lock = Lock()

    def get(self, key: CacheKey) -> Cached | None:
        with self._lock:
            return self._entries.get(key)

    def put(self, key: CacheKey, value: Cached) -> None:
        with self._lock:
            self._entries[key] = value

    def remove(self, key: CacheKey) -> None:
        """Remove the entry. Safe to repeat."""
        with self._lock:
            self._entries.pop(key, None)
