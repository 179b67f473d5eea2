"""Receives the content of artifacts, checks it as it comes in, and stores it only if it is as declared.

Also signs the URLs of this server for uploads, and for downloads of blobs.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from legacy_queue.domain.artifact import (
    MAX_UPLOAD_SIZE,
    BlobArtifact,
    ObjectArtifact,
    S3Artifact,
    UploadedArtifact,
    blob_etag,
    check_open,
)
from legacy_queue.domain.errors import (
    AuthorizationFailed,
    InputError,
    InputTooLarge,
    MalformedPayload,
    RequestConflict,
    ResourceNotFound,
)
from legacy_queue.domain.tickets import Ticket, Use, ticket_signature
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Clock
from legacy_queue.ports.blob import BlockCountExceedsLimit
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.stores import ArtifactStore, Blobs

log = structlog.get_logger()

_Received = S3Artifact | BlobArtifact | ObjectArtifact  # others are uploaded elsewhere, or not at all
_ENCODING = r"[!#$%&'*+.^_`|~0-9A-Za-z, -]{1,255}"


@dataclass(frozen=True)
class UploadHeaders:
    """The headers of an upload. ``length`` is in bytes, ``md5`` in base64."""

    length: int
    content_type: str
    content_encoding: str | None = None
    md5: str | None = None


class Uploads:
    """Receives content at URLs below ``url``. The first of ``secrets`` signs them, any of them verifies."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        blobs: Blobs,
        changes: Changes,
        clock: Clock,
        secrets: Sequence[bytes],
        url: str,
    ) -> None:
        self._artifacts = artifacts
        self._blobs = blobs
        self._changes = changes
        self._clock = clock
        self._secrets = secrets
        self._url = url

    def url(self, artifact: S3Artifact, expiry: datetime) -> str:
        """Returns the URL for a PUT of the whole artifact."""
        return self._signed(_ticket(artifact, expiry))

    def download_url(self, artifact: BlobArtifact, expiry: datetime) -> str:
        """Returns the URL for a GET of a blob. Its answer has the headers that old download clients need."""
        return self._signed(_ticket(artifact, expiry), "download")

    def requests(
        self, artifact: BlobArtifact, parts: Sequence[Mapping[str, Any]] | None, expiry: datetime
    ) -> Sequence[Mapping[str, Any]]:
        """Returns the requests that upload a blob: one for each part, or one for the whole blob."""
        ticket = _ticket(artifact, expiry)
        if parts is None:
            encoding = {"content-encoding": artifact.encoding} if artifact.encoding else {}
            headers = {"content-type": artifact.content_type, **encoding}
            return [self._request(ticket, artifact.transfer_length, headers)]
        tickets = [
            replace(ticket, number=number, sha256=part["sha256"].lower(), size=int(part["size"]))
            for number, part in enumerate(parts, 1)
        ]
        return [self._request(part, part.size, {"x-amz-content-sha256": part.sha256}) for part in tickets]

    def object_request(self, artifact: ObjectArtifact, content_type: str, length: int) -> Mapping[str, Any]:
        """Returns the PUT that uploads an object: its ``url`` and ``headers``, and when it ``expires``."""
        expiry = self._clock.wall_time_of(artifact.url_expiry(self._clock.now()))
        ticket = replace(_ticket(artifact, expiry), size=length, content_type=content_type)
        headers = {"content-type": content_type, "content-length": str(length)}
        return {"url": self._signed(ticket), "expires": format_time(expiry), "headers": headers}

    def store(self, artifact: ObjectArtifact, content: bytes, content_type: str) -> None:
        """Store the content, and replace earlier content. Raises the errors of ``check_open``."""
        check_open(self._changes.read(artifact.task_id).task, artifact.run_id, self._clock.now())
        with _bounded(artifact.name):
            self._blobs.write(artifact.blob_name, [content], content_type, None)

    def verified(self, ticket_text: str, signature: str, use: Use = "upload") -> Ticket:
        """Returns the ticket in a URL if its signature is right. Raises AuthorizationFailed."""
        return Ticket.verified(ticket_text, signature, self._secrets, self._clock.wall_time(), use)

    def receive(self, ticket: Ticket, sent: UploadHeaders, chunks: Iterable[bytes]) -> str:
        """Store the chunks, but only if they are as declared. Returns their ETag without quotes.

        Safe to repeat as long as the run takes artifacts. Raises AuthorizationFailed if createArtifact did
        not declare this content type. Raises InputError, InputTooLarge, MalformedPayload, ResourceNotFound,
        RequestConflict. Errors that ``chunks`` raises are passed on.
        """
        artifact = self._awaited(ticket)
        self._check_open(ticket)
        length, expected_sha256, content_encoding = _declared(artifact, ticket, sent)
        _check_headers(sent, length, content_encoding)
        md5 = hashlib.md5(usedforsecurity=False)
        body = self._checked(chunks, sent, expected_sha256, ticket, md5)
        with _bounded(artifact.name):
            if ticket.number:
                self._blobs.write_part(artifact.blob_name, ticket.number, body)
            else:
                self._blobs.write(artifact.blob_name, body, sent.content_type, content_encoding)
        return blob_etag(expected_sha256, length) if expected_sha256 else md5.hexdigest()

    def _request(self, ticket: Ticket, length: int, headers: Mapping[str, str]) -> Mapping[str, Any]:
        headers = {"content-length": str(length), **headers}
        return {"method": "PUT", "url": self._signed(ticket), "headers": headers}

    def _signed(self, ticket: Ticket, use: Use = "upload") -> str:
        text = ticket.text()
        return f"{self._url}/{text}?signature={ticket_signature(text, self._secrets[0], use)}"

    def _awaited(self, ticket: Ticket) -> _Received:
        stored = self._artifacts.load(ticket.task_id, ticket.run_id, ticket.name)
        now = self._clock.now()
        if stored is None or stored.artifact.uploads_until(now) <= now:
            raise ResourceNotFound(f"artifact {ticket.name!r} no longer exists: it has expired")
        artifact = stored.artifact
        is_in_parts = isinstance(artifact, BlobArtifact) and artifact.part_count > 0
        if not isinstance(artifact, _Received) or is_in_parts != bool(ticket.number):
            raise RequestConflict(f"artifact {ticket.name!r} was replaced after this URL was made")
        if artifact.is_closed:
            raise RequestConflict(f"artifact {ticket.name!r} is complete, so its content cannot be replaced")
        return artifact

    def _check_open(self, ticket: Ticket) -> None:
        check_open(self._changes.read(ticket.task_id).task, ticket.run_id, self._clock.now())

    def _checked(
        self,
        chunks: Iterable[bytes],
        sent: UploadHeaders,
        expected: str | None,
        ticket: Ticket,
        md5: "hashlib._Hash",
    ) -> Iterator[bytes]:
        """Yields the same chunks. Raises at their end if they are not as declared, or uploads have ended."""
        length = 0
        sha256 = hashlib.sha256()
        for chunk in chunks:
            length += len(chunk)
            md5.update(chunk)
            if expected:
                sha256.update(chunk)
            yield chunk
        if length != sent.length:
            raise MalformedPayload(f"the body ended after {length} of {sent.length} bytes")
        if sent.md5 not in (None, base64.b64encode(md5.digest()).decode()):
            raise InputError(f"content-md5 is {sent.md5!r}, but the body has another MD5. Nothing was stored")
        if expected not in (None, sha256.hexdigest()):
            raise InputError(
                f"the body has the SHA-256 {sha256.hexdigest()}, but {expected} was declared. "
                "Nothing was stored"
            )
        self._check_open(ticket)


