"""What this server signs without the SDK, Azurite grants: another implementation of the same signatures."""

import secrets
from datetime import UTC, datetime, timedelta

import requests

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.signing import UrlSigner
from legacy_queue.local_processes.azurite import Azurite

HOUR = timedelta(hours=1)
BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}


def test_signed_urls_of_queues_and_blobs_are_granted(azurite: Azurite) -> None:
    account = AzureAccount(azurite.connection_string, f"t{secrets.token_hex(4)}")
    account.check()
    queue = account.queue(f"q{secrets.token_hex(4)}")
    queue.create({})
    queue.put("text", timedelta(0))
    start, expiry = datetime.now(UTC) - HOUR, datetime.now(UTC) + HOUR
    queues, blobs = UrlSigner(account.public_queues), UrlSigner(account.public_blobs)
    poll = queues.queue_urls(queue.name, start, expiry, HOUR, "a-caller").poll
    assert "<MessageText>text<" in requests.get(poll, timeout=30).text
    assert requests.post(poll, timeout=30).status_code == 403, "it does not allow to put"
    upload = blobs.upload_url(account.container.name, "a name", start, expiry)
    assert requests.put(upload, b"content", headers=BLOCK_BLOB, timeout=30).status_code == 201
    download = requests.get(blobs.download_url(account.container.name, "a name", start, expiry), timeout=30)
    assert (download.content, download.headers["content-disposition"]) == (b"content", "attachment")
