"""Faults that a test injects: the requests that a fault is for, and its effect."""

import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from legacy_queue.domain.artifact import UPLOAD
from legacy_queue.domain.errors import InputError
from legacy_queue.domain.messages import DELETE, RECEIVE
from legacy_queue.domain.times import given, parse_duration

MAX_DELAY = timedelta(minutes=10)
EXPIRED = "expired"
# less than the drift for which a signed URL is valid before it is signed
EXPIRED_URL_AGE = timedelta(minutes=7)

Effect = Literal["status", "drop", "sas", "double", "lose", "stale"]

_EFFECTS: tuple[Effect, ...] = ("status", "drop", "sas", "double", "lose", "stale")
_ENDPOINT_OF_EFFECT: Mapping[str, str] = {
    "sas": "pollTaskUrls",
    "double": RECEIVE,
    "lose": RECEIVE,
    "stale": RECEIVE,
}


@dataclass(frozen=True)
class Target:
    """An endpoint or a use of signed URLs, and whether its requests name a task and a worker."""

    endpoint: str
    has_task: bool
    has_worker: bool


SIGNED_URLS = (Target(RECEIVE, True, False), Target(DELETE, True, False), Target(UPLOAD, True, False))


@dataclass(frozen=True)
class Fault:
    """``wire`` is the request for the fault. ``effect`` is None for a delay alone.

    ``needs_message``: the fault happens after a message is received, and to the task of that message.
    """

    fault_id: str
    wire: Mapping[str, Any]
    effect: Effect | None
    delay: timedelta

    @property
    def endpoint(self) -> str:
        return str(self.wire["endpoint"])

    @property
    def url_life(self) -> timedelta:
        """How long signed URLs are valid: the value of ``sas``. Raises InputError."""
        if self.wire.get("sas", EXPIRED) == EXPIRED:
            return -EXPIRED_URL_AGE
        return given(self.wire, "sas", parse_duration)

    @property
    def is_before(self) -> bool:
        """Whether the fault happens before the request has an effect."""
        return self.effect == "status" or self.wire.get("drop") == "before"

    @property
    def needs_message(self) -> bool:
        return self.endpoint == RECEIVE and self.effect is not None and not self.is_before

    def is_for(self, task_id: str, worker: Callable[[], str]) -> bool:
        """Whether the fault is for a request to its endpoint, about this task, by this worker.

        ``worker`` answers ``<workerGroup>/<workerId>``; it is called only if the answer depends on it.
        """
        if self.wire.get("taskId", task_id) != task_id:
            return False
        return "worker" not in self.wire or self.wire["worker"] == worker()

    def is_chosen(self, number: int) -> bool:
        """Whether the fault happens to the request of this number, from 0, of the requests that it is for.

        The same seed chooses the same numbers, on any machine.
        """
        if "probability" not in self.wire:
            return True
        digest = hashlib.sha256(f"{int(self.wire['seed'])}/{number}".encode()).digest()
        return int.from_bytes(digest[:7]) / 2**56 < float(self.wire["probability"])


def fault_of(wire: Mapping[str, Any], fault_id: str, seed: int, targets: Iterable[Target]) -> Fault:
    """The fault of a body that matches its schema; raises InputError.

    ``seed`` is the default of a fault with a probability.
    """
    by_name = {target.endpoint: target for target in targets}
    target = by_name.get(wire["endpoint"])
    if target is None:
        (near,) = difflib.get_close_matches(wire["endpoint"], by_name, 1, 0)
        raise InputError(f"endpoint: there is no {wire['endpoint']!r}; the nearest is {near}")
    name = target.endpoint
    effects = [effect for effect in _EFFECTS if effect in wire]
    effect = effects[0] if effects else None
    delay = given(wire, "delay", parse_duration) if "delay" in wire else timedelta(0)
    fault = Fault(fault_id, {"seed": seed, **wire} if "probability" in wire else wire, effect, delay)
    only = _ENDPOINT_OF_EFFECT.get(effect or "", name)
    if len(effects) > 1:
        raise InputError(f"{' and '.join(effects)}: a fault does one of these; add a second fault")
    fault.url_life  # noqa: B018 - raises InputError
    if not effects and "delay" not in wire:
        raise InputError(f"give an effect: one of {', '.join(_EFFECTS)}, or a delay, or both")
    if delay > MAX_DELAY:
        raise InputError(f"delay is {wire['delay']!r}: expected at most {MAX_DELAY.seconds // 60}m")
    if only != name:
        raise InputError(f"{effect} is for {only}: {name} takes status, drop and delay")
    if "taskId" in wire and not target.has_task:
        raise InputError(f"taskId: a request to {name} names no task")
    if "taskId" in wire and name == RECEIVE and not fault.needs_message:
        raise InputError(
            "taskId: which task a message is of is known only after it is received; "
            "with a taskId, expected double, lose, stale or drop after"
        )
    if "worker" in wire and not target.has_worker:
        raise InputError(f"worker: a request to {name} does not name the worker that sent it")
    if "message" in wire and effect != "status":
        raise InputError("message is for a status: give a status too")
    if "seed" in wire and "probability" not in wire:
        raise InputError("seed is for a probability: give a probability too")
    return fault
