"""Faults that a test injects. A fault says which requests it happens to, and what it does to them."""

import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from legacy_queue.domain.artifact import UPLOAD
from legacy_queue.domain.errors import InputError
from legacy_queue.domain.messages import DELETE, RECEIVE
from legacy_queue.domain.times import parse_duration, parse_field

MAX_DELAY = timedelta(minutes=10)
EXPIRED = "expired"
# How long ago an expired URL expired: less than the 15 minutes before now from which URLs are valid.
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
    """An endpoint or a use of signed URLs that faults can happen to.

    ``has_task`` and ``has_worker`` say whether its requests name a task and a worker.
    """

    endpoint: str
    has_task: bool
    has_worker: bool


SIGNED_URLS = (Target(RECEIVE, True, False), Target(DELETE, True, False), Target(UPLOAD, True, False))


@dataclass(frozen=True)
class Fault:
    """A fault as a test has asked for it.

    ``wire`` is the body of that request. ``effect`` is None if the fault only delays. If it
    ``needs_message``, it happens after a message is received, and to the task of that message.
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
        """How long signed URLs are valid, from the value of ``sas``. Raises InputError."""
        if self.wire.get("sas", EXPIRED) == EXPIRED:
            return -EXPIRED_URL_AGE
        return parse_field(self.wire, "sas", parse_duration)

    @property
    def is_before(self) -> bool:
        """Whether the fault happens before the request has an effect."""
        return self.effect == "status" or self.wire.get("drop") == "before"

    @property
    def needs_message(self) -> bool:
        return self.endpoint == RECEIVE and self.effect is not None and not self.is_before

    def is_for(self, task_id: str, worker: Callable[[], str]) -> bool:
        """Whether the fault is for a request to its endpoint about this task from this worker.

        ``worker`` returns ``<workerGroup>/<workerId>``. It is called only if the answer depends on it.
        """
        if self.wire.get("taskId", task_id) != task_id:
            return False
        return "worker" not in self.wire or self.wire["worker"] == worker()

    def is_chosen(self, number: int) -> bool:
        """Whether the fault happens to request ``number`` of those that it is for, counted from 0.

        The same seed chooses the same numbers on every machine.
        """
        if "probability" not in self.wire:
            return True
        digest = hashlib.sha256(f"{int(self.wire['seed'])}/{number}".encode()).digest()
        return int.from_bytes(digest[:7]) / 2**56 < float(self.wire["probability"])


def fault_of(wire: Mapping[str, Any], fault_id: str, seed: int, targets: Iterable[Target]) -> Fault:
    """Returns the fault that a valid body asks for. Raises InputError if its fields contradict each other.

    ``seed`` is used for a probability if the body has no seed.
    """
    by_name = {target.endpoint: target for target in targets}
    target = by_name.get(wire["endpoint"])
    if target is None:
        (near,) = difflib.get_close_matches(wire["endpoint"], by_name, 1, 0)
        raise InputError(f"endpoint: there is no {wire['endpoint']!r}; the nearest is {near}")
    name = target.endpoint
    effects = [effect for effect in _EFFECTS if effect in wire]
    effect = effects[0] if effects else None
    delay = parse_field(wire, "delay", parse_duration) if "delay" in wire else timedelta(0)
    fault = Fault(fault_id, {"seed": seed, **wire} if "probability" in wire else wire, effect, delay)
    only = _ENDPOINT_OF_EFFECT.get(effect or "", name)
    if len(effects) > 1:
        raise InputError(f"{' and '.join(effects)}: expected one of these. Add a second fault for the other")
    fault.url_life  # noqa: B018 - raises InputError
    if not effects and "delay" not in wire:
        raise InputError(f"expected an effect ({', '.join(_EFFECTS)}), or a delay, or both")
    if delay > MAX_DELAY:
        raise InputError(f"delay is {wire['delay']!r}: expected at most {MAX_DELAY.seconds // 60}m")
    if only != name:
        raise InputError(f"{effect} is only for {only}: expected status, drop or delay for {name}")
    if "taskId" in wire and not target.has_task:
        raise InputError(f"taskId: a request to {name} names no task")
    if "taskId" in wire and name == RECEIVE and not fault.needs_message:
        raise InputError(
            "taskId: the server learns the task of a message only when the message is received. "
            "With a taskId, expected double, lose, stale or drop after"
        )
    if "worker" in wire and not target.has_worker:
        raise InputError(f"worker: a request to {name} does not name the worker that sent it")
    if "message" in wire and effect != "status":
        raise InputError("message: expected a status with it")
    if "seed" in wire and "probability" not in wire:
        raise InputError("seed: expected a probability with it")
    return fault
