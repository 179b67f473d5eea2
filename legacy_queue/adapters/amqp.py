"""The broker over AMQP 0-9-1: RabbitMQ, with publisher confirms.

py-amqp's connections, as kombu has them, without kombu's own way of publishing, which waits for each confirm
by itself and for some without an end. Plain blocking sockets, each with a time-out for all that it does: the
same on threads and under gevent. A connection that has failed in any way is never used again. The URL holds a
password: it reaches no log and no error.
"""

import json
import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn

import structlog
from amqp.exceptions import AccessRefused, AMQPError, NotAllowed, PreconditionFailed  # type: ignore[import-untyped]
from kombu.transport.pyamqp import Connection
from kombu.utils.url import url_to_parts

from legacy_queue.domain.events import EXCHANGES, Event
from legacy_queue.ports import Broker, BrokerAway

log = structlog.get_logger()

# these do not heal by themselves
_SET_UP_WRONGLY = (AccessRefused, NotAllowed, PreconditionFailed, ssl.SSLCertVerificationError)
_CONNECTIONS = 8  # that publish
_CONNECT = 2.0  # seconds
_LEAVE = 1.0  # seconds
_SAID_AGAIN = 60.0  # seconds
_HEARTBEAT = 30  # seconds; whoever follows and does not read for three times as long is let go by the broker
_PORTS = {"amqp": 5672, "amqps": 5671}


class _Refused(Exception):
    """The broker answers, and does not take messages."""


_FAILURES = (OSError, AMQPError, _Refused)


