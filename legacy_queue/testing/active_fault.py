"""The faults that a test has added."""

import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from legacy_queue.queue_client import QueueClient

__tracebackhide__ = True  # so that a traceback ends at the test's own call

_PATH = "/control/v1/faults"


class FaultNeverFired(UserWarning):
    """No request met a fault, so the test did not show what it was written for."""


class ActiveFault:
    """A fault. It is in force until the end of its ``with``, until ``remove``, or until the next reset.

    ``fault_id`` is its id at the server. ``place`` is the file and the line of the test that added it.
    """

    def __init__(self, http: QueueClient, wanted: Mapping[str, Any], place: tuple[str, int]) -> None:
        self._http = http
        self._wanted = wanted
        self._place = place
        self.fault_id = str(http.call("POST", _PATH, wanted)["faultId"])
        self._fired = 0
        self._is_removed = False
        self._is_warned_of = False

    @property
    def fired(self) -> int:
        """How many requests have met the fault so far."""
        if not self._is_removed:
            faults = self._http.call("GET", _PATH)["faults"]
            self._fired = next(
                (fault["fired"] for fault in faults if fault["faultId"] == self.fault_id), self._fired
            )
        return self._fired

    def remove(self) -> int:
        """Remove the fault, if it is still in force. Returns how many requests have met it."""
        if not self._is_removed:
            self._fired = self._http.call("DELETE", f"{_PATH}/{self.fault_id}")["fired"]
        self._is_removed = True
        return self._fired

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if not self.remove() and not self._is_warned_of and kind is None:
            self._warn()

    def _warn(self) -> None:
        """Warn FaultNeverFired, with the line of the test as its place."""
        what = ", ".join(f"{name}={value!r}" for name, value in self._wanted.items())
        warnings.warn_explicit(FaultNeverFired(f"this fault never fired: {what}"), None, *self._place)
