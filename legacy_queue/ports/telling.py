"""The broker."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from legacy_queue.domain.events import Event


class BrokerAway(Exception):
    """The broker did not confirm: whether it has the event is not known."""


class Broker(ABC):
    """RabbitMQ, or what speaks its protocol."""

    @abstractmethod
    def publish(self, events: Sequence[Event]) -> None:
        """Return once the broker has confirmed all of them, in this order; raises BrokerAway."""

    @abstractmethod
    def check(self) -> None:
        """Return when the broker takes messages; raises BrokerAway."""

    @abstractmethod
    def follow(self, exchange: str | None, pattern: str) -> Iterator[Event | None]:
        """Events from now on of that exchange, or of all, whose routing key or a route matches the pattern.

        None about every second while there are none, so that the caller can look after itself. Raises
        BrokerAway.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of its connections."""
