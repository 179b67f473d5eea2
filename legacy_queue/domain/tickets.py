"""Signed permissions to upload: what an upload URL of this server holds."""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from legacy_queue.domain.errors import AuthorizationFailed
from legacy_queue.domain.times import format_time, parse_time


@dataclass(frozen=True)
class Ticket:
    """The permission to upload that artifact until ``expiry``: as a whole, or its part ``number``, 1.., of
    this SHA-256, in hex, and size in bytes. That for an object says size and content type. Its text survives
    any URL, however its path is normalized.
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
        """Letters, digits, ``-`` and ``_``."""
        wire = [self.task_id, self.run_id, self.name, format_time(self.expiry)]
        if self.number or self.content_type:
            wire += [self.number, self.sha256, self.size, self.content_type]
        return base64.urlsafe_b64encode(json.dumps(wire, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def verified(cls, text: str, signature: str, secrets: Sequence[bytes], now: datetime) -> Self:
        """The ticket, if one of the secrets signed it and it has not ended; raises AuthorizationFailed."""
        given = signature.encode()
        if not any(hmac.compare_digest(given, ticket_signature(text, one).encode()) for one in secrets):
            raise AuthorizationFailed(
                "the URL is not signed for this upload: use it as createArtifact answered it"
            )
        wire = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        task_id, run_id, name, expiry, *part = wire
        if parse_time(expiry) <= now:
            raise AuthorizationFailed(
                f"the URL ended at {expiry}: createArtifact with the same body answers a new one"
            )
        return cls(task_id, run_id, name, parse_time(expiry), *part)


def ticket_signature(text: str, secret: bytes) -> str:
    """64 hex digits. The key is the secret's for this purpose alone: messages are signed with another."""
    key = hmac.digest(secret, b"legacy-queue/upload", hashlib.sha256)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
