"""Signed URLs for one queue or one blob, the same for Azure, Azurite and the memory storage.

Plain HTTP is allowed where the endpoint that clients are told is plain HTTP only.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from azure.storage.blob import BlobSasPermissions, generate_blob_sas
from azure.storage.queue import QueueSasPermissions, generate_queue_sas

from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports.account import Endpoint

_DRIFT = timedelta(minutes=15)  # of clocks: a URL is good from so long ago on

_READ, _WRITE = BlobSasPermissions(read=True), BlobSasPermissions(create=True, write=True)


@dataclass(frozen=True)
class SignedUrls:
    """A poll and a delete URL for one queue, as pollTaskUrls answers them."""

    poll: str
    delete: str


def signed_urls(
    endpoint: Endpoint, queue_name: str, start: datetime, expiry: datetime, visibility: timedelta
) -> SignedUrls:
    """URLs that allow to receive and delete messages of that queue between the two times, and nothing else.

    Source: WorkQueues.signed_urls; design/clients.md 14 and 20.
    """
    sas = generate_queue_sas(
        endpoint.account,
        queue_name,
        endpoint.key,
        permission=QueueSasPermissions(process=True),
        start=start,
        expiry=expiry,
        protocol=_protocol(endpoint),
    )
    messages = f"{endpoint.url.rstrip('/')}/{queue_name}/messages"
    return SignedUrls(
        poll=f"{messages}?visibilitytimeout={whole_seconds(visibility)}&{sas}",
        delete=f"{messages}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{sas}",
    )


def upload_url(endpoint: Endpoint, container: str, name: str, now: datetime, expiry: datetime) -> str:
    """Allows to write that one blob. Source: Blobs; Azure's "Create a service SAS"."""
    return _blob_url(endpoint, container, name, _WRITE, now, expiry)


def download_url(endpoint: Endpoint, container: str, name: str, now: datetime, expiry: datetime) -> str:
    """Allows to read that one blob, as an attachment."""
    return _blob_url(endpoint, container, name, _READ, now, expiry, "attachment")


def _blob_url(
    endpoint: Endpoint,
    container: str,
    name: str,
    permission: BlobSasPermissions,
    now: datetime,
    expiry: datetime,
    content_disposition: str | None = None,
) -> str:
    sas = generate_blob_sas(
        endpoint.account,
        container,
        name,
        account_key=endpoint.key,
        permission=permission,
        start=now - _DRIFT,
        expiry=expiry,
        protocol=_protocol(endpoint),
        content_disposition=content_disposition,
    )
    return f"{endpoint.url.rstrip('/')}/{container}/{name}?{sas}"


def _protocol(endpoint: Endpoint) -> str:
    return "https" if endpoint.url.startswith("https:") else "https,http"
