"""The broker over AMQP 0-9-1: RabbitMQ, with publisher confirms. This module only publishes.

It uses the connections of py-amqp. It does not use kombu's publishing, which waits for each confirm
separately, and for some of them without a timeout. Sockets are blocking and have a timeout for each
operation, so they work the same on threads and under gevent. The URL contains a password, so it appears in no
log and no error.

The rule: an event counts as published once the broker has confirmed it, and never before.

The theory: the broker and this module both count the messages of a channel, from 1. The numbers are not sent,
but a confirm names one. So a connection has one channel, and one caller uses it at a time. The caller sends
all messages of a call, then waits for all their confirms. When the next caller gets the connection, no
confirm is outstanding.

This breaks if a call ends while it still waits, by a timeout, by an error, or because its greenlet is killed.
Then the next caller would read a confirm that comes later. So whatever ends a call early also drops the
connection. A message without a confirm may still have arrived. The caller publishes it again, so consumers
may see it twice.

A broker that refuses messages delays nobody. It closes the connection, or rejects a message (basic.nack, for
example because a queue is full), or blocks the connection (it is short of memory or disk, and stops reading).
Each of these fails the call at once. To wait for a confirm would take the whole timeout.

What is ugly, and why it stays: py-amqp cannot wait for these confirms. So ``_sent`` counts as the broker
does, and callbacks raise errors out of ``drain_events``, in whoever waits there.
"""

import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from queue import Empty, LifoQueue
from typing import Any, NoReturn

import structlog
from amqp.exceptions import AccessRefused, AMQPError, NotAllowed, PreconditionFailed  # type: ignore[import-untyped]
from kombu.transport.pyamqp import Connection
from kombu.utils.url import url_to_parts

from legacy_queue.domain.events import EXCHANGES, Event
from legacy_queue.ports import Broker, BrokerAway, Observe, ignore

log = structlog.get_logger()

# only an administrator can fix these
_MISCONFIGURED = (AccessRefused, NotAllowed, PreconditionFailed, ssl.SSLCertVerificationError)
_MAX_CONNECTIONS = 8
_CONNECT_TIMEOUT = 2.0  # seconds
_CLOSE_TIMEOUT = 1.0  # seconds
_LOG_INTERVAL = 60.0  # seconds
_PORTS = {"amqp": 5672, "amqps": 5671}


class _PublishRefused(Exception):
    """The broker answers, but refuses messages."""


_FAILURES = (OSError, AMQPError, _PublishRefused)


class AmqpBroker(Broker):
    """A broker at ``amqp://`` or ``amqps://user:password@host:port/vhost``. Its certificate is verified.

    It keeps up to 8 connections. A failure is logged when it begins, and once a minute as long as it lasts.
    ``monotonic`` is in seconds.
    """

    def __init__(
        self,
        url: str,
        project: str,
        confirm_timeout: timedelta = timedelta(seconds=5),
        monotonic: Callable[[], float] = time.monotonic,
        observe: Observe = ignore,
    ) -> None:
        self._address = _address(url)
        self._full_names = {exchange.name: exchange.full_name(project) for exchange in EXCHANGES.values()}
        self._check_exchange = f"exchange/{project}/check"  # clients bind no queue to this exchange
        self._timeout = confirm_timeout.total_seconds()
        self._monotonic = monotonic
        self._observe = observe
        # when the failure will be logged again; 0 if the broker works
        self._quiet_until = 0.0
        # None stands for a connection that may still be opened. The last one returned is used first, so that
        # no more connections are open than are needed.
        self._links: LifoQueue[_Link | None] = LifoQueue()
        for _ in range(_MAX_CONNECTIONS):
            self._links.put(None)

    def publish(self, events: Sequence[Event]) -> None:
        begun = self._monotonic()
        is_answered = False
        try:
            with self._link() as link:
                link.publish(
                    [(self._full_names[e.exchange], e.routing_key, e.routes, e.payload) for e in events]
                )
            is_answered = True
        finally:
            self._observe("broker", self._monotonic() - begun, is_answered)

    def check(self) -> None:
        has_failed = self._quiet_until > 0
        with self._link() as link:  # a new connection declares the exchanges
            if has_failed:  # a broker that is short of memory or disk refuses messages, but not connections
                link.declare(self._check_exchange, "fanout", durable=False)
                link.publish([(self._check_exchange, "", (), {})])

    def close(self) -> None:
        links = list[_Link | None]()
        with suppress(Empty):
            while True:
                links.append(self._links.get_nowait())
        for link in links:
            self._links.put(None)
            if link:
                link.close()

    @contextmanager
    def _link(self) -> Iterator["_Link"]:
        """Lend a connection to one caller at a time. It is kept for the next caller unless it fails."""
        with self._failures_logged():
            try:
                kept = self._links.get(timeout=self._timeout)
            except Empty:
                raise TimeoutError("all connections wait for confirms") from None
            link = None
            try:
                link = kept if kept and kept.is_good() else self._connected()
                yield link
            except BaseException:  # also if the greenlet is killed, because an answer may be outstanding
                if link:
                    link.drop()
                link = None
                raise
            finally:
                # whatever happened, the next caller may have a connection
                self._links.put(link)
            self._quiet_until = 0.0

    def _connected(self) -> "_Link":
        return _Link(self._address, self._full_names.values(), self._timeout)

    @contextmanager
    def _failures_logged(self) -> Iterator[None]:
        """Raise failures as BrokerAway. Log a new failure at once, and a lasting one once a minute."""
        try:
            yield
        except _FAILURES as error:
            why = f"{type(error).__name__}: {error}"
            now = self._monotonic()
            if not self._quiet_until or now >= self._quiet_until:
                self._quiet_until = now + _LOG_INTERVAL
                level = logging.ERROR if isinstance(error, _MISCONFIGURED) else logging.WARNING
                log.log(level, "broker-failed", broker=self._address["host"], why=why)
            raise BrokerAway(why) from error


