"""Signed URLs of queues and blobs: shared access signatures by the functions of Azure's SDK."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from azure.storage.blob import generate_blob_sas
from azure.storage.queue import UserDelegationKey, generate_queue_sas

from legacy_queue.domain.poll_caller import poll_policy
from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports.account import SigningEndpoint
from legacy_queue.ports.queue import SignedUrls


@dataclass(frozen=True)
class UrlSigner:
    """Signs URLs at the endpoint: with the key for that expiry, or else with the endpoint's."""

    endpoint: SigningEndpoint
    delegation_key: Callable[[datetime], UserDelegationKey] | None = None

    def queue_urls(
        self, name: str, start: datetime, expiry: datetime, hidden_for: timedelta, caller: str
    ) -> SignedUrls:
        """As ``Queue.signed_urls``."""
        sas = generate_queue_sas(
            self.endpoint.account,
            name,
            permission="p",  # to receive and delete, neither to put nor to peek
            start=start,
            expiry=expiry,
            policy_id=poll_policy(caller) if caller and self.endpoint.is_own else None,
            **self._common(expiry),
        )
        messages = f"{self._base}/{name}/messages"
        return SignedUrls(
            poll=f"{messages}?visibilitytimeout={whole_seconds(hidden_for)}&{sas}",
            delete=f"{messages}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{sas}",
        )

    def upload_url(self, container: str, name: str, start: datetime, expiry: datetime) -> str:
        """As ``BlobContainer.upload_url``."""
        return self._blob_url(container, name, start, expiry, "cw", None)

    def download_url(self, container: str, name: str, start: datetime, expiry: datetime) -> str:
        """As ``BlobContainer.download_url``."""
        return self._blob_url(container, name, start, expiry, "r", "attachment")

    def _blob_url(
        self,
        container: str,
        name: str,
        start: datetime,
        expiry: datetime,
        permission: str,
        disposition: str | None,
    ) -> str:
        sas = generate_blob_sas(
            self.endpoint.account,
            container,
            name,
            permission=permission,
            start=start,
            expiry=expiry,
            content_disposition=disposition,
            **self._common(expiry),
        )
        return f"{self._base}/{container}/{name}?{sas}"

    @property
    def _base(self) -> str:
        return self.endpoint.url.rstrip("/")

    def _common(self, expiry: datetime) -> Mapping[str, Any]:
        """The arguments that both functions of the SDK take."""
        # plain HTTP only where the URL is plain HTTP
        protocol = "https" if self.endpoint.url.startswith("https:") else "https,http"
        if self.delegation_key:
            return {"protocol": protocol, "user_delegation_key": self.delegation_key(expiry)}
        return {"protocol": protocol, "account_key": self.endpoint.key}
