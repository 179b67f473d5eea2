"""Consumers of events, and a network to the broker that can fail."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from amqp.exceptions import NotFound  # type: ignore[import-untyped]
from kombu.connection import Connection

from legacy_queue.domain.events import EXCHANGES, Event


def full_name(project: str, exchange: str) -> str:
    return f"exchange/{project}/v1/{exchange}"


def event(
    exchange: str = "task-pending", routing_key: str = "primary.a._", *routes: str, **payload: Any
) -> Event:
    return Event(exchange, routing_key, routes, {"version": 1, **payload})


class Consumer:
    """A channel with a queue of its own, from which confirmed messages can be read."""

    def __init__(self, url: str, project: str) -> None:
        connect: Any = Connection  # Any, because the library has no types
        self._connection, self._project = connect(url), project
        self.channel: Any = self._connection.channel()
        self.queue = self.channel.queue_declare(exclusive=True).queue

    def bind(self, exchange: str, pattern: str) -> None:
        """Bind the queue to an exchange. Declares the exchange if it does not exist yet."""
        name = full_name(self._project, exchange)
        self.channel.exchange_declare(name, "topic", durable=True, auto_delete=False)
        self.channel.queue_bind(self.queue, name, pattern)

    def messages(self, queue: str = "") -> list[Any]:
        """The messages that are in the queue now."""
        return list(iter(lambda: self.channel.basic_get(queue or self.queue, no_ack=True), None))

    def close(self) -> None:
        self._connection.release()

    def clean_up(self) -> None:
        """Remove the project's exchanges."""
        names = [full_name(self._project, name) for name in EXCHANGES]
        for name in (*names, f"exchange/{self._project}/check"):
            with suppress(NotFound):
                self.channel.exchange_delete(name)


def _close_all(sockets: list[socket.socket]) -> None:
    while sockets:
        connection = sockets.pop()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


@contextmanager
def consumer(url: str, project: str) -> Iterator[Consumer]:
    connected = Consumer(url, project)
    try:
        yield connected
    finally:
        connected.close()


class Network:
    """A proxy in front of the broker. While ``swallows`` is set, it drops what the broker sends."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._broker = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{parts.port}/", f":{self._listener.getsockname()[1]}/")
        self.swallows = threading.Event()
        self.connections = 0
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def disconnect(self) -> None:
        """Close all connections. New ones are accepted."""
        _close_all(self._sockets)

    def close(self) -> None:
        """Close all connections and refuse new ones."""
        _close_all([self._listener])
        self._threads[0].join()
        self.disconnect()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                self.connections += 1
                theirs = socket.create_connection(self._broker)
                self._sockets += [ours, theirs]
                for pair in ((ours, theirs, None), (theirs, ours, self.swallows)):
                    thread = threading.Thread(target=self._pass_on, args=pair)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, swallows: threading.Event | None
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if swallows is None or not swallows.is_set():
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
