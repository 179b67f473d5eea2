"""The settings of a worker, the context that its parts share, and the steps that it reports.

The fields of a step are not secret: ids, times, counts and reasons. They never hold a signed URL, a receipt,
a signature, a token or a value of the task's environment.
"""

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any, Self
from urllib.parse import urlsplit

import requests
import structlog

from legacy_queue.domain import hawk

OnStep = Callable[["Step", Mapping[str, Any]], None]
Notify = Callable[..., None]  # a step, and its fields by name
Sign = Callable[[requests.PreparedRequest], requests.PreparedRequest]

_PORTS = {"http": 80, "https": 443}


class Protocol(StrEnum):
    """How the worker finds work."""

    DRAFT = "draft"  # claims with the message's id, receipt and signature; the queue holds the message
    DEPLOYED = "deployed"  # claims with the worker's name alone, and deletes the message itself
    CLAIMWORK = "claimwork"  # requests claims in a long poll; uses no Azure queue


@dataclass(frozen=True)
class Credentials:
    """A clientId and its accessToken, with a certificate (JSON text) when they are temporary."""

    client_id: str
    access_token: str = field(repr=False)
    certificate: str | None = field(default=None, repr=False)

    @classmethod
    def from_wire(cls, credentials: Any) -> "Credentials":
        return cls(credentials["clientId"], credentials["accessToken"], credentials.get("certificate"))

    def hawk(self, now: Callable[[], datetime]) -> Sign:
        """A function that signs a request just before it is sent; each repetition is signed again.

        Signs the target and the body as they go over the wire, after requests has quoted the target. Raises
        ValueError if the certificate is not JSON.
        """
        ext = ""
        if self.certificate:
            as_object = json.dumps({"certificate": json.loads(self.certificate)})
            ext = base64.b64encode(as_object.encode()).decode()

        def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
            url = urlsplit(str(request.url))
            signed = hawk.SignedRequest(
                str(request.method),
                request.path_url,
                url.hostname or "",
                url.port or _PORTS[url.scheme],
                content_type=request.headers.get("Content-Type", ""),
                body=request.body if isinstance(request.body, bytes) else b"",
            )
            nonce = secrets.token_urlsafe(6)
            request.headers["Authorization"] = hawk.sign_header(
                signed, self.client_id, self.access_token, now(), nonce, ext
            )
            return request

        return sign


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """One worker of the pool (provisioner_id, worker_type).

    The queue's routes are below ``base_url`` (``https://queue.example.net/v1``). (worker_group, worker_id)
    must be unique: two workers of the same name would get the same claim. The worker ends after ``max_tasks``
    tasks, never if None. ``live_log``: the log of a running task can be read on this machine.
    """

    base_url: str
    credentials: Credentials
    provisioner_id: str
    worker_type: str
    worker_group: str
    worker_id: str
    protocol: Protocol = Protocol.DRAFT
    capacity: int = 1
    max_tasks: int | None = None
    poll_interval: timedelta = timedelta(seconds=1)
    live_log: bool = True

    def name_to_wire(self) -> dict[str, str]:
        """The worker's name in the body of a claim."""
        return {"workerGroup": self.worker_group, "workerId": self.worker_id}


class WorkerClock:
    """The only place that reads the machine's time and waits; a test hands in another clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the seconds are over; returns whether it is set."""
        return event.wait(seconds)


@dataclass(frozen=True)
class Context:
    """Shared by the parts of a worker. After ``stopping`` is set, nothing more is claimed."""

    settings: WorkerSettings
    clock: WorkerClock
    notify: Notify
    stopping: threading.Event


class Step(StrEnum):
    """A step of the worker; a step of a task has ``task_id`` and ``run_id`` beside these fields."""

    level: int

    def __new__(cls, name: str, level: int = INFO) -> Self:
        step = str.__new__(cls, name)
        step._value_, step.level = name, level
        return step

    POLL_URLS = "poll-urls"  # provisioner_id, worker_type, queues (how many), expires
    POLL = "poll", DEBUG  # queue (1 is the first, of the highest priority), messages (how many)
    CLAIM_WORK = "claim-work", DEBUG  # claimwork: tasks (how many were requested), claims (how many came)
    CLAIM = "claim"  # taken_until, sent (the names of the parameters)
    HELD = "held"  # draft: the queue hides message_id until taken_until
    DELETED = "deleted"  # deployed: message_id
    RUN = "run"  # the command starts
    RECLAIM = "reclaim"  # taken_until
    EXITED = "exited"  # exit_code; -9 for signal 9
    ARTIFACT = "artifact"  # name, storage_type
    REPORT = "report"  # result (completed, failed, exception), reason

    MESSAGE_DEQUEUED_OFTEN = "message-dequeued-often", ERROR  # message_id, dequeue_count
    MESSAGE_UNREADABLE = "message-unreadable", WARNING  # message_id, detail
    CLAIM_REFUSED = "claim-refused"  # status, code, detail
    CLAIM_UNAVAILABLE = "claim-unavailable", WARNING  # detail
    ALREADY_RUNNING = "already-running", WARNING
    DELETE_FAILED = "delete-failed", ERROR  # message_id, detail
    POLL_URLS_FAILED = "poll-urls-failed", WARNING  # detail
    POLL_FAILED = "poll-failed", WARNING  # queue, detail
    CLAIM_WORK_FAILED = "claim-work-failed", WARNING  # detail
    PAYLOAD_MALFORMED = "payload-malformed"  # detail
    INTERNAL_ERROR = "internal-error", ERROR  # detail
    TIME_OVER = "time-over"  # max_run_time in seconds
    RECLAIM_FAILED = "reclaim-failed", WARNING  # detail; repeated before takenUntil
    CLAIM_LOST = "claim-lost"  # detail; the task is stopped without a report
    ARTIFACT_FAILED = "artifact-failed", WARNING  # name, detail
    REPORT_FAILED = "report-failed", WARNING  # result, reason, detail


def log_step(step: Step, fields: Mapping[str, Any]) -> None:
    """Log a line for each step; a poll that has found something is logged as information."""
    has_found = fields.get("messages") or fields.get("claims")
    structlog.get_logger("legacy_queue.worker").log(INFO if has_found else step.level, step.value, **fields)
