"""Signed URLs for one queue or one blob, the same for Azure, Azurite and the memory storage.

Plain HTTP is allowed where the endpoint that clients are told is plain HTTP only.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from azure.storage.blob import generate_blob_sas
from azure.storage.queue import generate_queue_sas

from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports.account import Endpoint


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
        permission="p",
        start=start,
        expiry=expiry,
        protocol=_protocol(endpoint),
    )
    messages = f"{endpoint.url.rstrip('/')}/{queue_name}/messages"
    return SignedUrls(
        poll=f"{messages}?visibilitytimeout={whole_seconds(visibility)}&{sas}",
        delete=f"{messages}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{sas}",
    )


def blob_url(
    endpoint: Endpoint,
    container: str,
    name: str,
    permission: str,
    start: datetime,
    expiry: datetime,
    content_disposition: str | None = None,
) -> str:
    """Allows the permission ("cw", "r") on that one blob. Source: Blobs; Azure's "Create a service SAS"."""
    sas = generate_blob_sas(
        endpoint.account,
        container,
        name,
        account_key=endpoint.key,
        permission=permission,
        start=start,
        expiry=expiry,
        protocol=_protocol(endpoint),
        content_disposition=content_disposition,
    )
    return f"{endpoint.url.rstrip('/')}/{container}/{name}?{sas}"


def _protocol(endpoint: Endpoint) -> str:
    return "https" if endpoint.url.startswith("https:") else "https,http"
