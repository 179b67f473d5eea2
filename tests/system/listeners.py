"""Consumers of the events, on a real broker; what they get is held against what a server publishes."""

import json
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import kombu.utils.url  # noqa: F401  which Network takes for granted
import requests

from tests.adapters.amqp_side import Consumer, Network

from .http_queue import Json
from .processes import LONG, wait_until

GROUP_RESOLVED = "task-group-resolved"


@dataclass(frozen=True)
class ReceivedEvent:
    """A message, ``exchange`` being named as in the reference."""

    exchange: str
    payload: Json

    @property
    def about(self) -> str:
        """The task's id, or the group's."""
        return str(self.payload["taskGroupId"] if self.is_of_group else self.payload["status"]["taskId"])

    @property
    def is_of_group(self) -> bool:
        return self.exchange == GROUP_RESOLVED

    def __str__(self) -> str:
        """What happened, to which run, by or to whom, and why: ``exception 0 one claim-expired``."""
        words = [self.exchange.removeprefix("task-")]
        if "runId" in self.payload:
            words += [str(self.payload["runId"]), self.payload.get("workerId", "")]
        if self.exchange == "task-exception":
            words.append(self._run["reasonResolved"])
        return " ".join(filter(None, words))

    @property
    def routing_keys(self) -> list[str]:
        """As documented. What is about no run names the latest one, which may be another by now."""
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


class Published:
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

    def told(self, message: Any) -> ReceivedEvent:
        """What the message says, when all of it is as it was published."""
        to = message.delivery_info
        name = to["exchange"].removeprefix(self._reference["exchangePrefix"])
        assert message.properties["delivery_mode"] == 2, "persistent"
        assert message.properties["content_type"] == "application/json"
        payload = json.loads(message.body)
        self._validators[name].validate(payload)
        told = ReceivedEvent(name, payload)
        assert to["routing_key"] in told.routing_keys
        return told

    def _get(self, path: str) -> Any:
        answer = requests.get(self._root_url + path, timeout=LONG)
        assert answer.status_code == 200, answer.text
        return answer.json()


class Listener(Consumer):
    """A consumer that keeps what it got. With a name its queue outlives it, and the broker's restarts."""

    def __init__(self, url: str, published: Published, name: str = "") -> None:
        super().__init__(url, published.project)
        if name:
            self.queue = self.channel.queue_declare(name, durable=True, auto_delete=False).queue
        self._published, self.all = published, list[ReceivedEvent]()

    def bind_to_all(self, pattern: str) -> None:
        for name in self._published.names:
            self.bind(name, pattern)

    def read(self) -> list[ReceivedEvent]:
        """All that it has got until now."""
        self.all.extend(self._published.told(message) for message in self.messages())
        return self.all

    def told(self, task_ids: Iterable[str]) -> dict[str, list[str]]:
        """What it has got until now about each of the tasks, or the groups of these ids, in order."""
        lines: dict[str, list[str]] = {task_id: [] for task_id in task_ids}
        for told in self.read():
            if told.about in lines:
                lines[told.about].append(str(told))
        return lines

    def hears(self, expected: Mapping[str, Sequence[str]], more_than_once: bool = False) -> None:
        """About each of these tasks it gets this, in this order; with repetitions where those are allowed."""

        def told() -> dict[str, list[str]]:
            lines = self.told(expected)
            return {one: list(dict.fromkeys(lines[one])) for one in lines} if more_than_once else lines

        with suppress(TimeoutError):
            wait_until(lambda: all(len(lines) >= len(expected[one]) for one, lines in told().items()))
        assert told() == {one: list(lines) for one, lines in expected.items()}


class Gate(Network):
    """A network between a server and the broker that can be shut, and can lose what it holds then."""

    def __init__(self, url: str) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        super().__init__(url)

    def lose(self) -> None:
        """Open again, without what was held; the server has hung up."""
        self.swallows.set()
        self.is_open.set()
        for thread in self._threads[1:]:
            thread.join()
        self.swallows.clear()

    def close(self) -> None:
        self.is_open.set()
        super().close()

    def _pass_on(
        self,
        source: socket.socket,
        target: socket.socket,
        swallows: threading.Event | None,  # noqa: ARG002
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.is_open.wait()
                if not self.swallows.is_set():
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def listening(url: str, root_url: str) -> Iterator[Listener]:
    """A listener to everything that the server tells; its exchanges are removed in the end."""
    listener = Listener(url, Published(root_url))
    try:
        listener.bind_to_all("primary.#")
        yield listener
    finally:
        listener.clean_up()
        listener.close()
