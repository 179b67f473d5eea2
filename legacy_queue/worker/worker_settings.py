"""What a worker is given."""

import base64
import json
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import requests

from legacy_queue.domain import hawk


class Protocol(StrEnum):
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

    def sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign the target and the body as they go over the wire: an ``auth`` of requests."""
        url = urlsplit(str(request.url))
        port = url.port or (443 if url.scheme == "https" else 80)
        content_type = request.headers.get("Content-Type", "")
        body = request.body if isinstance(request.body, bytes) else b""
        signed = hawk.SignedRequest(
            str(request.method), request.path_url, str(url.hostname), port, None, content_type, body
        )
        own = self.client_id, self.access_token, datetime.now(UTC), secrets.token_urlsafe(6), self.ext
        request.headers["Authorization"] = hawk.sign_header(signed, *own)
        return request


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """A worker of the ``pool``, provisionerId/workerType; the queue's routes are below ``base_url``.

    (worker_group, worker_id) must be unique: two workers of the same name would get the same claim.
    """

    base_url: str
    credentials: Credentials
    pool: str
    worker_group: str
    worker_id: str
    protocol: Protocol = Protocol.DRAFT
    capacity: int = 1  # tasks at the same time
    max_tasks: int | None = None  # after which the worker ends
