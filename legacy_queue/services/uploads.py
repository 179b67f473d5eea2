"""Artifacts' bytes that come through this server: checked while they pass, stored only where all is right."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from legacy_queue.domain.artifacts import (
    LARGEST_UPLOAD,
    Artifact,
    Ticket,
    blob_etag,
    check_open,
    ticket_signature,
)
from legacy_queue.domain.errors import (
    AuthorizationFailed,
    InputError,
    InputTooLarge,
    MalformedPayload,
    RequestConflict,
    ResourceNotFound,
)
from legacy_queue.ports import Clock
from legacy_queue.services.changes import Changes
from legacy_queue.stores import ArtifactStore, Blobs

_ENCODING = r"[!#$%&'*+.^_`|~0-9A-Za-z, -]{1,255}"


@dataclass(frozen=True)
class Sent:
    """What the headers of an upload say of its body; ``length`` in bytes, ``md5`` in base64."""

    length: int
    content_type: str
    content_encoding: str | None = None
    md5: str | None = None


class Uploads:
    """``url`` is where this server takes uploads; of the ``secrets`` the first signs, all verify."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        blobs: Blobs,
        changes: Changes,
        clock: Clock,
        secrets: Sequence[bytes],
        url: str,
    ) -> None:
        self._artifacts, self._blobs, self._changes, self._clock = artifacts, blobs, changes, clock
        self._secrets, self._url = secrets, url

    def url(self, artifact: Artifact, expiry: datetime) -> str:
        """Where one PUT uploads the whole artifact."""
        return self._signed(_ticket(artifact, expiry))

    def requests(
        self, artifact: Artifact, parts: Sequence[Mapping[str, Any]] | None, expiry: datetime
    ) -> Sequence[Mapping[str, Any]]:
        """What uploads a blob, to be sent as they are: one for each of its parts, or for the whole."""
        ticket = _ticket(artifact, expiry)
        if parts is None:
            encoding = {"content-encoding": artifact.content_encoding} if artifact.content_encoding else {}
            headers = {"content-type": artifact.content_type, **encoding}
            return [self._request(ticket, artifact.details["transferLength"], headers)]
        tickets = [
            replace(ticket, number=number, sha256=part["sha256"].lower(), size=int(part["size"]))
            for number, part in enumerate(parts, 1)
        ]
        return [self._request(one, one.size, {"x-amz-content-sha256": one.sha256}) for one in tickets]

    def receive(self, ticket_text: str, signature: str, sent: Sent, chunks: Iterable[bytes]) -> str:
        """The ETag, without quotes, of the chunks, which are stored if they are what was announced.

        Else nothing is. Safe to repeat while the run's artifacts are open. Raises AuthorizationFailed for a
        signature, or a content type, that createArtifact did not give; InputError, InputTooLarge,
        MalformedPayload; ResourceNotFound, RequestConflict. What ``chunks`` raises goes through.
        """
        ticket = Ticket.verified(ticket_text, signature, self._secrets, self._clock.now())
        artifact = self._awaited(ticket)
        self._check_open(ticket)
        expected = _expected(artifact, ticket, sent)
        md5 = hashlib.md5(usedforsecurity=False)
        body = self._checked(chunks, expected, ticket, md5)
        if ticket.number:
            self._blobs.write_part(artifact.blob_name, ticket.number, body)
        else:
            self._blobs.write(artifact.blob_name, body, artifact.content_type, expected.content_encoding)
        return blob_etag(expected.sha256, expected.length) if expected.sha256 else md5.hexdigest()

    def _request(self, ticket: Ticket, length: int, headers: Mapping[str, str]) -> Mapping[str, Any]:
        headers = {"content-length": str(length), **headers}
        return {"method": "PUT", "url": self._signed(ticket), "headers": headers}

    def _signed(self, ticket: Ticket) -> str:
        text = ticket.text()
        return f"{self._url}/{text}?signature={ticket_signature(text, self._secrets[0])}"

    def _awaited(self, ticket: Ticket) -> Artifact:
        stored = self._artifacts.load(ticket.task_id, ticket.run_id, ticket.name)
        now = self._clock.now()
        if stored is None or stored.artifact.uploads_until(now) <= now:
            raise ResourceNotFound(f"there is no artifact {ticket.name!r} any more: it has expired")
        artifact = stored.artifact
        is_in_parts = "partCount" in artifact.details
        if artifact.storage_type not in ("s3", "blob") or is_in_parts != bool(ticket.number):
            raise RequestConflict(f"artifact {ticket.name!r} is another now than this URL was made for")
        if artifact.storage_type == "blob" and artifact.is_complete:
            raise RequestConflict(f"artifact {ticket.name!r} is complete, its content can't be replaced")
        return artifact

    def _check_open(self, ticket: Ticket) -> None:
        check_open(self._changes.read(ticket.task_id).task, ticket.run_id, self._clock.now())

    def _checked(
        self, chunks: Iterable[bytes], expected: "_Expected", ticket: Ticket, md5: "hashlib._Hash"
    ) -> Iterator[bytes]:
        """The same chunks; in place of their end an error, if they are not what was expected, or too late."""
        length, sha256 = 0, hashlib.sha256()
        for chunk in chunks:
            length += len(chunk)
            md5.update(chunk)
            if expected.sha256:
                sha256.update(chunk)
            yield chunk
        if length != expected.length:
            raise MalformedPayload(f"the body ended after {length} of {expected.length} bytes")
        if expected.md5 not in (None, base64.b64encode(md5.digest()).decode()):
            raise InputError(f"content-md5 is {expected.md5!r}: the body has another, nothing is stored")
        if expected.sha256 not in (None, sha256.hexdigest()):
            raise InputError(
                f"the body has the SHA-256 {sha256.hexdigest()}, announced was {expected.sha256}: "
                "nothing is stored"
            )
        self._check_open(ticket)


def _ticket(artifact: Artifact, expiry: datetime) -> Ticket:
    return Ticket(artifact.task_id, artifact.run_id, artifact.name, expiry)


@dataclass(frozen=True)
class _Expected:
    """Of a body. ``sha256`` is None where it was not announced."""

    length: int
    sha256: str | None
    content_encoding: str | None
    md5: str | None


def _expected(artifact: Artifact, ticket: Ticket, sent: Sent) -> _Expected:
    """What was announced to createArtifact, or in the headers where that left it open."""
    if ticket.number:
        expected = _Expected(ticket.size, ticket.sha256, None, sent.md5)
    else:
        if sent.content_type != artifact.content_type:
            raise AuthorizationFailed(
                f"content-type is {sent.content_type[:255]!r}: the URL is for {artifact.content_type!r}"
            )
        if artifact.storage_type == "blob":
            length, sha256 = artifact.details["transferLength"], artifact.details["transferSha256"]
            expected = _Expected(length, sha256, artifact.content_encoding, sent.md5)
        else:
            expected = _Expected(sent.length, None, sent.content_encoding, sent.md5)
    if sent.length != expected.length:
        raise InputError(f"content-length is {sent.length}: {expected.length} bytes were announced")
    if sent.length > LARGEST_UPLOAD:
        raise InputTooLarge(f"content-length is {sent.length}: at most {LARGEST_UPLOAD} bytes are accepted")
    if expected.content_encoding and not re.fullmatch(_ENCODING, expected.content_encoding):
        raise InputError(
            f"content-encoding is {expected.content_encoding[:255]!r}: gzip and the like is accepted"
        )
    return expected