class _Link:
    """A connection and its only channel, in confirm mode."""

    def __init__(self, address: Mapping[str, Any], exchanges: Iterable[str], timeout: float) -> None:
        self._timeout = timeout
        # the number of the last message, by the broker's count for this channel
        self._sent = 0
        # the numbers of the messages without a confirm
        self._unconfirmed: set[int] = set()
        self._connection: Any = Connection(
            **address,
            connect_timeout=_CONNECT_TIMEOUT,
            # Nobody would send heartbeats while the connection is idle. If it is dead, its next use notices.
            heartbeat=0,
            # A blocked broker stops reading. Without this, a call would wait for its whole timeout.
            on_blocked=lambda _: _refuse("it is short of memory or disk"),
            # If the broker's machine is gone, no reset comes, and the kernel would retry a send for 15
            # minutes.
            socket_settings={socket.TCP_USER_TIMEOUT: int(timeout * 1000)},
        )
        try:
            self._connection.connect()
            self._connection.sock.settimeout(timeout)  # for each send and receive from now on
            self._channel = self._connection.channel()
            self._channel.confirm_select()
            self._channel.events["basic_ack"].add(self._confirmed)
            self._channel.events["basic_nack"].add(lambda *_: _refuse("it rejected a message"))
            for exchange in exchanges:
                self.declare(exchange, "topic")
        except BaseException:
            self.drop()
            raise

    def declare(self, exchange: str, kind: str, durable: bool = True) -> None:
        self._channel.exchange_declare(exchange, kind, durable=durable, auto_delete=False)

    def is_good(self) -> bool:
        """Returns whether the connection is still open. Reads pending frames."""
        try:
            while True:
                self._connection.drain_events(timeout=0)
        except TimeoutError:
            return True
        except _FAILURES:
            self.drop()
            return False

    def publish(self, messages: Sequence[tuple[str, str, Sequence[str], Mapping[str, Any]]]) -> None:
        """Send all messages, in this order, and return once all are confirmed."""
        deadline = time.monotonic() + self._timeout
        for exchange, routing_key, routes, payload in messages:
            message = self._channel.prepare_message(
                json.dumps(payload),
                content_type="application/json",
                content_encoding="utf-8",
                headers={"CC": [f"route.{route}" for route in routes]} if routes else None,
                properties={"delivery_mode": 2},  # persistent, so that it survives a restart of the broker
            )
            # count it before it is sent, because its confirm may be read while the next message is sent
            self._sent += 1
            self._unconfirmed.add(self._sent)
            self._channel.basic_publish(message, exchange, routing_key)
        # Wait once for all confirms, so that a call costs one round trip, not one for each event.
        while self._unconfirmed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"nothing was confirmed within {self._timeout:g} s")
            self._connection.drain_events(timeout=left)

    def close(self) -> None:
        """Close the connection cleanly, if the broker answers."""
        with suppress(*_FAILURES):
            self._connection.sock.settimeout(_CLOSE_TIMEOUT)
            self._connection.close()
        self.drop()

    def drop(self) -> None:
        """Close the connection at once. Nobody reads what the broker still answers."""
        self._connection.collect()

    def _confirmed(self, last: int, multiple: bool) -> None:
        """Remove the message ``last``, or all up to it, from the unconfirmed ones."""
        self._unconfirmed -= {tag for tag in self._unconfirmed if tag == last or (multiple and tag < last)}


def _refuse(why: str) -> NoReturn:
    raise _PublishRefused(why)


def _address(url: str) -> Mapping[str, Any]:
    """Returns the arguments of py-amqp's connection."""
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
