"""A queue, its Azure queues and its bucket on one HTTP server, which answers as a test scripts it.

Hawk headers are checked by mohawk. Receipts hold ``+``, ``/`` and ``=``, the XML begins with a byte
order mark and a delete reads ``+`` in a query as a space: as Azure does it, and Azurite does not.
"""

import base64
import json
import sys
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import mohawk

CLIENT_ID = "worker/one"
ACCESS_TOKEN = "the-workers-own-token"
SAS = "sv=2019-02-02&sig=s3cret%2Bsignature%3D"


@dataclass
class Message:
    text: str
    message_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    receipt: str = field(
        default_factory=lambda: base64.b64encode(b"\xfb\xef\xff" + uuid.uuid4().bytes).decode()
    )


@dataclass(frozen=True)
class Request:
    """A request; ``operation`` is poll, delete, upload or the name of a method of the queue."""

    operation: str
    method: str
    target: str
    client_id: str | None
    ext: dict[str, Any] | None
    headers: dict[str, str]
    raw_body: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw_body)


@dataclass
class Artifact:
    """The body of its createArtifact call, and its upload."""

    created: dict[str, Any] = field(default_factory=dict)
    content: bytes = b"not uploaded"
    headers: dict[str, str] = field(default_factory=dict)


Script = int | bytes | tuple[int, bytes] | Callable[[], object]


