"""Signed permissions to upload or download, in the URLs of this server."""

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
    """The permission to upload an artifact until ``expiry``: as a whole, or its part ``number``, from 1, with
    this SHA-256 in hex and size in bytes. A ticket for an object has a size and a content type. What it is
    signed for says whether it is one to download.
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
        """Letters, digits, ``-`` and ``_``: a URL that is normalized does not change it."""
        part = self.number, self.sha256, self.size, self.content_type
        wire = [self.task_id, self.run_id, self.name, format_time(self.expiry), *part]
        return base64.urlsafe_b64encode(json.dumps(wire, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def verified(
        cls, text: str, signature: str, secrets: Sequence[bytes], now: datetime, use: Use = "upload"
    ) -> Self:
        """The ticket; raises AuthorizationFailed if no secret signed it, or it has expired."""
        signatures = (ticket_signature(text, secret, use).encode() for secret in secrets)
        if not any(hmac.compare_digest(signature.encode(), expected) for expected in signatures):
            raise AuthorizationFailed(f"the URL is not signed for this {use}: use it as it was answered")
        wire = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        task_id, run_id, name, expiry, *part = wire
        if parse_time(expiry) <= now:
            raise AuthorizationFailed(f"the URL ended at {expiry}: the same call as before answers a new URL")
        return cls(task_id, run_id, name, parse_time(expiry), *part)


def ticket_signature(text: str, secret: bytes, use: Use = "upload") -> str:
    """64 hex digits, with a key of its own that is derived from the secret."""
    key = hmac.digest(secret, f"legacy-queue/{use}".encode(), hashlib.sha256)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
