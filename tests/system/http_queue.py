"""A client of the queue that uses nothing but HTTP: requests, lxml, and mohawk's Hawk signatures."""

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import mohawk
import requests
from lxml import etree

from .processes import LONG, Server

Json = dict[str, Any]


def slugid() -> str:
    """A random version 4 UUID in base64url, like the slugid packages."""
    raw = bytearray(secrets.token_bytes(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def in_time(**ahead: float) -> str:
    return (datetime.now(UTC) + timedelta(**ahead)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def definition(worker_type: str, **changes: Any) -> Json:
    """A task definition for ``system/<worker_type>``."""
    return {
        "provisionerId": "system",
        "workerType": worker_type,
        "created": in_time(),
        "deadline": in_time(hours=1),
        "payload": {"command": ["true"]},
        "metadata": {
            "name": "a task",
            "description": "for a test",
            "owner": "owner@example.com",
            "source": "https://example.com/source",
        },
        **changes,
    }


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
        answer = requests.get(f"{urls['signedPollUrl']}&numofmessages={count}", timeout=LONG)
        assert answer.status_code == 200, answer.text
        messages = [_message(element) for element in etree.fromstring(answer.content)]
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
        credentials = {"id": self.credentials["clientId"], "key": self.credentials["accessToken"]}
        ext = None
        if certificate := self.credentials.get("certificate"):
            ext = base64.b64encode(json.dumps({"certificate": json.loads(certificate)}).encode()).decode()
        sender = mohawk.Sender(
            {**credentials, "algorithm": "sha256"},
            url,
            method,
            content=content,
            content_type=content_type,
            ext=ext,
        )
        return str(sender.request_header)


def delete(urls: Json, message: Message) -> int:
    """DELETE the message as a worker of the deployed protocol does; returns the status."""
    url = urls["signedDeleteUrl"].replace("{{messageId}}", message.message_id)
    url = url.replace("{{popReceipt}}", quote(message.receipt, safe=""))
    return requests.delete(url, timeout=LONG).status_code


def _message(element: etree._Element) -> Message:
    return Message(
        message_id=element.findtext("MessageId", ""),
        receipt=element.findtext("PopReceipt", ""),
        dequeue_count=int(element.findtext("DequeueCount", "")),
        content=json.loads(base64.b64decode(element.findtext("MessageText", ""))),
    )
