"""Signed URLs for one queue or one blob, the same for Azure, Azurite and the memory storage.

Plain HTTP is allowed where the endpoint that clients are told is plain HTTP only. Keys are base64.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from azure.storage.blob import BlobSasPermissions, generate_blob_sas
from azure.storage.queue import QueueSasPermissions, generate_queue_sas

from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import SignedUrls

_DRIFT = timedelta(minutes=15)  # of clocks: a URL is good from so long ago on

_READ, _WRITE = BlobSasPermissions(read=True), BlobSasPermissions(create=True, write=True)


def signed_urls(
    queue_url: str,
    account: str,
    key: str,
    queue_name: str,
    start: datetime,
    expiry: datetime,
    visibility: timedelta,
) -> SignedUrls:
    """URLs that allow to receive and delete messages of that queue between the two times, and nothing else.

    ``queue_url`` is the account's queue endpoint as workers reach it, such as a connection string's
    QueueEndpoint. Source: WorkQueues.signed_urls; design/clients.md 14 and 20.
    """
    sas = generate_queue_sas(
        account,
        queue_name,
        key,
        permission=QueueSasPermissions(process=True),
        start=start,
        expiry=expiry,
        protocol=_protocol(queue_url),
    )
    messages = f"{queue_url.rstrip('/')}/{queue_name}/messages"
    return SignedUrls(
        poll=f"{messages}?visibilitytimeout={whole_seconds(visibility)}&{sas}",
        delete=f"{messages}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{sas}",
    )


@dataclass(frozen=True)
class BlobSigner:
    """Signs URLs for the blobs of a container; ``blob_url`` is the account's endpoint as clients reach it.

    Each allows one thing with one blob, and nothing else. Source: Blobs; Azure's "Create a service SAS".
    """

    blob_url: str
    account: str
    key: str = field(repr=False)
    container: str

    def upload_url(self, name: str, now: datetime, expiry: datetime) -> str:
        return self._url(name, _WRITE, now, expiry)

    def download_url(self, name: str, now: datetime, expiry: datetime) -> str:
        return self._url(name, _READ, now, expiry, "attachment")

    def _url(
        self,
        name: str,
        permission: BlobSasPermissions,
        now: datetime,
        expiry: datetime,
        content_disposition: str | None = None,
    ) -> str:
        sas = generate_blob_sas(
            self.account,
            self.container,
            name,
            account_key=self.key,
            permission=permission,
            start=now - _DRIFT,
            expiry=expiry,
            protocol=_protocol(self.blob_url),
            content_disposition=content_disposition,
        )
        return f"{self.blob_url.rstrip('/')}/{self.container}/{name}?{sas}"


def _protocol(endpoint: str) -> str:
    return "https" if endpoint.startswith("https:") else "https,http"
