"""The credentials of a client, with which a worker, the commands and the test kit sign their requests."""

import base64
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import requests

from legacy_queue.domain import hawk


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
        """The ``ext`` of Hawk, without which a certificate is not used."""
        as_object = f'{{"certificate": {self.certificate}}}'
        return base64.b64encode(as_object.encode()).decode() if self.certificate else ""

    def sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign the target and the body as they go over the wire: an ``auth`` of requests.

        ANONYMOUS leaves the request unsigned, also where ~/.netrc has credentials: Azure would refuse them.
        """
        if not self.client_id:
            return request
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


ANONYMOUS = Credentials("", "")
