"""Consumers of the events on a real broker; each message is compared with the published reference."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from legacy_queue.domain.events import EXCHANGES, PROJECT, Event
from tests.adapters.amqp_side import Consumer
from tests.http.published import check_event

from .processes import wait_until


def about(event: Event) -> str:
    """The task id, or the task group id."""
    is_of_group = event.exchange.startswith("task-group-")
    return str(event.payload["taskGroupId"] if is_of_group else event.payload["status"]["taskId"])


def line(event: Event) -> str:
    """The event, its run and its worker: ``completed 0 one``."""
    words = [event.exchange.removeprefix("task-")]
    if "runId" in event.payload:
        words += [str(event.payload["runId"]), event.payload.get("workerId", "")]
    return " ".join(filter(None, words))


class Listener(Consumer):
    """Keeps the events of a queue that survives it, and restarts of the broker."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, PROJECT)
        self.queue = self.channel.queue_declare(name, durable=True, auto_delete=False).queue
        self.all: list[Event] = []

    def bind_to_all(self, pattern: str) -> None:
        for name in EXCHANGES:
            self.bind(name, pattern)

    def read(self) -> list[Event]:
        """All events until now."""
        self.all.extend(map(self._checked, self.messages()))
        return self.all

    def received(self, ids: Iterable[str]) -> dict[str, list[str]]:
        """The events until now of each of these tasks or groups, in order."""
        lines: dict[str, list[str]] = {id_: [] for id_ in ids}
        for event in self.read():
            if about(event) in lines:
                lines[about(event)].append(line(event))
        return lines

    def wait_for(self, expected: Mapping[str, Sequence[str]]) -> None:
        """Wait until each of these tasks has these events, and assert their order; an event may repeat."""

        def received() -> dict[str, list[str]]:
            return {id_: list(dict.fromkeys(lines)) for id_, lines in self.received(expected).items()}

        with suppress(TimeoutError):
            wait_until(lambda: all(len(lines) >= len(expected[id_]) for id_, lines in received().items()))
        assert received() == {id_: list(lines) for id_, lines in expected.items()}

    @staticmethod
    def _checked(message: Any) -> Event:
        delivery = message.delivery_info
        name = delivery["exchange"].rpartition("/")[2]
        event = Event(name, delivery["routing_key"], (), json.loads(message.body))
        check_event(event)
        return event
