"""Publishes events to the broker, if there is one, and keeps them in the memory of this process."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from legacy_queue.domain.events import Event
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.services.events.event_buffer import EventBuffer


class EventPublisher:
    """Publishes events. While the broker is away, ``publish`` fails at once, without waiting for a timeout.

    ``is_todays``: the events have today's shape. Otherwise they have the shape of 2018. ``published`` counts
    the events by exchange.
    """

    def __init__(self, broker: Broker | None, buffer: EventBuffer, *, is_todays: bool = False) -> None:
        self._broker = broker
        self._buffer = buffer
        self._is_todays = is_todays
        # Class name of the error of the broker's last call, "" if that succeeded. Only the name, because the
        # metrics and pages that show it may be public.
        self.failure = ""
        self.published: Counter[str] = Counter()

    @property
    def has_broker(self) -> bool:
        return self._broker is not None

    @property
    def is_away(self) -> bool:
        """Whether the last call of the broker failed."""
        return self.failure != ""

    def publish(self, events: Sequence[Event]) -> None:
        """Publish the events in this order, and return when the broker has confirmed them. Raises BrokerAway.

        Without a broker it does not wait. The buffer gets the events last: it has only published ones.
        """
        events = self._shaped(events)
        if not events:
            return
        if self._broker:
            if self.is_away:
                raise BrokerAway
            with self._noted():
                self._broker.publish(events)
        self._buffer.append(events)
        for event in events:
            self.published[event.exchange] += 1

    def _shaped(self, events: Sequence[Event]) -> Sequence[Event]:
        if self._is_todays:
            return [event.as_of_today() for event in events if event.only != "2018"]
        return [event.as_of_2018() for event in events if event.only != "today"]

    def check(self) -> bool:
        """Ask the broker whether it is there. Returns whether it has come back. Call this once a second."""
        was_away = self.is_away
        if self._broker:
            with suppress(BrokerAway), self._noted():
                self._broker.check()
                self.failure = ""
        return was_away and not self.is_away

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except BrokerAway as error:
            self.failure = type(error.__cause__ or error).__name__
            raise

    def close(self) -> None:
        """Close the connection to the broker."""
        if self._broker:
            self._broker.close()
