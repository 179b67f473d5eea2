"""A cache of values that this process read or wrote last. The truth is in storage."""

from collections import OrderedDict
from contextlib import suppress
from typing import Generic, TypeVar

CacheKey = TypeVar("CacheKey")
Cached = TypeVar("Cached")


class SharedLruCache(Generic[CacheKey, Cached]):
    """The ``size`` entries that were used last; safe for several threads.

    No other thread comes between, in any one call of an OrderedDict. So each method is right whatever another
    does between its calls, and none takes a lock: each call of the server asks some of these caches.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[CacheKey, Cached] = OrderedDict()  # the one that was used last is the last

    def get(self, key: CacheKey) -> Cached | None:
        try:
            self._entries.move_to_end(key)
            return self._entries[key]
        except KeyError:
            return None

    def put(self, key: CacheKey, value: Cached) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._size:
            with suppress(KeyError):
                self._entries.popitem(last=False)

    def remove(self, key: CacheKey) -> None:
        """Remove the entry. Safe to repeat."""
        self._entries.pop(key, None)
