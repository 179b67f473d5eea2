"""Signs URLs of queues and blobs by shared access signatures like Azure's.

URLs of this server are signed here, so that it does not need the Azure SDK. Source: Azure's "Create a service
SAS" (version 2015-04-05 and later for queues, 2020-12-06 and later for blobs).
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from legacy_queue.domain.poll_caller import poll_policy
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports.account import SigningEndpoint
from legacy_queue.ports.queue import SignedUrls

_VERSION = "2021-12-02"
_RESOURCE = "/"  # its place among the signed fields
_QUEUE_FIELDS = ("sp", "st", "se", _RESOURCE, "si", "sip", "spr", "sv")
_BLOB_FIELDS = (*_QUEUE_FIELDS, "sr", "snapshot", "ses", "rscc", "rscd", "rsce", "rscl", "rsct")


@dataclass(frozen=True)
class UrlSigner:
    """Signs URLs of the endpoint with the endpoint's key."""

    endpoint: SigningEndpoint

    def queue_urls(
        self, name: str, start: datetime, expiry: datetime, hidden_for: timedelta, caller: str
    ) -> SignedUrls:
        """As ``Queue.signed_urls``."""
        policy = poll_policy(caller) if caller and self.endpoint.is_own else ""
        # "p" allows receiving and deleting messages, but not putting or peeking
        sas = self._queue_sas(name, "p", start, expiry, policy)
        messages = f"{self._base}/{name}/messages"
        return SignedUrls(
            poll=f"{messages}?visibilitytimeout={whole_seconds(hidden_for)}&{sas}",
            delete=f"{messages}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{sas}",
        )

    def upload_url(self, container: str, name: str, start: datetime, expiry: datetime) -> str:
        """As ``BlobContainer.upload_url``."""
        sas = self._blob_sas(container, name, "cw", start, expiry, "")
        return f"{self._base}/{container}/{quote(name)}?{sas}"

    def download_url(self, container: str, name: str, start: datetime, expiry: datetime) -> str:
        """As ``BlobContainer.download_url``."""
        sas = self._blob_sas(container, name, "r", start, expiry, "attachment")
        return f"{self._base}/{container}/{quote(name)}?{sas}"

    @property
    def _base(self) -> str:
        return self.endpoint.url.rstrip("/")

    @property
    def _protocol(self) -> str:
        # the SAS allows plain HTTP only if the URL itself is plain HTTP
        return "https" if self.endpoint.url.startswith("https:") else "https,http"

    def _queue_sas(self, name: str, permission: str, start: datetime, expiry: datetime, policy: str) -> str:
        signed = self._fields(permission, start, expiry) | {"si": policy}
        return self._sas(f"/queue/{self.endpoint.account}/{name}", signed, _QUEUE_FIELDS)

    def _blob_sas(
        self, container: str, name: str, permission: str, start: datetime, expiry: datetime, disposition: str
    ) -> str:
        signed = self._fields(permission, start, expiry) | {"sr": "b", "rscd": disposition}
        return self._sas(f"/blob/{self.endpoint.account}/{container}/{name}", signed, _BLOB_FIELDS)

    def _fields(self, permission: str, start: datetime, expiry: datetime) -> dict[str, str]:
        times = {"st": _text(start), "se": _text(expiry)}
        return {**times, "sp": permission, "spr": self._protocol, "sv": _VERSION}

    def _sas(self, resource: str, signed: Mapping[str, str], order: Sequence[str]) -> str:
        text = "\n".join([resource if name == _RESOURCE else signed.get(name, "") for name in order])
        mac = hmac.digest(base64.b64decode(self.endpoint.key), text.encode(), hashlib.sha256)
        query = {**signed, "sig": base64.b64encode(mac).decode()}
        return "&".join([f"{name}={quote(value)}" for name, value in query.items() if value])


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
