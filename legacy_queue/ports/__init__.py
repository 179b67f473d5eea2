"""The interfaces of storage, broker and clock that stores and services use. ``adapters`` implements them.

A StorageAccount has tables, queues and a container of blobs: Table, Queue and BlobContainer, each in its own
module. Every method of these may raise ServiceUnavailable. Then the caller does not know whether the
operation happened.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from legacy_queue.ports.queue import LeaseLost as LeaseLost

if TYPE_CHECKING:  # every command imports this module, and few need what events are made of
    from legacy_queue.domain.events import Event

Result = TypeVar("Result")


class AlreadyExists(Exception):
    """A row with this key exists."""


class Changed(Exception):
    """Another writer changed or removed the row first. Read it again and decide again."""


class InvalidPosition(Exception):
    """The text of a position in a list is not from this kind of storage."""


class Corrupt(Exception):
    """The stored value cannot be read, and the log says so. A retry does not help."""


class BrokerAway(Exception):
    """The broker did not confirm. It may have the event or not."""


# An adapter calls it after each operation: which service answered, in how many seconds, and whether it
# succeeded.
Observe = Callable[[str, float, bool], None]
Progress = Callable[[int, int, str], object]  # called with how many are done, how many there are, and of what


def ignore(_answers: str, _seconds: float, _is_answered: bool) -> None:
    """An Observe that does nothing."""


class Clock(Protocol):
    def now(self) -> datetime:
        """The queue's time in UTC, in whole milliseconds. Control can move it forward and freeze it."""

    def wall_time(self) -> datetime:
        """The real time in UTC, in whole milliseconds, for Hawk, temporary credentials and signed URLs."""

    def wall_time_of(self, time: datetime) -> datetime:
        """The real time at which ``now`` will return ``time``, if nobody moves or freezes the clock."""

    def monotonic(self) -> timedelta:
        """The time since a moment long before the process began, for durations. Nobody can move or set it."""


@runtime_checkable
class AdjustableClock(Clock, Protocol):
    """A clock that control can move, but never back. Safe to call from any thread."""

    @property
    def offset(self) -> timedelta:
        """How far the queue's time is from the real time."""

    @property
    def is_frozen(self) -> bool:
        """Whether ``now`` stands still."""

    def move_to(self, time: datetime) -> None:
        """Move the clock forward to ``time``, unless it is later already."""

    def freeze(self) -> None:
        """Stop the clock. After this only ``move_to`` and ``release`` change it. Safe to repeat."""

    def release(self) -> None:
        """Let the clock run again. Safe to repeat."""


class Flag(Protocol):
    """The part of threading.Event that a Waiter needs."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set, ``timeout`` seconds at most. Returns whether it is set."""


class Waiter(Protocol):
    """Lets time pass while others go on. Whatever waits below the server waits through this port.

    So the tests can simulate time, and only the server knows how requests run concurrently.
    """

    def sleep(self, seconds: float) -> None:
        """Return after that time; with 0, let other greenlets run."""

    def wait(self, flag: Flag, seconds: float) -> bool:
        """Wait until the flag is set, ``seconds`` at most. Returns whether it is set."""

    def run_long(self, act: Callable[[], Result]) -> Result:
        """Return the result of ``act``, which may take long. A server answers other requests meanwhile."""
        return act()


class Broker(Protocol):
    """RabbitMQ, or another AMQP 0-9-1 broker. Every method except ``close`` may raise BrokerAway."""

    def publish(self, events: "Sequence[Event]") -> None:
        """Return once the broker has confirmed all of them, in this order."""

    def check(self) -> None:
        """Return if the broker is reachable, has all exchanges and accepts messages."""

    def close(self) -> None:
        """Close all connections."""
