"""A server on memory storage, and callers whose requests mohawk signs.

Every answer is checked. A 200 must be valid against the schema that the server serves. An error must have the
documented form and show no secret. No answer may be a 500.
"""

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import mohawk
from werkzeug.test import Client as TestClient
from werkzeug.test import TestResponse

from legacy_queue.config import Settings
from legacy_queue.domain.authentication import Authenticator, Client
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.priority import at_least
from legacy_queue.domain.scopes import Roles
from legacy_queue.domain.times import format_time
from legacy_queue.http.app import create_app
from legacy_queue.http.declared_endpoints import QUEUE, served_by
from legacy_queue.http.endpoint import Call
from legacy_queue.http.metrics import Metrics
from legacy_queue.http.page.sign_in import SignIn
from legacy_queue.http.request_journal import Journal
from legacy_queue.http.schemas import SCHEMAS
from legacy_queue.http.site import Site
from legacy_queue.ports import Waiter
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.services.control.fault_registry import FaultRegistry
from legacy_queue.services.services import Services
from legacy_queue.stores import Storage
from legacy_queue.wiring import build
from tests.clients.python import taskcluster
from tests.domain.sample_tasks import NOW as NOW
from tests.domain.sample_tasks import task_body as task_body
from tests.memory_server import FakeClock, Message, messages_of
from tests.memory_server import delete_url as filled_in
from tests.services import artifact_calls, harness
from tests.services.artifact_calls import etag, sha256
from tests.services.fake_ports import events_in

ROOT_URL = "http://queue.test"
SECRETS = ("the-first-signing-secret-signs", "an-older-signing-secret-verifies")
OF_2018, TODAY = PREFIXES = ("/v1", "/api/queue/v1")  # the path decides which shape an answer has
PROVISIONER, WORKER_TYPE = harness.PROVISIONER, harness.WORKER_TYPE
POOL_NAME = f"{PROVISIONER}/{WORKER_TYPE}"
POOL: dict[str, Any] = {"provisionerId": PROVISIONER, "workerType": WORKER_TYPE}
WORKER: dict[str, Any] = {"workerGroup": "group", "workerId": "alice"}
DECLARED = {endpoint.name: endpoint for endpoint in QUEUE}
CONTROL = [endpoint.name for endpoint in served_by("object", "auth", "control", "inspect")]

# docs/reference/errors.md lists these. AuthorizationFailed means that the signature of a message is wrong.
CODES = {
    400: {"MalformedPayload", "InvalidRequestArguments", "InputValidationError", "InputError"},
    401: {"AuthenticationFailed"},
    403: {"InsufficientScopes", "AuthorizationFailed"},
    404: {"ResourceNotFound"},
    406: {"NoMatchingMethod"},
    409: {"RequestConflict"},
    410: {"ResourceExpired"},
    411: {"LengthRequired"},
    413: {"InputTooLarge"},
    503: {"ServiceUnavailable"},
}


@dataclass(frozen=True)
class Credentials:
    """The credentials of a caller."""

    client_id: str
    access_token: str
    certificate: str | None = None
    authorized_scopes: Sequence[str] | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, str]) -> "Credentials":
        return cls(wire["clientId"], wire["accessToken"], wire.get("certificate"))

    def narrowed(self, *scopes: str) -> "Credentials":
        return replace(self, authorized_scopes=scopes)

    @property
    def ext(self) -> str | None:
        content = {
            **({"certificate": json.loads(self.certificate)} if self.certificate else {}),
            **({} if self.authorized_scopes is None else {"authorizedScopes": list(self.authorized_scopes)}),
        }
        return base64.b64encode(json.dumps(content).encode()).decode() if content else None


ROOT = Credentials("root", "the-access-token-of-the-root-client")
TESTED = Credentials("tested/client", "the-access-token-of-the-tested-client")


