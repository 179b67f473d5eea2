"""What the stores and the services need of the outside, each as a promise. ``adapters`` keeps them.

Storage is Table, Queue and BlobContainer of a StorageAccount, in modules of their own. Every method of theirs
may raise ServiceUnavailable: then the caller does not know whether it happened.
"""

from collections.abc import Generator, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from legacy_queue.domain.events import Event
from legacy_queue.ports.queue import LeaseLost as LeaseLost


class AlreadyExists(Exception):
    """There is something under that key."""


class Changed(Exception):
    """Somebody else wrote first, or it is gone: read again and decide again."""


class Corrupt(Exception):
    """What is stored under that key cannot be read, and is logged: no retry cures it."""


class BrokerAway(Exception):
    """The broker did not confirm: whether it has the event is not known."""


class Clock(Protocol):
    def now(self) -> datetime:
        """The queue's time in UTC, whole milliseconds. Control may move it forward and freeze it."""

    def wall_time(self) -> datetime:
        """The real time in UTC, whole milliseconds: for whatever other clocks check.

        That is Hawk, temporary credentials and signed URLs.
        """

    def wall_time_of(self, time: datetime) -> datetime:
        """What the real time is when ``now`` is ``time``, if the clock runs on and is not moved any more."""


@runtime_checkable
class AdjustableClock(Clock, Protocol):
    """A clock that control moves. ``now`` never goes back. Safe to call from any thread."""

    @property
    def offset(self) -> timedelta:
        """How far the queue's time is from the real time."""

    @property
    def is_frozen(self) -> bool:
        """Whether ``now`` stands still."""

    def move_to(self, time: datetime) -> None:
        """``now`` answers at least ``time`` from here on."""

    def freeze(self) -> None:
        """``now`` stands still until it is moved or released. Safe to repeat."""

    def release(self) -> None:
        """``now`` goes on from where it stands. Safe to repeat."""


class Broker(Protocol):
    """RabbitMQ, or what speaks its protocol. Every method but ``close`` may raise BrokerAway."""

    def publish(self, events: Sequence[Event]) -> None:
        """Return once the broker has confirmed all of them, in this order."""

    def check(self) -> None:
        """Return when the broker takes messages."""

    def follow(self, exchange: str | None, pattern: str) -> Generator[Event | None]:
        """Events from now on of that exchange, or of all, whose routing key or a route matches the pattern.

        None about every second while there are none, so that the caller can look after itself.
        """

    def close(self) -> None:
        """Let go of its connections."""


class ObjectStore(Protocol):
    """Where ``s3`` artifacts go, if there is an S3 endpoint: names are those of blobs."""

    def upload_url(self, name: str, content_type: str, expiry: datetime) -> str:
        """A presigned URL, good until then, for one PUT with exactly this content-type. Nothing is sent."""

    def download_url(self, name: str, expiry: datetime) -> str:
        """A presigned URL, good until then, for a GET of an attachment, or ranges of it. Nothing is sent."""

    def remove(self, name: str) -> None:
        """The object is not there any more; raises ServiceUnavailable. Safe to repeat."""