class FakeQueue:
    """Answers as a queue does, except where a test scripts it: ``script("claimTask", 503, 200)``.

    A scripted number is a status (200: the usual answer), bytes are the whole body of a 200, a pair is a
    status and its body, and a
    function is called before the usual answer. ``now`` is the queue's clock.
    """

    def __init__(self, queues: int, now: Callable[[], datetime]) -> None:
        self._now = now
        self._nonces: set[str] = set()
        self.waiting: list[list[Message]] = [[] for _ in range(queues)]
        self.polled: dict[str, Message] = {}
        self.deleted: list[str] = []
        self.requests: list[Request] = []
        self.credentials = {CLIENT_ID: ACCESS_TOKEN}
        self.payloads: dict[str, Any] = {}
        self.expires = now() + timedelta(days=365)  # of each task
        self.to_claim: list[str] = []  # by claimWork
        self.artifacts: dict[str, Artifact] = defaultdict(Artifact)
        self.url_life = timedelta(minutes=30)
        self.answered_run_id: int | None = None
        self.truncated = 0  # of the next answers, how many break off before their last byte
        self._scripts: dict[str, list[Script]] = defaultdict(list)
        self._lock = threading.RLock()
        self.failures: list[BaseException] = []
        self._server = _Server(self)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def root_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop; raises an error that happened while a request was answered."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for failure in self.failures:
            raise failure

    def script(self, operation: str, *answers: Script) -> None:
        self._scripts[operation].extend(answers)

    def task(self, payload: Any, *, queue: int = 0, run_id: int = 0) -> str:
        """Put a task's message into a queue; returns its taskId."""
        task_id = self._new_task(payload)
        content = {"taskId": task_id, "runId": run_id, "signature": f"signature+of/{task_id}="}
        text = base64.b64encode(json.dumps(content).encode()).decode()
        self.message(text, queue=queue)
        return task_id

    def work(self, payload: Any) -> str:
        """Add a task for the next claimWork; returns its taskId."""
        task_id = self._new_task(payload)
        self.to_claim.append(task_id)
        return task_id

    def _new_task(self, payload: Any) -> str:
        task_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
        self.payloads[task_id] = payload
        return task_id

    def message(self, text: str, *, queue: int = 0) -> Message:
        message = Message(text)
        with self._lock:
            self.waiting[queue].append(message)
        return message

    def requests_for(self, operation: str) -> list[Request]:
        return [request for request in self.requests if request.operation == operation]

    @property
    def log(self) -> str:
        """The log of the only task."""
        return self.artifacts["public/logs/live.log"].content.decode()

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    def protocol(self) -> list[str]:
        """The operations except createArtifact and upload."""
        return [name for name in self.operations() if name not in ("createArtifact", "upload")]

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Record a request; return the status and body of its answer."""
        with self._lock:
            operation, act = self._route(method, target, headers, body)
            client_id, ext = self._check_hawk(method, target, headers, body)
            if operation == "upload":
                assert int(headers["Content-Length"]) == len(body), "not chunked, and whole"
            self.requests.append(Request(operation, method, target, client_id, ext, headers, body))
            scripted = self._scripts[operation].pop(0) if self._scripts[operation] else 200
        if callable(scripted):
            scripted()
        elif isinstance(scripted, bytes):
            return 200, scripted
        elif isinstance(scripted, tuple):
            return scripted
        elif isinstance(scripted, int) and scripted != 200:
            return scripted, _error(operation, scripted)
        with self._lock:
            status, answer = act()
        return status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def _check_hawk(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[str | None, dict[str, Any] | None]:
        if target.startswith(("/azure/", "/bucket/")):
            assert "Authorization" not in headers
            return None, None
        receiver = mohawk.Receiver(
            lambda name: {"id": name, "key": self.credentials[name], "algorithm": "sha256"},
            headers["Authorization"],
            self.root_url + target,
            method,
            content=body,
            content_type=headers.get("Content-Type", ""),
            seen_nonce=self._seen_nonce,
            localtime_offset_in_seconds=(self._now() - datetime.now(UTC)).total_seconds(),
        )
        ext = receiver.resource.ext
        return receiver.resource.credentials["id"], json.loads(base64.b64decode(ext)) if ext else None

    def _seen_nonce(self, _sender: str, nonce: str, _timestamp: str) -> bool:
        seen = nonce in self._nonces
        self._nonces.add(nonce)
        return seen

    def _time(self, ahead: timedelta) -> str:
        return wire(self._now() + ahead)

    def _route(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[str, Callable[[], tuple[int, Any]]]:
        url = urlsplit(target)
        match method, url.path.removeprefix("/api/queue/v1").removeprefix("/v1").strip("/").split("/"):
            case "GET", ["azure", number, "messages"]:
                return "poll", lambda: self._poll(int(number), parse_qs(url.query))
            case "DELETE", ["azure", _, "messages", message_id]:
                return "delete", lambda: self._delete(message_id, parse_qs(url.query))
            case "PUT", ["bucket", name]:
                return "upload", lambda: self._upload(unquote(name), parse_qs(url.query), headers, body)
            case "GET", ["poll-task-url", _, _]:
                return "pollTaskUrls", self.poll_task_urls
            case "POST", ["claim-work", _, _]:
                return "claimWork", lambda: self._claim_work(json.loads(body)["tasks"])
            case "POST", ["task", _, "runs", _, "artifacts", name]:
                return "createArtifact", lambda: self._create_artifact(unquote(name), json.loads(body))
            case "POST", ["task", task_id, "runs", run_id, "claim"]:
                return "claimTask", lambda: self._claim(task_id, int(run_id))
            case "POST", ["task", task_id, "runs", run_id, "reclaim"]:
                return "reclaimTask", lambda: self._claim(task_id, int(run_id))
            case "POST", ["task", _, "runs", _, ("completed" | "failed" | "exception") as result]:
                return f"report{result.capitalize()}", lambda: (200, {"status": {}})
        return "unknown", lambda: (404, {})

    def poll_task_urls(self) -> tuple[int, Any]:
        queues = [
            {
                "signedPollUrl": f"{self.root_url}/azure/{n}/messages?visibilitytimeout=300&{SAS}",
                "signedDeleteUrl": f"{self.root_url}/azure/{n}/messages/{{{{messageId}}}}"
                f"?popreceipt={{{{popReceipt}}}}&{SAS}",
            }
            for n in range(len(self.waiting))
        ]
        return 200, {"queues": queues, "expires": self._time(self.url_life)}

    def _claim(self, task_id: str, run_id: int) -> tuple[int, Any]:
        number = len(self.credentials)
        client_id = f"task-client/{number}"
        self.credentials[client_id] = f"the-claims-token-{number}"
        certificate = {"version": 1, "scopes": [], "seed": str(number)}
        if self.answered_run_id is not None:
            run_id = self.answered_run_id
        return 200, {
            "status": {"taskId": task_id},
            "runId": run_id,
            "workerGroup": "group",
            "workerId": "id",
            "takenUntil": self._time(timedelta(minutes=20)),
            "task": {"payload": self.payloads.get(task_id), "expires": wire(self.expires)},
            "credentials": {
                "clientId": client_id,
                "accessToken": self.credentials[client_id],
                "certificate": json.dumps(certificate),
            },
        }

    def _claim_work(self, tasks: int) -> tuple[int, Any]:
        assert 1 <= tasks <= 32
        claimed, self.to_claim = self.to_claim[:tasks], self.to_claim[tasks:]
        return 200, {"tasks": [self._claim(task_id, 0)[1] for task_id in claimed]}

    def _create_artifact(self, name: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.artifacts[name].created = body
        put_url = f"{self.root_url}/bucket/{quote(name, safe='')}?{SAS}"
        return 200, {**body, "putUrl": put_url}

    def _upload(
        self, name: str, query: dict[str, list[str]], headers: dict[str, str], content: bytes
    ) -> tuple[int, bytes]:
        artifact = self.artifacts[name]
        if query != parse_qs(SAS) or headers["Content-Type"] != artifact.created["contentType"]:
            return 403, b"SignatureDoesNotMatch"
        artifact.content, artifact.headers = content, headers
        return 200, b""

    def _poll(self, queue: int, query: dict[str, list[str]]) -> tuple[int, bytes]:
        number = int(query["numofmessages"][0])
        assert 1 <= number <= 32
        messages, self.waiting[queue] = self.waiting[queue][:number], self.waiting[queue][number:]
        self.polled |= {message.message_id: message for message in messages}
        return 200, messages_xml(messages)

    def _delete(self, message_id: str, query: dict[str, list[str]]) -> tuple[int, bytes]:
        if message_id not in self.polled or message_id in self.deleted:
            return 404, _error("delete", 404)
        if query["popreceipt"] != [self.polled[message_id].receipt]:
            return 400, _error("delete", 400)
        self.deleted.append(message_id)
        return 204, b""


def wire(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def messages_xml(messages: list[Message]) -> bytes:
    when = "Mon, 02 Jan 2006 15:04:05 GMT"
    items = "".join(
        f"<QueueMessage><MessageId>{message.message_id}</MessageId><InsertionTime>{when}</InsertionTime>"
        f"<ExpirationTime>{when}</ExpirationTime><PopReceipt>{message.receipt}</PopReceipt>"
        f"<TimeNextVisible>{when}</TimeNextVisible><DequeueCount>1</DequeueCount>"
        f"<MessageText>{message.text}</MessageText></QueueMessage>"
        for message in messages
    )
    declaration = '<?xml version="1.0" encoding="utf-8"?>'
    return f"\ufeff{declaration}<QueueMessagesList>{items}</QueueMessagesList>".encode()


def _error(operation: str, status: int) -> bytes:
    if operation in ("poll", "delete"):
        return "\ufeff<Error><Code>ScriptedError</Code><Message>no</Message></Error>".encode()
    return json.dumps({"code": "Scripted", "message": f"says {status}\n----\nthe request"}).encode()


class _Server(ThreadingHTTPServer):
    def __init__(self, fake_queue: FakeQueue) -> None:
        super().__init__(("127.0.0.1", 0), _handler(fake_queue))
        self._stand_in = fake_queue

    def handle_error(self, *_: Any) -> None:
        """Keep the failure for ``close``; a killed worker breaks its connections, which is no failure."""
        failure = sys.exception()
        if failure and not isinstance(failure, ConnectionError):
            self._stand_in.failures.append(failure)


def _handler(fake_queue: FakeQueue) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: a second packet would wait for an acknowledgement

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            status, answer = fake_queue.answer(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if fake_queue.truncated:
                fake_queue.truncated -= 1
                answer, self.close_connection = answer[:-1], True
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
