"""What a worker is given before it starts, and what all its parts share."""

import base64
import json
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from legacy_queue.worker.clock import Clock
from legacy_queue.worker.steps import Notify


class Protocol(StrEnum):
    """Which of the three ways of finding work the worker follows."""

    DRAFT = "draft"
    """Seed 004: claims with the message's id, receipt and signature; the queue holds the message."""

    DEPLOYED = "deployed"
    """Seed 003: claims with its own name alone, and deletes the message itself."""

    CLAIMWORK = "claimwork"
    """Seed 000: asks the queue for claims, in a long poll, and never sees an Azure queue."""


@dataclass(frozen=True)
class Credentials:
    """A clientId and its accessToken, with a certificate (JSON text) when they are temporary."""

    client_id: str
    access_token: str = field(repr=False)
    certificate: str | None = field(default=None, repr=False)

    @classmethod
    def from_wire(cls, credentials: Any) -> "Credentials":
        return cls(credentials["clientId"], credentials["accessToken"], credentials.get("certificate"))

    def ext(self) -> str | None:
        """What Hawk's ``ext`` carries: base64 of JSON that holds the certificate as an object.

        Raises ValueError for a certificate that is not JSON.
        """
        if not self.certificate:
            return None
        return base64.b64encode(json.dumps({"certificate": json.loads(self.certificate)}).encode()).decode()


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


@dataclass(frozen=True)
class Context:
    """What the parts of one worker share. Once ``stopping`` is set, nothing more is claimed."""

    settings: WorkerSettings
    clock: Clock
    notify: Notify
    stopping: threading.Event


def base_url_of(root_url: str) -> str:
    """The queue's base URL under a root URL: ``http://localhost:8080`` -> ``.../api/queue/v1``."""
    return root_url.rstrip("/") + "/api/queue/v1"
