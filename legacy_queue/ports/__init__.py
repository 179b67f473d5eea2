"""The interfaces of storage, broker and clock that stores and services use; ``adapters`` has them.

Storage is Table, Queue and BlobContainer of a StorageAccount, each in its own module. Every method of these
may raise ServiceUnavailable: then the caller does not know whether it happened.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from legacy_queue.ports.queue import LeaseLost as LeaseLost

if TYPE_CHECKING:  # every command imports this module, and few need what events are made of
    from legacy_queue.domain.events import Event

Result = TypeVar("Result")


class AlreadyExists(Exception):
    """The key is in use."""


class Changed(Exception):
    """Another writer was first, or removed it: read again and decide again."""


class InvalidPosition(Exception):
    """The storage has no such place: it was made by another kind of storage, or by nobody."""


class Corrupt(Exception):
    """The stored value cannot be read, and is logged: no retry helps."""


class BrokerAway(Exception):
    """The broker did not confirm: it may have the event or not."""


# what an adapter calls after each operation: what answers, how many seconds it took, whether it succeeded
Observe = Callable[[str, float, bool], None]
Progress = Callable[[int, int, str], object]  # called with how many are done, of how many, and of what


def ignore(_answers: str, _seconds: float, _is_answered: bool) -> None:
    """The Observe that nobody reads."""


class Clock(Protocol):
    def now(self) -> datetime:
        """The queue's time in UTC, whole milliseconds. Control may move it forward and freeze it."""

    def wall_time(self) -> datetime:
        """The real time in UTC, whole milliseconds: for Hawk, temporary credentials and signed URLs."""

    def wall_time_of(self, time: datetime) -> datetime:
        """The real time at which ``now`` will be ``time``, if the clock runs and is not moved again."""

    def monotonic(self) -> timedelta:
        """The time since a moment long before the process began, for durations: nobody moves or sets it."""


@runtime_checkable
class AdjustableClock(Clock, Protocol):
    """A clock that control moves, never back. Safe to call from any thread."""

    @property
    def offset(self) -> timedelta:
        """How far the queue's time is from the real time."""

    @property
    def is_frozen(self) -> bool:
        """Whether ``now`` stands still."""

    def move_to(self, time: datetime) -> None:
        """From now on ``now`` is at least ``time``."""

    def freeze(self) -> None:
        """``now`` stands still; it changes only by ``move_to`` or ``release``. Safe to repeat."""

    def release(self) -> None:
        """``now`` runs again. Safe to repeat."""


class Flag(Protocol):
    """threading.Event, as a Waiter needs it."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is set, at the latest after ``timeout`` seconds."""


class Waiter(Protocol):
    """Lets time pass, and others go on. Whatever waits below the server does it here: so the simulated world
    of the tests can let its own time pass, and only the server knows how requests run beside each other.
    """

    def sleep(self, seconds: float) -> None:
        """Return after that time; with 0, let other greenlets run."""

    def wait(self, flag: Flag, seconds: float) -> bool:
        """Whether the flag is set, at the latest after that time."""

    def run_long(self, act: Callable[[], Result]) -> Result:
        """The result of ``act``, which may take long. A server answers other requests meanwhile."""
        return act()


class Broker(Protocol):
    """RabbitMQ, or any broker of its protocol. Every method but ``close`` may raise BrokerAway."""

    def publish(self, events: "Sequence[Event]") -> None:
        """Return once the broker has confirmed all of them, in this order."""

    def check(self) -> None:
        """Return if the broker is there, with all exchanges, and after a failure accepts messages again."""

    def close(self) -> None:
        """Close all connections."""
