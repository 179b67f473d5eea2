"""Telling events: to the broker, to Azure while the broker is away, or to a log where there is none.

While it is away, events wait in the queue ``<prefix>-events`` in the order in which they were told, and new
ones go behind them, so that the events of a task arrive in order. Source: "Events (AMQP)" in
design/protocol.md.
"""

import base64
import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta

import structlog

from legacy_queue.domain.events import EXCHANGES, Event
from legacy_queue.ports import Broker, BrokerAway, Changed, Clock, LeaseLost
from legacy_queue.services.leases import LEASE, RenewedTurn
from legacy_queue.services.poison import set_aside
from legacy_queue.services.together import for_each
from legacy_queue.stores import EventLog, OwnQueues, ReceivedMessage, Turn, Turns

log = structlog.get_logger()

WAITING = "events"  # the queue of those that wait for the broker, and the turn to publish them

_BATCH = 32
_PATIENCE = 0.5  # seconds that a call waits while events are drained
_LONGEST_KEY = 255  # bytes, of AMQP
_LONGEST_EVENT = 1024 * 1024  # bytes of JSON


class Announcer:
    """Tells events at least once. ``broker`` is None where they are only to be read from the log.

    ``logged`` is called after events were added to the log.
    """

    def __init__(
        self, broker: Broker | None, event_log: EventLog, queues: OwnQueues, turns: Turns, clock: Clock
    ) -> None:
        self._broker, self._log, self._queues = broker, event_log, queues
        self._turns, self._clock = turns, clock
        self._gate = threading.Condition()
        self._is_direct = False  # before it is known that nothing waits from an earlier process
        self._is_draining = False
        self._puts_begun = self._puts_ended = 0
        self.logged: Callable[[], None] = lambda: None
        self._to_drain = threading.Event()

    def tell(self, events: Sequence[Event], after_others: bool = False) -> None:
        """Return once the events are confirmed or stored, in this order; raises ServiceUnavailable.

        ``after_others``: another process may have told what comes before, and that may wait.
        """
        if not events:
            return
        if self._broker is None:
            self._log.append(events)
            self.logged()
            return
        with self._gate:
            self._gate.wait_for(lambda: not self._is_draining, _PATIENCE)
        if self._is_direct and not (after_others and self._queues.peek(WAITING, 1)):
            try:
                self._broker.publish(events)
                return
            except BrokerAway:
                log.warning("events-wait", why="the broker is away")
        self._keep(events)

    def drain(self) -> bool:
        """Publish what waits, oldest first; whether the broker takes events and none are waiting.

        One process at a time publishes; the others learn from the empty queue that they need not wait.
        Raises ServiceUnavailable.
        """
        if self._broker is None:
            return True
        try:
            self._broker.check()
            if self._is_direct and not self._queues.peek(WAITING, 1):
                return self._is_direct  # unless an event had to wait in this moment
            with self._draining():
                self._publish_waiting(self._broker)
                return self._is_none_left()
        except (BrokerAway, Changed):
            return False

    def wait(self, longest: timedelta) -> None:
        """Return when there is something to drain, or after so long, or when ``wake`` is called."""
        self._to_drain.wait(longest.total_seconds())
        self._to_drain.clear()

    def wake(self) -> None:
        """End a ``wait``."""
        self._to_drain.set()

    def close(self) -> None:
        """Let go of the broker."""
        if self._broker is not None:
            self._broker.close()

    def _keep(self, events: Sequence[Event]) -> None:
        with self._gate:
            self._is_direct = False
            self._puts_begun += 1
        try:
            for event in events:
                self._queues.put(WAITING, _packed(event), timedelta(0))
        finally:
            with self._gate:
                self._puts_ended += 1
                self._gate.notify_all()
            self.wake()

    @contextmanager
    def _draining(self) -> Iterator[None]:
        """Whoever has something to tell meanwhile waits a little, or those who drain would never be done."""
        with self._gate:
            self._is_direct, self._is_draining = False, True
        try:
            yield
        finally:
            with self._gate:
                self._is_draining = False
                self._gate.notify_all()

    def _is_none_left(self) -> bool:
        """Whether events go to the broker from now on: if none waits, and none is on its way to those."""
        with self._gate:
            self._gate.wait_for(lambda: self._puts_begun == self._puts_ended, _PATIENCE)
            begun, ended = self._puts_begun, self._puts_ended
        is_empty = not self._queues.peek(WAITING, 1)
        with self._gate:
            self._is_direct = is_empty and self._puts_begun == begun == ended
            return self._is_direct

    def _publish_waiting(self, broker: Broker) -> None:
        turn = self._turns.take(WAITING, self._clock.now() + LEASE)
        if not isinstance(turn, Turn):
            return
        with RenewedTurn(self._turns, turn, self._clock) as held:
            try:
                while messages := self._queues.peek(WAITING, _BATCH):
                    self._publish(broker, messages)
                    held.keep("", None)
            finally:
                with suppress(Changed):
                    held.release(self._clock.now(), "", None)

    def _publish(self, broker: Broker, messages: Sequence[ReceivedMessage]) -> None:
        """What was peeked at is removed only after it was confirmed: a failure leaves all in their order."""
        published = {message.lease.message_id for message in messages}
        broker.publish([event for message in messages if (event := _unpacked(message.text))])
        received = self._queues.receive(WAITING, len(messages), LEASE)
        more = [message for message in received if message.lease.message_id not in published]
        broker.publish([event for message in more if (event := _unpacked(message.text))])
        for_each(self._remove, received)

    def _remove(self, message: ReceivedMessage) -> None:
        if _unpacked(message.text) is None:
            set_aside(self._queues, WAITING, message, "not an event")
            return
        with suppress(LeaseLost):
            self._queues.remove(WAITING, message.lease)


def _packed(event: Event) -> str:
    """ASCII, and small: a message has a limit of 48 KiB."""
    return base64.b64encode(zlib.compress(json.dumps(asdict(event)).encode())).decode()


def _unzipped(packed: bytes) -> bytes:
    """Raises ValueError for more than any event has, which would fill the memory."""
    unzip = zlib.decompressobj()
    text = unzip.decompress(packed, _LONGEST_EVENT)
    if not unzip.eof:
        raise ValueError("it has no end")
    return text


def _unpacked(text: str) -> Event | None:
    """The event, if it is one that a broker takes."""
    try:
        wire = json.loads(_unzipped(base64.b64decode(text, validate=True)))
        event = Event(wire["exchange"], wire["routing_key"], tuple(wire["routes"]), wire["payload"])
        json.dumps(event.payload, allow_nan=False)
        keys = [event.routing_key, *("route." + route for route in event.routes)]
        is_one = event.exchange in EXCHANGES and isinstance(event.payload, dict)
        return event if is_one and max(len(key.encode()) for key in keys) <= _LONGEST_KEY else None
    except (ValueError, zlib.error, KeyError, TypeError, AttributeError, RecursionError):
        return None
