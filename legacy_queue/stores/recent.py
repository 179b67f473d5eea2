"""What this process saw last, bounded in number. Never the truth: storage is."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """An LRU cache of ``size`` entries; safe for several threads."""

    def __init__(self, size: int) -> None:
        self._size, self._lock = size, Lock()
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            self._put(key, value)

    def put_instead(self, of: Value | None, key: Key, value: Value) -> None:
        """``put``, unless what was there, ``of`` or None for nothing, has been replaced meanwhile."""
        with self._lock:
            if self._entries.get(key) is of:
                self._put(key, value)

    def _put(self, key: Key, value: Value) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def forget(self, key: Key) -> None:
        """Drop the entry if it is there."""
        with self._lock:
            self._entries.pop(key, None)
