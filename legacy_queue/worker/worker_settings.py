"""The settings of a worker, the context that its parts share, and the steps that it reports.

The fields of a step are not secret: ids, times, counts and reasons. They never hold a signed URL, a receipt,
a signature, a token or a value of the task's environment.
"""

import base64
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import requests

from legacy_queue.domain import hawk

OnStep = Callable[["Step", Mapping[str, Any]], None]
Notify = Callable[..., None]  # a step, and its fields by name
Sign = Callable[[requests.PreparedRequest], requests.PreparedRequest]


class Protocol(StrEnum):
    """How the worker finds work."""

    DRAFT = "draft"  # claims with the message's id, receipt and signature; the queue holds the message
    DEPLOYED = "deployed"  # claims with the worker's name alone, and deletes the message itself
    CLAIMWORK = "claimwork"  # requests claims; uses no Azure queue


@dataclass(frozen=True)
class Credentials:
    """A clientId and its accessToken, with a certificate (JSON text) when they are temporary."""

    client_id: str
    access_token: str = field(repr=False)
    certificate: str | None = field(default=None, repr=False)

    @classmethod
    def from_wire(cls, credentials: Any) -> "Credentials":
        return cls(credentials["clientId"], credentials["accessToken"], credentials.get("certificate"))

    @property
    def ext(self) -> str:
        """The ``ext`` of Hawk; raises ValueError if the certificate is not JSON."""
        if not self.certificate:
            return ""
        as_object = json.dumps({"certificate": json.loads(self.certificate)})
        return base64.b64encode(as_object.encode()).decode()

    def hawk(self, now: Callable[[], datetime]) -> Sign:
        """A function that signs a request just before it is sent; each repetition is signed again.

        Signs the target and the body as they go over the wire, after requests has quoted the target. Raises
        ValueError if the certificate is not JSON.
        """
        ext = self.ext

        def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
            url = urlsplit(str(request.url))
            signed = hawk.SignedRequest(
                str(request.method),
                request.path_url,
                url.hostname or "",
                url.port or (443 if url.scheme == "https" else 80),
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
    must be unique: two workers of the same name would get the same claim. The worker runs ``capacity`` tasks
    at the same time, and ends after ``max_tasks`` tasks, never if None.
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

    def name_to_wire(self) -> dict[str, str]:
        """The worker's name in the body of a claim."""
        return {"workerGroup": self.worker_group, "workerId": self.worker_id}


class WorkerClock:
    """The only place that reads the machine's time and waits; a test hands in another clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait(self, event: threading.Event, duration: timedelta) -> bool:
        """Wait until the event is set or the duration is over; returns whether it is set."""
        return event.wait(duration.total_seconds())


@dataclass(frozen=True)
class Context:
    """Shared by the parts of a worker.

    ``stopping``: the worker is to claim nothing more. ``no_more_claims``: it has made its last claim.
    """

    settings: WorkerSettings
    clock: WorkerClock
    notify: Notify
    stopping: threading.Event = field(default_factory=threading.Event)
    no_more_claims: threading.Event = field(default_factory=threading.Event)


class Step(StrEnum):
    """A step of the worker; a step of a task has ``task_id`` and ``run_id`` beside these fields."""

    POLL_URLS = "poll-urls"  # queues (how many), expires
    POLL = "poll"  # messages (how many) of queue (1 is the first, of the highest priority); claimWork: claims
    CLAIM = "claim"  # taken_until
    DELETED = "deleted"  # deployed: message_id
    RUN = "run"  # the command starts
    RECLAIM = "reclaim"  # taken_until
    CLAIM_LOST = "claim-lost"  # detail; the task is stopped without a report
    ARTIFACT = "artifact"  # name
    REPORT = "report"  # result (completed, failed, exception), reason
    FAILURE = "failure"  # detail: a sentence; more fields where they are known
