"""Signed permissions to upload or download, which are part of this server's URLs."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Self

from legacy_queue.domain.errors import AuthorizationFailed
from legacy_queue.domain.times import format_time, parse_time

Use = Literal["upload", "download"]


@dataclass(frozen=True)
class Ticket:
    """The permission to upload or download an artifact until ``expiry``.

    The signature says whether it is for an upload or a download. An upload is of the whole artifact, or of
    its part ``number`` (from 1) with this SHA-256 in hex and this size in bytes. A ticket for an object has a
    size and a content type.
    """

    task_id: str
    run_id: int
    name: str
    expiry: datetime
    number: int = 0
    sha256: str = ""
    size: int = 0
    content_type: str = ""

    def text(self) -> str:
        """The ticket as text of letters, digits, ``-`` and ``_``, which no normalization of a URL changes."""
        part = self.number, self.sha256, self.size, self.content_type
        wire = [self.task_id, self.run_id, self.name, format_time(self.expiry), *part]
        return base64.urlsafe_b64encode(json.dumps(wire, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def verified(
        cls, text: str, signature: str, secrets: Sequence[bytes], now: datetime, use: Use = "upload"
    ) -> Self:
        """Reads a ticket. Raises AuthorizationFailed if none of the secrets signed it, or it has expired."""
        signatures = (ticket_signature(text, secret, use).encode() for secret in secrets)
        if not any(hmac.compare_digest(signature.encode(), expected) for expected in signatures):
            raise AuthorizationFailed(
                f"the URL is not signed for this {use}: use the URL exactly as the server returned it"
            )
        wire = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        task_id, run_id, name, expiry, *part = wire
        if parse_time(expiry) <= now:
            raise AuthorizationFailed(
                f"the URL expired at {expiry}: repeat the call that returned it to get a new URL"
            )
        return cls(task_id, run_id, name, parse_time(expiry), *part)


def ticket_signature(text: str, secret: bytes, use: Use = "upload") -> str:
    """Returns 64 hex digits. The key is derived from the secret, and differs for each use."""
    key = hmac.digest(secret, f"legacy-queue/{use}".encode(), hashlib.sha256)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
