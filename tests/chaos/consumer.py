"""A consumer of all events; of the server it uses only the names of its exchanges."""

import json
import threading
import time
from typing import Any

import kombu.connection

from legacy_queue.domain.events import EXCHANGES

from .record import Event, Record

_DRAIN = 0.5  # seconds


class Consumer:
    """Records each event between ``start`` and ``stop``."""

    def __init__(self, url: str, project: str, record: Record) -> None:
        self._record = record
        self._names = {exchange.full_name(project): name for name, exchange in EXCHANGES.items()}
        kombu_connection: Any = kombu.connection.Connection  # has no types
        self._connection = kombu_connection(url)
        self._channel: Any = self._connection.channel()
        queue = self._channel.queue_declare(exclusive=True).queue
        for name in self._names:
            self._channel.exchange_declare(name, "topic", durable=True, auto_delete=False)
            self._channel.queue_bind(queue, name, "primary.#")
        self._channel.basic_consume(queue, no_ack=True, callback=self._arrived)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._consume, name="consumer")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop consuming, and remove the project's exchanges."""
        self._is_over.set()
        self._thread.join()
        for name in self._names:
            self._channel.exchange_delete(name)
        self._connection.release()

    def _consume(self) -> None:
        while not self._is_over.is_set():
            try:
                self._connection.drain_events(timeout=_DRAIN)
            except TimeoutError:
                continue

    def _arrived(self, message: Any) -> None:
        now, payload = time.time(), json.loads(message.body)
        exchange = self._names[message.delivery_info["exchange"]]
        about = payload["status"]["taskId"] if "status" in payload else payload["taskGroupId"]
        self._record.events.append(Event(exchange, about, now, payload.get("runId"), payload.get("workerId")))
