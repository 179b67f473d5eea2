"""Shared access signatures of queues and blobs, by the functions of Azure's SDK."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from azure.storage.blob import generate_blob_sas
from azure.storage.queue import generate_queue_sas

from legacy_queue.ports.account import BlobPermission, StorageAccount

SignedService = Literal["queue", "blob"]


class SigningAccount(StorageAccount):
    """An account whose URLs are signed by the SDK, with the keys of its public endpoints."""

    def queue_sas(self, name: str, start: datetime, expiry: datetime) -> str:
        endpoint = self.public_queues
        return generate_queue_sas(
            endpoint.account,
            name,
            permission="p",
            start=start,
            expiry=expiry,
            protocol=endpoint.sas_protocol,
            **self._credential("queue", expiry),
        )

    def blob_sas(
        self,
        name: str,
        permission: BlobPermission,
        start: datetime,
        expiry: datetime,
        disposition: str | None = None,
    ) -> str:
        endpoint = self.public_blobs
        return generate_blob_sas(
            endpoint.account,
            self.container.name,
            name,
            permission=permission,
            start=start,
            expiry=expiry,
            protocol=endpoint.sas_protocol,
            content_disposition=disposition,
            **self._credential("blob", expiry),
        )

    def _credential(self, service: SignedService, _expiry: datetime) -> Mapping[str, Any]:
        """The argument of the SDK's functions with what signs URLs of the service until ``_expiry``."""
        return {"account_key": (self.public_queues if service == "queue" else self.public_blobs).key}
