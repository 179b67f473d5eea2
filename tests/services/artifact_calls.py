"""The calls with which a worker stores artifacts, and a fake object store."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from legacy_queue.domain.artifact import UploadedArtifact
from legacy_queue.domain.times import format_time
from legacy_queue.services.artifacts.uploads import UploadHeaders
from legacy_queue.services.services import Services
from legacy_queue.stores import StoredArtifact
from tests.domain.sample_tasks import HOUR, NOW
from tests.services.harness import UPLOAD_URL, Harness

NAME = "public/logs/live.log"
CONTENT = b"all that the task said"
TEXT = "text/plain"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def stored(harness: Harness, task_id: str, name: str = NAME) -> StoredArtifact:
    """The stored artifact of run 0."""
    found = harness.storage.artifacts.load(task_id, 0, name)
    assert found
    return found


def blob_name(harness: Harness, task_id: str) -> str:
    artifact = stored(harness, task_id).artifact
    assert isinstance(artifact, UploadedArtifact)
    return artifact.blob_name


def etag(content: bytes) -> str:
    return f"{sha256(content)}-{len(content)}"


def body(storage_type: str, now: datetime = NOW, **changes: Any) -> dict[str, Any]:
    """The body of a createArtifact call.

    The artifact expires in an hour. A change to None leaves the property out.
    """
    details: dict[str, dict[str, Any]] = {
        "s3": {"contentType": TEXT},
        "azure": {"contentType": TEXT},
        "object": {"contentType": TEXT},
        "blob": {"contentType": TEXT, "contentLength": len(CONTENT), "contentSha256": sha256(CONTENT)},
        "reference": {"contentType": TEXT, "url": "https://elsewhere.example.com/live.log"},
        "link": {"contentType": TEXT, "artifact": "public/logs/live_backing.log"},
        "error": {"reason": "too-large-file-on-worker", "message": "it has 5 TiB"},
    }
    expires = format_time(now + HOUR)
    made = {"storageType": storage_type, "expires": expires, **details[storage_type], **changes}
    return {name: value for name, value in made.items() if value is not None}


def in_parts(*parts: bytes, **changes: Any) -> dict[str, Any]:
    whole = b"".join(parts)
    return body(
        "blob",
        contentLength=len(whole),
        contentSha256=sha256(whole),
        parts=[{"sha256": sha256(part), "size": len(part)} for part in parts],
        **changes,
    )


def create(
    harness: Harness,
    task_id: str,
    storage_type: str = "s3",
    name: str = NAME,
    services: Services | None = None,
    **changes: Any,
) -> Mapping[str, Any]:
    services = services or harness.services
    return services.artifacts.create(task_id, 0, name, body(storage_type, harness.clock.now(), **changes))


def upload(
    harness: Harness,
    url: str,
    content: bytes = CONTENT,
    content_type: str = TEXT,
    chunks: Iterable[bytes] | None = None,
    **headers: Any,
) -> str:
    """Upload with a PUT to the URL. Returns the ETag of the answer."""
    assert url.startswith(f"{UPLOAD_URL}/")
    parts = urlsplit(url)
    (signature,) = parse_qs(parts.query, strict_parsing=True)["signature"]
    sent = UploadHeaders(headers.pop("length", len(content)), content_type, **headers)
    ticket = parts.path.rpartition("/")[2]
    uploads = harness.services.uploads
    return uploads.receive(uploads.verified(ticket, signature), sent, [content] if chunks is None else chunks)
