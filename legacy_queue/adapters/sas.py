"""Signed URLs for one queue, the same for Azure, Azurite and the memory storage."""

from datetime import datetime, timedelta

from azure.storage.queue import QueueSasPermissions, generate_queue_sas

from legacy_queue.domain.times import whole_seconds
from legacy_queue.ports import SignedUrls


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
    QueueEndpoint; ``key`` is base64. Plain HTTP is allowed where that endpoint is plain HTTP only.
    Source: WorkQueues.signed_urls; design/clients.md 14 and 20.
    """
    sas = generate_queue_sas(
        account,
        queue_name,
        key,
        permission=QueueSasPermissions(process=True),
        start=start,
        expiry=expiry,
        protocol="https" if queue_url.startswith("https:") else "https,http",
    )
    messages = f"{queue_url.rstrip('/')}/{queue_name}/messages"
    return SignedUrls(
        poll=f"{messages}?visibilitytimeout={whole_seconds(visibility)}&{sas}",
        delete=f"{messages}/{{{{messageId}}}}?popreceipt={{{{popReceipt}}}}&{sas}",
    )