def temporary(
    issuer: Credentials,
    scopes: Sequence[str],
    name: str | None = None,
    start: datetime = NOW - timedelta(hours=1),
    expiry: datetime = NOW + timedelta(hours=1),
) -> Credentials:
    """Temporary credentials, made by taskcluster (PyPI)."""
    made = taskcluster.client.createTemporaryCredentials(
        issuer.client_id, issuer.access_token, start, expiry, list(scopes), name
    )
    return Credentials(made["clientId"], made["accessToken"].decode(), made["certificate"])


def claimed(answer: TestResponse) -> Credentials:
    """The credentials in the answer to a claim."""
    return Credentials.from_wire(answer.get_json()["credentials"])


artifact_body, BLOB = artifact_calls.body, artifact_calls.CONTENT
BLOB_ETAG = etag(BLOB)


def blob_of(content: bytes) -> dict[str, Any]:
    return {"contentLength": len(content), "contentSha256": sha256(content)}


def hawk(
    credentials: Credentials,
    method: str,
    url: str,
    now: datetime,
    content: bytes | None = None,
    content_type: str = "",
) -> str:
    """The Authorization header. If you give a payload, the header has its hash."""
    header: str = mohawk.Sender(
        {"id": credentials.client_id, "key": credentials.access_token, "algorithm": "sha256"},
        url,
        method,
        content=content,
        content_type=content_type if content is not None else None,
        always_hash_content=False,
        ext=credentials.ext,
        _timestamp=int(now.timestamp()),
    ).request_header
    return header


