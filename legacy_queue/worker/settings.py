"""What a worker is given before it starts, and what all its parts share."""

import base64
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import requests

from legacy_queue.domain import hawk
from legacy_queue.worker.steps import Notify

Sign = Callable[[requests.PreparedRequest], requests.PreparedRequest]

_PORTS = {"http": 80, "https": 443}


class Protocol(StrEnum):
    """Which of the three ways of finding work the worker follows."""

    DRAFT = "draft"  # seed 004: sends the message's id, receipt and signature; the queue holds the message
    DEPLOYED = "deployed"  # seed 003: claims with its own name alone, and deletes the message itself
    CLAIMWORK = "claimwork"  # seed 000: asks the queue for claims, in a long poll; sees no Azure queue


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
        """What signs a request just before it is sent; a repeated request is signed anew.

        The target is signed as it goes over the wire, after requests has quoted it, and so is the body.
        Raises ValueError for a certificate that is not JSON.
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

    ``base_url`` is what the queue's routes are appended to (``https://queue.example.net/v1``).
    (worker_group, worker_id) must be unique: two workers of one name would be given the same claim.
    ``max_tasks`` tasks end the worker; None means no end. ``live_log`` says whether the log of a running
    task can be read, on this machine alone.
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
        """The worker's name, as every claim carries it."""
        return {"workerGroup": self.worker_group, "workerId": self.worker_id}


class Clock:
    """The machine's own time, read and waited for nowhere else; a test hands in another clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set or the seconds are over; says whether it is set."""
        return event.wait(seconds)


@dataclass(frozen=True)
class Context:
    """What the parts of one worker share. Once ``stopping`` is set, nothing more is claimed."""

    settings: WorkerSettings
    clock: Clock
    notify: Notify
    stopping: threading.Event
