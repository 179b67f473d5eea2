"""Consumers of the events on a real broker; each message is compared with the published reference."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import requests

from tests.adapters.amqp_side import Consumer

from .http_queue import Json
from .processes import LONG, wait_until

GROUP_RESOLVED = "task-group-resolved"


@dataclass(frozen=True)
class ReceivedEvent:
    """A message; ``exchange`` has the name of the reference."""

    exchange: str
    payload: Json

    @property
    def about(self) -> str:
        """The task id, or the task group id."""
        return str(self.payload["taskGroupId"] if self.is_of_group else self.payload["status"]["taskId"])

    @property
    def is_of_group(self) -> bool:
        return self.exchange == GROUP_RESOLVED

    def __str__(self) -> str:
        """The event, its run, worker and reason: ``exception 0 one claim-expired``."""
        words = [self.exchange.removeprefix("task-")]
        if "runId" in self.payload:
            words += [str(self.payload["runId"]), self.payload.get("workerId", "")]
        if self.exchange == "task-exception":
            words.append(self._run["reasonResolved"])
        return " ".join(filter(None, words))

    @property
    def routing_keys(self) -> list[str]:
        """The documented keys. An event without runId names the latest run at that time."""
        if self.is_of_group:
            return [f"primary.{self.about}.{self.payload['schedulerId']}._"]
        status = self.payload["status"]
        pool = [status[name] for name in ("provisionerId", "workerType", "schedulerId", "taskGroupId")]
        runs = [self._run] if "runId" in self.payload else status["runs"] or [{}]
        latest = [[str(run.get(name, "_")) for name in ("runId", "workerGroup", "workerId")] for run in runs]
        return [".".join(["primary", self.about, *words, *pool, "_"]) for words in latest]

    @property
    def _run(self) -> Json:
        return dict(self.payload["status"]["runs"][self.payload["runId"]])


class Reference:
    """The exchanges and schemas that a server publishes."""

    def __init__(self, root_url: str) -> None:
        self._root_url = root_url
        self._reference = self._get("/references/queue/v1/exchanges.json")
        self.names = [entry["exchange"] for entry in self._reference["entries"]]
        self.project = self._reference["exchangePrefix"].split("/")[1]
        self._validators = {
            entry["exchange"]: jsonschema_rs.validator_for(self._get(entry["schema"]), validate_formats=True)
            for entry in self._reference["entries"]
        }

    def check(self, message: Any) -> ReceivedEvent:
        """Read a message; asserts that it agrees with the reference."""
        delivery = message.delivery_info
        name = delivery["exchange"].removeprefix(self._reference["exchangePrefix"])
        assert message.properties["delivery_mode"] == 2, "persistent"
        assert message.properties["content_type"] == "application/json"
        payload = json.loads(message.body)
        self._validators[name].validate(payload)
        event = ReceivedEvent(name, payload)
        assert delivery["routing_key"] in event.routing_keys
        return event

    def _get(self, path: str) -> Any:
        answer = requests.get(self._root_url + path, timeout=LONG)
        assert answer.status_code == 200, answer.text
        return answer.json()


class Listener(Consumer):
    """A consumer that keeps its events. A queue with a name survives it, and restarts of the broker."""

    def __init__(self, url: str, reference: Reference, name: str = "") -> None:
        super().__init__(url, reference.project)
        if name:
            self.queue = self.channel.queue_declare(name, durable=True, auto_delete=False).queue
        self._reference = reference
        self.all: list[ReceivedEvent] = []

    def bind_to_all(self, pattern: str) -> None:
        for name in self._reference.names:
            self.bind(name, pattern)

    def read(self) -> list[ReceivedEvent]:
        """All events until now."""
        self.all.extend(self._reference.check(message) for message in self.messages())
        return self.all

    def received(self, ids: Iterable[str]) -> dict[str, list[str]]:
        """The events until now of each of these tasks or groups, in order."""
        lines: dict[str, list[str]] = {about: [] for about in ids}
        for event in self.read():
            if event.about in lines:
                lines[event.about].append(str(event))
        return lines

    def wait_for(self, expected: Mapping[str, Sequence[str]]) -> None:
        """Wait until each of these tasks has these events, and assert their order; an event may repeat."""

        def received() -> dict[str, list[str]]:
            return {about: list(dict.fromkeys(lines)) for about, lines in self.received(expected).items()}

        with suppress(TimeoutError):
            wait_until(lambda: all(len(lines) >= len(expected[about]) for about, lines in received().items()))
        assert received() == {about: list(lines) for about, lines in expected.items()}