class QueueCalls(ABC):
    """The calls that tests make to a queue. It runs in this process, or for `tests/system` in another."""

    root_url: str
    root: Credentials  # the credentials to use for ROOT
    pool: Mapping[str, Any]  # the pool of new tasks

    @abstractmethod
    def now(self) -> datetime: ...

    @abstractmethod
    def open(
        self, method: str, url: str, data: bytes, headers: dict[str, str], caller: Credentials | None
    ) -> TestResponse:
        """Send a request that is already signed."""

    def call(
        self,
        name: str,
        /,
        body: Any = None,
        credentials: Credentials | None = ROOT,
        prefix: str = OF_2018,
        **params: Any,
    ) -> TestResponse:
        """Call an endpoint like a client of 2017. Without a body, the request has none."""
        endpoint = DECLARED[name]
        params["name"] = quote(params.get("name", ""), safe="")
        target = prefix + re.sub(r"<(\w+)>", lambda match: str(params[match[1]]), endpoint.route)
        data = b"" if body is None else json.dumps(body).encode()
        return self.send(endpoint.method, target, data, credentials=credentials)

    def ask(
        self, name: str, /, body: Any = None, credentials: Credentials | None = ROOT, **params: Any
    ) -> Any:
        """Make a call that must succeed. Returns the body of its answer."""
        return succeeded(self.call(name, body, credentials, **params)).get_json()

    def send(
        self,
        method: str,
        target: str,
        data: bytes = b"",
        content_type: str | None = "application/json",
        credentials: Credentials | None = ROOT,
        headers: Mapping[str, str] | None = None,
        signed_url: str | None = None,
    ) -> TestResponse:
        """Send one request with a raw target or a URL.

        The caller signs this, or ``signed_url`` if you give one.
        """
        headers = dict(headers or {})
        url = target if "://" in target else self.root_url + target
        caller = self.root if credentials is ROOT else credentials
        if data and content_type is not None:
            headers.setdefault("Content-Type", content_type)
        if caller:
            headers.setdefault("Authorization", hawk(caller, method, signed_url or url, self.now()))
        return self.open(method, url, data, headers, caller)

    def task_body(self, **changes: Any) -> dict[str, Any]:
        """The body of a createTask call with a deadline a day later."""
        return task_body(self.now(), **{**self.pool, **changes})

    def create(self, task_id: str | None = None, **changes: Any) -> str:
        task_id = task_id or slugid()
        succeeded(self.call("createTask", self.task_body(**changes), taskId=task_id))
        return task_id

    def define(self, task_id: str | None = None, **changes: Any) -> str:
        """Create an unscheduled task. Returns its taskId."""
        task_id = task_id or slugid()
        succeeded(self.call("defineTask", self.task_body(**changes), taskId=task_id))
        return task_id

    def claim(
        self, task_id: str, run_id: int | str = 0, credentials: Credentials = ROOT, **more: Any
    ) -> TestResponse:
        return self.call("claimTask", {**WORKER, **more}, credentials, taskId=task_id, runId=run_id)

    def running(self, task_id: str | None = None, **changes: Any) -> str:
        """Create a task and claim its run 0. Returns its taskId."""
        task_id = self.create(task_id, **changes)
        succeeded(self.claim(task_id))
        return task_id

    def canceled(self, task_id: str | None = None, **changes: Any) -> str:
        """Create a task and cancel it. Returns its taskId."""
        task_id = self.create(task_id, **changes)
        succeeded(self.call("cancelTask", taskId=task_id))
        return task_id

    def artifact(
        self,
        task_id: str,
        name: str,
        storage_type: str = "s3",
        credentials: Credentials = ROOT,
        **changes: Any,
    ) -> TestResponse:
        """Call createArtifact with a body for this storage type, in which ``changes`` replace properties."""
        body = artifact_body(storage_type, self.now(), **changes)
        return self.call("createArtifact", body, credentials, taskId=task_id, runId=0, name=name)

    def upload(
        self, url: str, data: bytes, content_type: str | None = "text/plain", **headers: str
    ) -> TestResponse:
        """PUT the content to a signed URL of this server."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if content_type is not None:
            headers["Content-Type"] = content_type
        return self.send("PUT", url, data, credentials=None, headers=headers, content_type=content_type)

    def uploaded_blob(self, task_id: str, name: str, content: bytes = BLOB) -> list[str]:
        """Upload a blob. Returns the ETags that completeArtifact needs."""
        created = succeeded(self.artifact(task_id, name, "blob", **blob_of(content)))
        (request,) = created.get_json()["requests"]
        return [succeeded(self.upload(request["url"], content)).headers["etag"]]

    def object(
        self, method: str, call: str, name: str, body: Any = None, credentials: Credentials | None = ROOT
    ) -> TestResponse:
        """Call the object service."""
        target = f"/api/object/v1/{call}/{quote(name, safe='')}"
        data = b"" if body is None else json.dumps(body).encode()
        return self.send(method, target, data, credentials=credentials)

    def uploaded_object(self, task_id: str, name: str, content: bytes = BLOB) -> dict[str, Any]:
        """Create an object and finish its upload. Returns the answer of createArtifact."""
        created = succeeded(self.artifact(task_id, name, "object")).get_json()
        upload = {key: created[key] for key in ("projectId", "uploadId")}
        inline = {"contentType": "text/plain", "objectData": base64.b64encode(content).decode()}
        wanted = {**upload, "expires": created["expires"], "proposedUploadMethods": {"dataInline": inline}}
        succeeded(self.object("PUT", "upload", created["name"], wanted))
        hashes = {"sha256": sha256(content)}
        succeeded(self.object("POST", "finish-upload", created["name"], {**upload, "hashes": hashes}))
        return dict(created)

    def status(self, task_id: str) -> dict[str, Any]:
        return dict(self.ask("status", taskId=task_id)["status"])

    def state(self, task_id: str) -> str:
        return str(self.status(task_id)["state"])

    def runs(self, task_id: str) -> list[tuple[str, str | None]]:
        """The state and the reasonResolved of each run."""
        return [(run["state"], run.get("reasonResolved")) for run in self.status(task_id)["runs"]]

    def definition(self, task_id: str) -> Any:
        """The task's definition in today's shape."""
        return self.ask("task", taskId=task_id, prefix=TODAY)

    def poll_urls(self, **pool: Any) -> list[dict[str, str]]:
        """The signed URLs for each priority, the highest first."""
        return list(self.ask("pollTaskUrls", **{**POOL, **self.pool, **pool})["queues"])

    def poll(self, poll_url: str, count: int = 32) -> list[Message]:
        """GET the signed poll URL, like a worker."""
        answer = self.send("GET", f"{poll_url}&numofmessages={count}", credentials=None)
        return [Message.read(message) for message in messages_of(answer.data)]

    def messages(self, **pool: Any) -> list[Message]:
        """The messages of all priorities that a worker of this pool receives now."""
        polled = [self.poll(urls["signedPollUrl"]) for urls in self.poll_urls(**pool)]
        return [message for messages in polled for message in messages]

    def delete(self, delete_url: str, lease: MessageLease) -> TestResponse:
        """DELETE the message, like a worker of the deployed protocol."""
        return self.send("DELETE", filled_in(delete_url, lease), credentials=None)


class Queue(QueueCalls):
    """One server process. ``settings`` change the test suite's settings."""

    root_url, root, pool = ROOT_URL, ROOT, {}

    def __init__(
        self,
        *clients: Client,
        clock: FakeClock | None = None,
        storage: Storage | None = None,
        waiter: Waiter | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or FakeClock(NOW)
        root = Client(ROOT.client_id, ROOT.access_token, ("*",))
        settings = {"storage": "memory", "signing_secrets": SECRETS, **settings}
        self.settings = Settings(clients=(root, *clients), **settings)
        self.server = build(self.settings, self.root_url, self.clock, storage, waiter=waiter)
        self.http = TestClient(self.server.app)
        self.secrets = {
            *self.settings.signing_secrets,
            *(client.access_token for client in self.settings.clients),
        }

    def now(self) -> datetime:
        return self.clock.now()

    def open(
        self, method: str, url: str, data: bytes, headers: dict[str, str], caller: Credentials | None
    ) -> TestResponse:
        target = url.removeprefix(self.root_url)
        path, _, query = target.partition("?")
        calls: list[Call] = []  # tests/answer_shapes.py adds the call if the endpoint is declared
        answer = self.http.open(
            path,
            base_url=self.root_url,
            query_string=query,
            method=method,
            data=data,
            headers=headers,
            environ_overrides={"REMOTE_ADDR": "127.0.0.1", "RAW_URI": target, "tests.calls": calls},
            buffered=self.settings.control,  # read to the end, so that a reset need not wait for the answer
        )
        self._check(answer, calls, caller, headers)
        return answer

    def published(self) -> list[Event]:
        """Every event so far, oldest first."""
        return [event for _, event in events_in(self.server.services.event_buffer)]

    def poll_target(self) -> str:
        """The target of the signed poll URL for the pool's lowest priority."""
        return self.poll_urls()[-1]["signedPollUrl"].removeprefix(self.root_url)

    def delete_message(self, lease: MessageLease) -> TestResponse:
        """DELETE a message of the lowest priority, like a worker of the pool."""
        return self.delete(self.poll_urls()[-1]["signedDeleteUrl"], lease)

    def _check(
        self,
        answer: TestResponse,
        calls: Sequence[Call],
        credentials: Credentials | None,
        headers: Mapping[str, str],
    ) -> None:
        assert answer.status_code != 500, answer.get_data(as_text=True)
        method, path = answer.request.method, answer.request.path
        is_download = path.startswith("/uploads/") and method == "GET" and not answer.is_json
        if is_download or path.startswith("/azure/") or path == "/metrics" or method == "HEAD":
            return
        if answer.status_code == 204 or (path.startswith("/uploads/") and answer.status_code == 200):
            assert "content-type" not in answer.headers
            assert answer.data == b""
            return
        assert answer.content_type == "application/json"
        if answer.status_code == 200:
            for output in (call.endpoint.output for call in calls):
                if output:
                    validator(output).validate(answer.get_json())
            return
        if "x-taskcluster-artifact-storage-type" in answer.headers:
            return  # the answer is a redirect, or an artifact of the type error
        check_error(answer, [call.endpoint.name for call in calls])
        text = answer.get_data(as_text=True)
        secrets = {*self.secrets, headers.get("Authorization", "(none)")}
        secrets |= set(re.findall(r'(?:mac|hash)="([^"]+)"', headers.get("Authorization", "")))
        if credentials:
            secrets.add(credentials.access_token)
            if credentials.certificate:
                certificate = json.loads(credentials.certificate)
                secrets |= {credentials.certificate, certificate["seed"], certificate["signature"]}
        assert [secret for secret in secrets if secret.strip() and secret in text] == []


def holding(*scopes: str, **settings: Any) -> Queue:
    """A server at which the client TESTED has exactly these scopes."""
    return Queue(Client(TESTED.client_id, TESTED.access_token, scopes), **settings)


def bare_client(services: Services, slots: UploadSlots | None = None) -> TestClient:
    """A client of an application with these services, but without configured clients and faults."""
    authenticator = Authenticator({}, Roles({}))
    site = Site(
        services=services,
        authenticator=authenticator,
        sign_in=SignIn("", "", authenticator, False, services.clock.now),
        metrics=Metrics("memory", 1),
        journal=Journal((), services.clock.now),
        faults=FaultRegistry(()),
        upload_slots=slots or UploadSlots(),
        root_url=ROOT_URL,
    )
    return TestClient(create_app(site))


def succeeded(answer: TestResponse) -> TestResponse:
    assert answer.status_code in (200, 204, 303), answer.get_data(as_text=True)
    return answer


def refused(answer: TestResponse, status: int, code: str, *mentioned: str) -> str:
    """Check that the answer is an error with this status and code that mentions all of these.

    Returns its message.
    """
    body = answer.get_json()
    assert (answer.status_code, body["code"]) == (status, code), body
    message = str(body["message"])
    assert [text for text in mentioned if text not in message] == [], message
    return message


def check_error(answer: TestResponse, names: Sequence[str]) -> None:
    """Check that the error has the form in docs/explanation/http-contract.md."""
    body = answer.get_json()
    assert set(body) == {"code", "message", "requestInfo"}
    assert body["code"] in CODES[answer.status_code]
    assert body["message"]
    info = body["requestInfo"]
    assert set(info) == {"method", "params", "payload", "time", "requestId"}
    assert info["requestId"] == answer.headers["x-request-id"]
    known: list[str | None] = [*names] or [None, *DECLARED, *CONTROL]
    assert info["method"] in known
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", info["time"])
    assert (answer.headers.get("www-authenticate") == "hawk") == (answer.status_code == 401)
    assert ("retry-after" in answer.headers) == (answer.status_code == 503)


@cache
def reference() -> Any:
    """The reference that the server serves."""
    return Queue().send("GET", "/references/queue/v1/api.json", credentials=None).get_json()


@cache
def schema(ref: str) -> Any:
    """The schema that a reference names as ``input`` or ``output``."""
    return Queue().send("GET", ref.removesuffix("#"), credentials=None).get_json()


@cache
def validator(name: str) -> Any:
    """A validator for an answer's schema. tests/http/test_references.py shows that the server serves it."""
    return jsonschema_rs.validator_for(SCHEMAS[name], validate_formats=True)


@dataclass(frozen=True)
class ExampleCall:
    """A call that succeeds after ``prepare``: its parameters, its body, and the values for its scopes."""

    params: Mapping[str, Any]
    body: Any
    prepare: Callable[[Queue], Any]
    fields: Mapping[str, Any]


TASK_ID = "VLdaX5vAQ0iW8JIr3sGQZw"
GROUP_ID = "eJzQ3g3rTZuH-bUFBpVoxw"
NAME = "private/build.log"
_TASK = {"schedulerId": "a-scheduler", "taskGroupId": GROUP_ID, "projectId": "a/project"}
_LISTS = {"scopes": ["some:scope:*", "another scope"], "routes": ["index.a.b", "tc-treeherder.v2"]}


_EXPIRES = {"expires": format_time(NOW + timedelta(days=2))}
_PARAMS = {
    **POOL,
    **WORKER,
    "taskId": TASK_ID,
    "taskGroupId": GROUP_ID,
    "runId": "0",
    "name": NAME,
    "taskQueueId": quote(POOL_NAME, safe=""),
}
_BODIES: dict[str | None, Any] = {  # by the name of the schema
    **dict.fromkeys(("task-claim-request", "claim-work-request"), WORKER),
    "tasks-request": {"taskIds": [TASK_ID]},
    "change-task-priority-request": {"newPriority": "high"},
    "task-exception-request": {"reason": "worker-shutdown"},
    "task-queue-counts-request": {"taskQueueIds": [POOL_NAME]},
    "update-provisioner-request": {"description": "builds", "stability": "stable", "actions": [], **_EXPIRES},
    "update-workertype-request": {"description": "builds", "stability": "stable", **_EXPIRES},
    "update-worker-request": _EXPIRES,
    "quarantine-worker-request": {"quarantineUntil": _EXPIRES["expires"]},
    "post-artifact-request": artifact_body("s3"),
    "put-artifact-request": {"etags": [BLOB_ETAG]},
    "finish-artifact-request": {"uploadId": TASK_ID},  # a placeholder until the uploadId is known
}


def params_of(name: str) -> dict[str, Any]:
    return {parameter: _PARAMS[parameter] for parameter in DECLARED[name].args}


def _prepare(queue: Queue, name: str, task: Mapping[str, Any]) -> None:
    match name:
        case "createTask" | "defineTask":
            return
        case "scheduleTask":
            queue.define(TASK_ID, **task)
        case "rerunTask":
            queue.canceled(TASK_ID, **task)
        case "claimTask" | "claimWork":
            queue.create(TASK_ID, **task)
        case _:
            queue.running(TASK_ID, **task)
    if name == "cancelTaskGroup":
        succeeded(queue.call("sealTaskGroup", taskGroupId=GROUP_ID))
    elif name == "completeArtifact":
        queue.uploaded_blob(TASK_ID, NAME)
    elif name == "finishArtifact":
        _BODIES["finish-artifact-request"]["uploadId"] = queue.uploaded_object(TASK_ID, NAME)["uploadId"]
    elif "name" in DECLARED[name].args and name != "createArtifact":
        succeeded(queue.artifact(TASK_ID, NAME))


def page_paths(task_id: str, pool: str = POOL_NAME) -> list[str]:
    """The paths of all pages, with this task, its group, whose id is the same, and this pool."""
    params = dict(zip(("provisionerId", "workerType"), pool.split("/"), strict=True))
    params |= dict.fromkeys(("taskId", "taskGroupId"), task_id)
    routes = [page.route for page in served_by("page") if page.method == "GET"]
    return [re.sub(r"<(\w+)>", lambda name: params[name[1]], route) for route in routes]


def example_call(name: str, priority: str = "lowest") -> ExampleCall:
    """A call of this endpoint that succeeds, with a task of this priority."""
    task: dict[str, Any] = {**_TASK, **_LISTS, "priority": priority}
    body = {**_BODIES, "create-task-request": task_body(**task)}.get(DECLARED[name].input)
    fields = {
        **_PARAMS,
        **_TASK,
        **_LISTS,
        "taskQueueId": POOL_NAME,
        "taskQueueIds": [POOL_NAME],
        "names": [NAME],
        "taskIds": [TASK_ID],
        "projects": [_TASK["projectId"]],
        "priorities": at_least("high" if name.startswith("change") else priority),
        "legacyPriority": ["lowest"] if priority == "lowest" else [],
        "schedulers": [_TASK["schedulerId"]],
        "directions": ["raise"],
        "properties": sorted(body or ()),
    }
    return ExampleCall(params_of(name), body, lambda queue: _prepare(queue, name, task), fields)