class AmqpBroker(Broker):
    """A broker at ``amqp://`` or ``amqps://user:password@host:port/vhost``, a certificate being verified.

    It keeps up to 8 connections to publish on, made when they are first needed. That it fails is logged when
    it begins to, and then once a minute while it does; ``monotonic`` is in seconds.
    """

    def __init__(
        self,
        url: str,
        project: str,
        confirm_timeout: timedelta = timedelta(seconds=5),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._names = _address(url), {e.full_name(project): e.name for e in EXCHANGES.values()}
        self._full_names = {name: full_name for full_name, name in self._names.items()}
        self._nobodys = f"exchange/{project}/check"  # an exchange that nobody has a reason to bind to
        self._patience, self._monotonic = confirm_timeout.total_seconds(), monotonic
        self._idle: list[_Link] = []
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        self._failures = 0
        self._level, self._said_at = 0, 0.0  # of the log; a level of 0: the broker does not fail

    def publish(self, events: Sequence[Event]) -> None:
        with self._link() as link:
            link.publish([(self._full_names[e.exchange], e.routing_key, e.routes, e.payload) for e in events])

    def check(self) -> None:
        # the broker refuses messages, not connections, while it is short of memory or disk: so it is sent one
        with self._link() as link:
            link.declare(self._nobodys, "fanout", durable=False)
            link.publish([(self._nobodys, "", (), {})])

    def follow(self, exchange: str | None, pattern: str) -> Generator[Event | None]:
        names = self._full_names.values() if exchange is None else [self._full_names[exchange]]
        following = self._follow(names, pattern)
        next(following)  # it is bound, and closing it ends its connection, from here on
        return following

    def close(self) -> None:
        while self._idle:
            self._idle.pop().leave()

    def _follow(self, names: Iterable[str], pattern: str) -> Generator[Event | None]:
        with self._failures_logged():
            link = _Link(self._address, self._names, self._patience, _HEARTBEAT)
            try:
                arrived = link.consume(names, pattern)
                yield None
                for message in arrived:
                    event = message and self._event(message)
                    if event or not message:
                        yield event
            finally:
                link.leave()

    def _event(self, message: Any) -> Event | None:
        """The message as it was told, None for one that somebody else has put there."""
        to, headers = message.delivery_info, message.properties.get("application_headers", {})
        with suppress(ValueError):
            payload = json.loads(message.body)
            if isinstance(payload, dict):
                routes = tuple(str(key).removeprefix("route.") for key in headers.get("CC", ()))
                return Event(self._names[to["exchange"]], to["routing_key"], routes, payload)
        return None

    @contextmanager
    def _link(self) -> Iterator["_Link"]:
        """A connection for one caller at a time, kept for the next one unless it fails."""
        with self._failures_logged():
            failures = self._failures
            if not self._places.acquire(timeout=self._patience):
                raise TimeoutError("all connections wait for confirms")
            try:
                link = self._kept() or _Link(self._address, self._names, self._patience)
                try:
                    yield link
                except BaseException:  # also a greenlet's end: an answer may be outstanding
                    link.drop()
                    raise
                self._idle.append(link)
            finally:
                self._places.release()
            if failures == self._failures:  # else another connection has failed since this began
                self._level = 0

    def _kept(self) -> "_Link | None":
        """A connection that the broker has not closed meanwhile."""
        with suppress(IndexError):
            while True:
                link = self._idle.pop()
                if link.is_good():
                    return link
        return None

    @contextmanager
    def _failures_logged(self) -> Iterator[None]:
        """A failure is BrokerAway; the log has it where it is new, worse than the last, or a minute later."""
        try:
            yield
        except _FAILURES as error:
            why, now = f"{type(error).__name__}: {error}", self._monotonic()
            level = logging.ERROR if isinstance(error, _SET_UP_WRONGLY) else logging.WARNING
            self._failures += 1
            if level > self._level or now - self._said_at >= _SAID_AGAIN:
                self._level, self._said_at = max(level, self._level), now
                log.log(level, "broker-failed", why=why)
            raise BrokerAway(why) from error


class _Link:
    """A connection and its one channel, which confirms."""

    def __init__(
        self, address: Mapping[str, Any], exchanges: Iterable[str], patience: float, heartbeat: int = 0
    ) -> None:
        self._patience = patience
        self._sent = 0
        self._unconfirmed: set[int] = set()
        self._connection: Any = Connection(
            **address,
            connect_timeout=_CONNECT,
            heartbeat=heartbeat,
            on_blocked=lambda _: _refuse("it is short of memory or disk"),
            socket_settings={socket.TCP_USER_TIMEOUT: int(patience * 1000)},
        )
        try:
            self._connection.connect()
            self._connection.sock.settimeout(patience)  # of each send and receive from here on
            self._channel = self._connection.channel()
            self._channel.confirm_select()
            self._channel.events["basic_ack"].add(self._confirmed)
            self._channel.events["basic_nack"].add(lambda *_: _refuse("it has rejected a message"))
            for exchange in exchanges:
                self.declare(exchange, "topic")
        except BaseException:
            self.drop()
            raise

    def declare(self, exchange: str, kind: str, durable: bool = True) -> None:
        self._channel.exchange_declare(exchange, kind, durable=durable, auto_delete=False)

    def is_good(self) -> bool:
        """Whether the broker has not hung up; what it has sent meanwhile is read."""
        try:
            while True:
                self._connection.drain_events(timeout=0)
        except TimeoutError:
            return True
        except _FAILURES:
            self.drop()
            return False

    def publish(self, messages: Sequence[tuple[str, str, Sequence[str], Mapping[str, Any]]]) -> None:
        """Return when all are confirmed; they are sent at once, and a connection keeps their order."""
        deadline = time.monotonic() + self._patience
        for exchange, routing_key, routes, payload in messages:
            message = self._channel.prepare_message(
                json.dumps(payload),
                content_type="application/json",
                content_encoding="utf-8",
                headers={"CC": [f"route.{route}" for route in routes]} if routes else None,
                properties={"delivery_mode": 2},
            )
            self._sent += 1
            self._unconfirmed.add(self._sent)
            self._channel.basic_publish(message, exchange, routing_key)
        while self._unconfirmed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"nothing was confirmed within {self._patience:g} s")
            self._connection.drain_events(timeout=left)

    def consume(self, exchanges: Iterable[str], pattern: str) -> Iterator[Any]:
        """Messages as they come, None about every second while there are none; bound when this returns."""
        arrived: deque[Any] = deque()
        queue = self._channel.queue_declare(exclusive=True).queue
        for exchange in exchanges:
            self._channel.queue_bind(queue, exchange, pattern)
        self._channel.basic_consume(queue, no_ack=True, callback=arrived.append)
        return self._drain(arrived)

    def _drain(self, arrived: deque[Any]) -> Iterator[Any]:
        while True:
            while arrived:
                yield arrived.popleft()
            with suppress(TimeoutError):
                self._connection.drain_events(timeout=1)
            self._connection.heartbeat_tick()
            if not arrived:
                yield None

    def leave(self) -> None:
        """Say goodbye, if the broker listens."""
        with suppress(*_FAILURES):
            self._connection.sock.settimeout(_LEAVE)
            self._connection.close()
        self.drop()

    def drop(self) -> None:
        self._connection.collect()

    def _confirmed(self, last: int, multiple: bool) -> None:
        self._unconfirmed -= {one for one in self._unconfirmed if one == last or (multiple and one < last)}


def _refuse(why: str) -> NoReturn:
    raise _Refused(why)


def _address(url: str) -> Mapping[str, Any]:
    """What py-amqp's connection wants to know of the broker."""
    parts = url_to_parts(url)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return {
        "host": f"{host}:{parts.port or _PORTS[parts.scheme]}",
        "userid": parts.username or "guest",
        "password": parts.password or "guest",
        "login_method": "PLAIN",
        "virtual_host": parts.path or "/",
        "ssl": parts.scheme == "amqps"
        and {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": parts.hostname},
    }
