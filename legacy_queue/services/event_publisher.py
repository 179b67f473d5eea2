"""Publishing events: to the broker, or to whoever follows this process where there is none."""

import threading
from collections.abc import Sequence

from legacy_queue.domain.events import Event
from legacy_queue.ports import Broker, BrokerAway
from legacy_queue.services.event_feed import EventFeed


class EventPublisher:
    """While the broker is away, nothing waits for it: who publishes hears at once that it is."""

    def __init__(self, broker: Broker | None, feed: EventFeed) -> None:
        self._broker, self._feed = broker, feed
        self._is_away = threading.Event()

    @property
    def is_away(self) -> bool:
        """Whether the broker was away when it was last asked."""
        return self._is_away.is_set()

    def publish(self, events: Sequence[Event]) -> None:
        """Return once the broker has confirmed the events, in this order; raises BrokerAway."""
        if self._broker is None:
            self._feed.append(events)
        elif events:
            if self.is_away:
                raise BrokerAway
            try:
                self._broker.publish(events)
            except BrokerAway:
                self._is_away.set()
                raise

    def check(self) -> None:
        """Ask the broker, where it is away, whether it is back. To be called now and then."""
        if self._broker and self.is_away:
            try:
                self._broker.check()
            except BrokerAway:
                return
            self._is_away.clear()

    def close(self) -> None:
        """Let go of the broker."""
        if self._broker:
            self._broker.close()
