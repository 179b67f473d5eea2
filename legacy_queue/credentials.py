"""The credentials of a client. A worker, the commands and the test kit sign their requests with them."""

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
    """A clientId and its accessToken. Temporary credentials also have a certificate (JSON text)."""

    client_id: str
    access_token: str = field(repr=False)
    certificate: str | None = field(default=None, repr=False)

    @classmethod
    def from_wire(cls, credentials: Any) -> "Credentials":
        return cls(credentials["clientId"], credentials["accessToken"], credentials.get("certificate"))

    @property
    def ext(self) -> str:
        """The ``ext`` of Hawk, which carries the certificate to the server; empty without one."""
        as_object = f'{{"certificate": {self.certificate}}}'
        return base64.b64encode(as_object.encode()).decode() if self.certificate else ""

    def sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign a request, with its target and body as they are sent. This is an ``auth`` for requests.

        ANONYMOUS leaves the request unsigned, even if ~/.netrc has credentials, because Azure would refuse
        those.
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
