"""Holds the active faults, and counts how often each has happened."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from legacy_queue.domain.errors import InputError, ResourceNotFound
from legacy_queue.services.control.fault import Fault, Target, fault_of

_MAX_FAULTS = 1000
_SEEDS = 2**31


@dataclass
class _Counted:
    """A fault with its counts: ``matched`` requests matched it, and it happened to ``fired`` of them."""

    fault: Fault
    matched: int = 0
    fired: int = 0

    def to_wire(self) -> Mapping[str, Any]:
        return {"faultId": self.fault.fault_id, **self.fault.wire, "fired": self.fired}

    def fires(self) -> bool:
        """Count a matching request. Returns whether the fault happens to it."""
        if self.fired == self.fault.wire.get("times"):
            return False
        self.matched += 1
        is_chosen = self.fault.is_chosen(self.matched - 1)
        self.fired += is_chosen
        return is_chosen


class FaultRegistry:
    """The faults that a test has added for the ``targets``. Several threads may use it."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._counted: dict[str, _Counted] = {}  # in the order in which they were added
        self._lock = Lock()

    def add(self, wire: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add the fault that a valid ``wire`` asks for. Returns the fault as JSON. Raises InputError."""
        fault = fault_of(wire, secrets.token_hex(4), secrets.randbelow(_SEEDS), self._targets)
        with self._lock:
            if len(self._counted) == _MAX_FAULTS:
                raise InputError(
                    f"there are already {_MAX_FAULTS} faults, and no more are possible: remove some"
                )
            counted = self._counted[fault.fault_id] = _Counted(fault)
        return counted.to_wire()

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Returns all faults, the oldest first."""
        with self._lock:
            return [counted.to_wire() for counted in self._counted.values()]

    def remove(self, fault_id: str) -> Mapping[str, Any]:
        """Remove the fault. Returns its last state. Raises ResourceNotFound."""
        with self._lock:
            counted = self._counted.pop(fault_id, None)
        if counted is None:
            raise ResourceNotFound(f"there is no fault {fault_id}: it was removed or never added")
        return counted.to_wire()

    def next(
        self,
        endpoint: str,
        task_id: str = "",
        worker: Callable[[], str] = str,
        *,
        has_message: bool = False,
    ) -> Fault | None:
        """Returns the fault that happens to this request, or None. If several match, the oldest happens.

        ``worker`` returns "" for an unknown worker. With ``has_message``, only faults that need a
        received message can happen: see ``Fault``.
        """
        if not self._counted:
            return None
        for counted in self._at(endpoint, has_message):
            # outside the lock, because ``worker`` may ask storage
            if counted.fault.is_for(task_id, worker):
                with self._lock:
                    if counted.fires():
                        return counted.fault
        return None

    def _at(self, endpoint: str, has_message: bool) -> Sequence[_Counted]:
        with self._lock:
            return [
                counted
                for counted in self._counted.values()
                if counted.fault.endpoint == endpoint and counted.fault.needs_message == has_message
            ]
