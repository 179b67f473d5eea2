"""The real application on memory storage behind an HTTP server; a test scripts some of its answers."""

import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from legacy_queue.config import Settings
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import Clock
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.wiring import build
from legacy_queue.worker import Credentials
from tests.memory_server import Quiet, messages_in
from tests.services.harness import task_body

ROOT = Credentials("worker/one", "the-workers-own-token")
LOG = "public/logs/live.log"
Script = int | bytes | Callable[[], object]

# What a worker requests, by method and path; the queue's own methods by their names
_OPERATIONS = [
    ("GET /azure/.*/messages", "poll"),
    ("DELETE /azure/.*", "delete"),
    ("PUT /uploads/.*", "upload"),
    ("GET .*/poll-task-url/.*", "pollTaskUrls"),
    ("POST .*/claim-work/.*", "claimWork"),
    ("POST .*/artifacts/.*", "createArtifact"),
    ("POST .*/claim", "claimTask"),
    ("POST .*/reclaim", "reclaimTask"),
    ("POST .*/completed", "reportCompleted"),
    ("POST .*/failed", "reportFailed"),
    ("POST .*/exception", "reportException"),
]


@dataclass(frozen=True)
class Request:
    """A request of a worker; ``client_id`` is that of its signature."""

    operation: str
    target: str
    client_id: str
    raw_body: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw_body)


class ScriptedQueue:
    """Answers as the queue does, except where a test scripts it: ``script("claimTask", 503, 200)``.

    A scripted number is a status (200: the usual answer), bytes are the body of a 200, a function is called
    before the usual answer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.requests: list[Request] = []
        self.answers: list[bytes] = []
        self._scripts: dict[str, list[Script]] = defaultdict(list)
        self._lock = threading.Lock()
        self._http = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self._http.daemon_threads = True  # type: ignore[attr-defined]
        self.root_url = f"http://127.0.0.1:{self._http.server_port}"
        self._settings = Settings(
            storage="memory",
            signing_secrets=("the-secret-that-signs-for-these-tests",),
            clients=(Client(ROOT.client_id, ROOT.access_token, ("*",)),),
        )
        self._server = build(self._settings, self.root_url, clock)
        self._thread = threading.Thread(target=self._http.serve_forever, args=[0.01])
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def script(self, operation: str, *answers: Script) -> None:
        self._scripts[operation].extend(answers)

    def task(self, payload: Any, **changes: Any) -> str:
        """Create a task of the highest priority; returns its taskId."""
        task_id = slugid()
        fields = {"provisionerId": "provisioner", "workerType": "type", "priority": "highest", "retries": 0}
        body = task_body(self._clock.now(), **{**fields, "payload": payload, **changes})
        self._call("PUT", f"/task/{task_id}", body)
        return task_id

    def message(self, text: str) -> None:
        """Put a message into the queue of the highest priority."""
        self._server.storage.account.queue(self._queue_name()).put(text, timedelta(0))

    def _queue_name(self) -> str:
        urls = self._call("GET", "/poll-task-url/provisioner/type")["queues"][0]
        return str(urlsplit(urls["signedPollUrl"]).path.split("/")[-2])

    def messages(self) -> list[QueuedMessage]:
        """Those of the queue of the highest priority, visible or not."""
        return messages_in(self._server.storage.account, self._queue_name())

    def artifact(self, task_id: str, name: str) -> requests.Response:
        path = f"{self.root_url}/v1/task/{task_id}/artifacts/{quote(name, safe='')}"
        return requests.get(path, timeout=60)

    def log(self, task_id: str) -> str:
        return self.artifact(task_id, LOG).content.decode()

    def artifacts(self, task_id: str) -> set[str]:
        """The names of its artifacts."""
        listed = self._call("GET", f"/task/{task_id}/artifacts")["artifacts"]
        return {artifact["name"] for artifact in listed}

    def requests_for(self, operation: str) -> list[Request]:
        return [request for request in self.requests if request.operation == operation]

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    def protocol(self) -> list[str]:
        """The operations except createArtifact and upload."""
        return [name for name in self.operations() if name not in ("createArtifact", "upload")]

    def reports(self) -> list[tuple[str, str | None]]:
        sent = [request for request in self.requests if request.operation.startswith("report")]
        return [(request.operation, request.body["reason"] if request.raw_body else None) for request in sent]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to the test itself, which is not recorded."""
        url = f"{self.root_url}/v1{path}"
        headers = {"X-Of-Test": "yes"}
        sign = ROOT.hawk(self._clock.now)
        answer = requests.request(method, url, json=body, auth=sign, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        raw_body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = BytesIO(raw_body)
        target = environ["RAW_URI"]
        request = f"{environ['REQUEST_METHOD']} {urlsplit(target).path}"
        operations = (name for pattern, name in _OPERATIONS if re.fullmatch(pattern, request))
        operation = next(operations, None)
        if operation is None or "HTTP_X_OF_TEST" in environ:
            return self._server.app(environ, start_response)
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        assert not (authorization and operation in ("poll", "delete", "upload"))
        client_id = "".join(re.findall('Hawk id="([^"]+)"', authorization))
        with self._lock:
            self.requests.append(Request(operation, target, client_id, raw_body))
            scripted = self._scripts[operation].pop(0) if self._scripts[operation] else 200
        if callable(scripted):
            scripted()
        elif isinstance(scripted, bytes):
            return Response(scripted)(environ, start_response)
        elif scripted != 200:
            error = {"code": "Scripted", "message": f"says {scripted}\n----\nthe request"}
            return Response(json.dumps(error), scripted)(environ, start_response)
        answer = Response.from_app(self._server.app, environ, buffered=True)
        self.answers.append(answer.get_data())
        return answer(environ, start_response)
