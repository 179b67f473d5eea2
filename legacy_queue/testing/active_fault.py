"""Faults that a test has asked for, until they are removed."""

import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from legacy_queue.testing.queue_http import QueueHttp

__tracebackhide__ = True  # pytest shows where the test called this, and no further

_PATH = "/control/v1/faults"


class FaultNeverFired(UserWarning):
    """A fault was asked for, and no request met it: the test did not test what it was for."""


class ActiveFault:
    """A fault, which is removed at the end of a ``with``, with ``remove`` or with the next reset.

    ``fault_id`` is the server's name for it, ``place`` the file and the line of the test that asks for it.
    """

    def __init__(self, http: QueueHttp, wanted: Mapping[str, Any], place: tuple[str, int]) -> None:
        self._http, self._wanted, self._place = http, wanted, place
        self.fault_id = str(http.call("POST", _PATH, wanted)["faultId"])
        self._fired, self._is_over, self._is_named = 0, False, False

    @property
    def fired(self) -> int:
        """How many requests have met it so far."""
        if not self._is_over:
            faults = self._http.call("GET", _PATH)["faults"]
            self._fired = next(
                (one["fired"] for one in faults if one["faultId"] == self.fault_id), self._fired
            )
        return self._fired

    def remove(self) -> int:
        """Remove it, where it is still there; how many requests have met it."""
        if not self._is_over:
            self._fired = self._http.call("DELETE", f"{_PATH}/{self.fault_id}")["fired"]
        self._is_over = True
        return self._fired

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if not self.remove() and not self._is_named and kind is None:
            self._warn()

    def _warn(self) -> None:
        what = ", ".join(f"{name}={value!r}" for name, value in self._wanted.items())
        warnings.warn_explicit(FaultNeverFired(f"this fault never fired: {what}"), None, *self._place)


def check(faults: Iterable[ActiveFault]) -> None:
    """Warn FaultNeverFired of each that is in force and that no request has met, once."""
    unnamed = [one for one in faults if not one._is_over and not one._is_named and not one.fired]
    for fault in unnamed:  # all, before a warning is an error
        fault._is_named = True
    for fault in unnamed:
        fault._warn()


def mark_ended(faults: Iterable[ActiveFault]) -> None:
    """They are removed already: the server was reset."""
    for fault in faults:
        fault._is_over = True