@contextmanager
def _bounded(name: str) -> Iterator[None]:
    try:
        yield
    except BlockCountExceedsLimit:
        raise RequestConflict(
            f"earlier uploads of artifact {name!r} have left as many blocks as are allowed: complete it, or "
            "upload it under another name"
        ) from None


def _ticket(artifact: UploadedArtifact, expiry: datetime) -> Ticket:
    return Ticket(artifact.task_id, artifact.run_id, artifact.name, expiry)


def _declared(
    artifact: UploadedArtifact, ticket: Ticket, sent: UploadHeaders
) -> tuple[int, str | None, str | None]:
    """Returns the declared length, SHA-256 and content encoding, or what was sent if nothing was declared."""
    if ticket.number:
        return ticket.size, ticket.sha256, None
    content_type = ticket.content_type or artifact.content_type
    if sent.content_type != content_type:
        raise AuthorizationFailed(
            f"content-type is {sent.content_type[:255]!r}: expected {content_type!r}, as declared"
        )
    if isinstance(artifact, BlobArtifact):
        return artifact.transfer_length, artifact.transfer_sha256, artifact.encoding
    length = ticket.size if ticket.content_type else sent.length  # of an object, or of an s3 artifact
    return length, None, sent.content_encoding


def _check_headers(sent: UploadHeaders, length: int, content_encoding: str | None) -> None:
    if sent.length != length:
        raise InputError(f"content-length is {sent.length}: expected {length}, as declared")
    if length > MAX_UPLOAD_SIZE:
        raise InputTooLarge(f"content-length is {length}: expected at most {MAX_UPLOAD_SIZE} bytes")
    if content_encoding and not re.fullmatch(_ENCODING, content_encoding):
        raise InputError(f"content-encoding is {content_encoding[:255]!r}: expected a name like gzip")
