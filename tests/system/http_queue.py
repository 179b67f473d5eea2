"""A client of the queue that uses nothing but HTTP, with mohawk's Hawk signatures."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.times import format_time
from tests import memory_server
from tests.domain.tasks import task_body
from tests.http.calls import Credentials, hawk

from .processes import LONG, Server

Json = dict[str, Any]


def in_time(**ahead: float) -> str:
    return format_time(datetime.now(UTC) + timedelta(**ahead))


def definition(worker_type: str, **changes: Any) -> Json:
    """A task definition for ``system/<worker_type>``."""
    pool = {"provisionerId": "system", "workerType": worker_type}
    return task_body(datetime.now(UTC), **{**pool, "deadline": in_time(hours=1), **changes})


@dataclass(frozen=True)
class Message:
    """A ``<QueueMessage>`` and the content of its text."""

    message_id: str
    receipt: str
    dequeue_count: int
    content: Json

    @property
    def task_id(self) -> str:
        return str(self.content["taskId"])

    @property
    def run_id(self) -> int:
        return int(self.content["runId"])

    @property
    def run(self) -> tuple[str, int]:
        return self.task_id, self.run_id

    @property
    def proof(self) -> dict[str, str]:
        """The fields of a claim of the draft."""
        return {
            "messageId": self.message_id,
            "receipt": self.receipt,
            "signature": self.content["signature"],
        }


class Queue:
    """The queue for a client with these credentials; adds the secrets of answers to ``server.secrets``."""

    def __init__(self, server: Server, credentials: Mapping[str, str] | None = None) -> None:
        self.server = server
        self.credentials = dict(credentials or server.credentials)

    def with_credentials(self, credentials: Mapping[str, str]) -> "Queue":
        self.server.secrets.update((credentials["accessToken"], credentials["certificate"]))
        return Queue(self.server, credentials)

    def send(self, method: str, path: str, body: Any = None) -> requests.Response:
        """The answer with any status. Paths are below the base URL, except those of control and migration."""
        is_bare = path.startswith(("/control/", "/migration"))
        url = (self.server.root_url if is_bare else self.server.base_url) + path
        content = b"" if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        headers["Authorization"] = self._authorization(method, url, content, headers.get("Content-Type", ""))
        return requests.request(method, url, data=content, headers=headers, timeout=LONG)

    def raw(self, method: str, path: str, body: Json, *headers: str) -> tuple[bytes, bytes]:
        """Head and body of a request, to be sent over a socket."""
        url = urlsplit(self.server.base_url + path)
        content = json.dumps(body).encode()
        head = [
            f"{method} {url.path} HTTP/1.1",
            f"Host: {url.netloc}",
            f"Authorization: {self._authorization(method, url.geturl(), content, 'application/json')}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
            *headers,
        ]
        return "".join(f"{line}\r\n" for line in [*head, ""]).encode(), content

    def ask(self, method: str, path: str, body: Any = None) -> Json:
        """The body of the answer; asserts that its status is 200."""
        answer = self.send(method, path, body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def create(self, task: Json, task_id: str | None = None) -> str:
        task_id = task_id or slugid()
        status = self.ask("PUT", f"/task/{task_id}", task)["status"]
        assert status["state"] == "pending"
        return task_id

    def status(self, task_id: str) -> Json:
        return dict(self.ask("GET", f"/task/{task_id}/status")["status"])

    def runs(self, task_id: str) -> list[tuple[str, str | None]]:
        """State and reasonResolved of each run."""
        return [(run["state"], run.get("reasonResolved")) for run in self.status(task_id)["runs"]]

    def pending(self, worker_type: str) -> int:
        """The answer of pendingTasks: right at once for this server's tasks, after 2 s for others."""
        return int(self.ask("GET", f"/pending/system/{worker_type}")["pendingTasks"])

    def poll_urls(self, worker_type: str) -> list[Json]:
        queues = list(self.ask("GET", f"/poll-task-url/system/{worker_type}")["queues"])
        for urls in queues:
            for url in urls.values():
                self.server.secrets.update(parse_qs(urlsplit(url).query)["sig"])
        return queues

    def poll(self, worker_type: str, count: int = 1) -> list[Message]:
        """The messages of the first queue that has any, in the order of the poll URLs."""
        for urls in self.poll_urls(worker_type):
            if messages := self.poll_one(urls, count):
                return messages
        return []

    def poll_one(self, urls: Json, count: int = 1) -> list[Message]:
        messages = [
            Message(
                each.lease.message_id,
                each.lease.receipt,
                each.dequeue_count,
                json.loads(base64.b64decode(each.text)),
            )
            for each in memory_server.poll(urls["signedPollUrl"], count)
        ]
        for message in messages:
            self.server.secrets.update((message.receipt, message.content["signature"]))
        return messages

    def claim(self, message: Message, worker: str = "one", **changes: Any) -> requests.Response:
        """Claim by the draft protocol."""
        body = {"workerGroup": "group", "workerId": worker, **message.proof, **changes}
        return self.send("POST", f"/task/{message.task_id}/runs/{message.run_id}/claim", body)

    def claim_by_name(self, task_id: str, run_id: int, worker: str = "one") -> requests.Response:
        """Claim by the deployed protocol."""
        body = {"workerGroup": "group", "workerId": worker}
        return self.send("POST", f"/task/{task_id}/runs/{run_id}/claim", body)

    def claim_work(self, worker_type: str, tasks: int = 1) -> list[Json]:
        """The claims of a claimWork."""
        body = {"workerGroup": "group", "workerId": "one", "tasks": tasks}
        claims = list(self.ask("POST", f"/claim-work/system/{worker_type}", body)["tasks"])
        for claim in claims:
            self.with_credentials(claim["credentials"])
        return claims

    def on_run(self, run: tuple[str, int], verb: str, body: Any = None) -> requests.Response:
        """``reclaim``, ``completed``, ``failed`` or ``exception``."""
        return self.send("POST", f"/task/{run[0]}/runs/{run[1]}/{verb}", body)

    def _authorization(self, method: str, url: str, content: bytes, content_type: str) -> str:
        own = self.credentials
        caller = Credentials(own["clientId"], own["accessToken"], own.get("certificate"))
        return hawk(caller, method, url, datetime.now(UTC), content, content_type)


def delete(urls: Json, message: Message) -> int:
    """DELETE the message as a worker of the deployed protocol does; returns the status."""
    return memory_server.delete(urls["signedDeleteUrl"], MessageLease(message.message_id, message.receipt))
