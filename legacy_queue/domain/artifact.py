"""Artifacts: the files of a run, of seven storage types.

Source: docs/explanation/http-contract.md#artifacts; src/artifacts.js and the schemas of the original queue,
and those of today's queue for links and objects.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any, Self

from legacy_queue.domain.errors import InputError, InputTooLarge, RequestConflict
from legacy_queue.domain.events import Event, task_event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import epoch_milliseconds, format_time, given_time

MAX_UPLOAD_SIZE = 5 * 1024**3  # bytes in one request, as in S3
MAX_BLOB_SIZE = 150 * 1024**3  # bytes: fewer blocks of 4 MiB than the 50,000 of Azure
MIN_PART_SIZE = 5 * 1024**2  # bytes of each part except the last, as in S3
UPLOAD_WINDOW = timedelta(minutes=25)  # after an exception: 20, and 5 for different clocks
EXPIRED_FOR = timedelta(minutes=15)  # an artifact may be created until then after its expiry
IDENTITY = "identity"  # no encoding
# of each answer with bytes of an artifact: no browser shows it as a page of this origin
NEVER_INLINE = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}

_IN_OBJECT_STORE, _RENEWED = "isObject", "begunAnew"
_HIDDEN = (_IN_OBJECT_STORE, _RENEWED, "uploadId", "hashes")
_URL_LIFE = timedelta(minutes=45)  # or until the artifact expires, if that is earlier
_BYTES_KEPT = EXPIRED_FOR - timedelta(minutes=5)  # after that, a process with a fast clock may remove them


@dataclass(frozen=True)
class Artifact:
    """``storage_type`` is s3, azure, blob, object, reference, link or error.

    ``details`` are the other fields of its type, as JSON: ``url`` of a reference; ``reason`` and ``message``
    of an error; ``artifact``, the artifact of the same run that a link names; of a blob the fields of its
    request with defaults, and ``partCount`` and ``partsSha256`` for its parts; of an object ``projectId``,
    ``uploadId``, and ``hashes`` after its upload. ``isObject``: the bytes are in the object store.
    ``begunAnew``: a part of the blob name, since older bytes of the artifact may be about to be removed.
    ``is_complete`` is False for a blob until completeArtifact, for an object until finishArtifact.
    """

    task_id: str
    run_id: int
    name: str
    storage_type: str
    content_type: str
    expires: datetime
    details: Mapping[str, Any] = field(default_factory=dict)
    is_complete: bool = True

    @classmethod
    def from_wire(cls, task: Task, run_id: int, name: str, body: Mapping[str, Any], now: datetime) -> Self:
        """The artifact of a createArtifact that matches its schema; raises InputError, InputTooLarge."""
        expires = given_time(body, "expires")
        _check_expires(expires, task.definition.expires, now)
        if body["storageType"] == "blob":
            is_complete, details = False, _blob_details(body)
        elif body["storageType"] == "object":
            is_complete = False
            details = {"projectId": task.definition.project_id, "uploadId": slugid()}
        else:
            names = ("url", "artifact", "reason", "message")
            is_complete, details = True, {key: body[key] for key in names if key in body}
        # of an error: the type of the answer of getArtifact
        default = "application/binary" if body["storageType"] == "link" else "application/json"
        content_type = body.get("contentType", default)
        return cls(
            task.task_id, run_id, name, body["storageType"], content_type, expires, details, is_complete
        )

    @property
    def blob_name(self) -> str:
        """The name of the blob or object with its bytes: the artifact name is data, not a path."""
        digest = hashlib.sha256(self.name.encode()).hexdigest()
        return f"{self.task_id}/{self.run_id}/{digest}{self.details.get(_RENEWED, '')}"

    @property
    def has_bytes(self) -> bool:
        """Whether its storage type has uploads."""
        return self.storage_type in ("s3", "azure", "blob", "object")

    def uploads_until(self, now: datetime) -> datetime:
        """When its uploads end: when it expires or, if it has expired already, when it may be removed."""
        return self.expires if self.expires > now else self.expires + EXPIRED_FOR

    def url_expiry(self, now: datetime) -> datetime:
        """When a signed URL that is made now ends, for upload or download."""
        return min(now + _URL_LIFE, self.uploads_until(now))

    @property
    def is_closed(self) -> bool:
        """Whether its bytes cannot be replaced any more."""
        return "hashes" in self.details or (self.storage_type == "blob" and self.is_complete)

    @property
    def in_object_store(self) -> bool:
        """Whether its bytes are in the object store."""
        return bool(self.details.get(_IN_OBJECT_STORE))

    @property
    def content_encoding(self) -> str | None:
        """Of a blob; None is no encoding."""
        encoding = self.details["contentEncoding"]
        return None if encoding == IDENTITY else str(encoding)

    def for_object_store(self) -> Self:
        """The artifact with its bytes in the object store."""
        return replace(self, details={**self.details, _IN_OBJECT_STORE: True})

    def to_wire(self) -> dict[str, Any]:
        """The artifact in lists and events."""
        return {
            "storageType": self.storage_type,
            "name": self.name,
            "expires": format_time(self.expires),
            "contentType": self.content_type,
        }


def check_open(task: Task, run_id: int, now: datetime) -> None:
    """Raise RequestConflict or ResourceNotFound if artifacts of the run may not be created or uploaded."""
    run = task.run(run_id)
    ended = run.resolved if run.worker and run.state == "exception" else None
    if run.state != "running" and not (ended and now <= ended + UPLOAD_WINDOW):
        raise RequestConflict(
            f"run {run_id} of task {task.task_id} is {run.state}: artifacts are created and uploaded while "
            "the run is running, and for up to 20 minutes after a worker's run was resolved as exception",
            {"status": task.status()},
        )


def note_blob(task: Task, artifact: Artifact, now: datetime) -> Outcome:
    """From now on reportCompleted checks the blobs of the run. Raises as ``check_open``."""
    check_open(task, artifact.run_id, now)
    if task.runs[artifact.run_id].state == "running":
        task = replace(task, newest_blob=artifact.name)
    return Outcome(task)


def created_again(existing: Artifact, given: Artifact, now: datetime) -> Artifact:
    """The artifact after another createArtifact of the same name.

    It may expire later, and a reference may get another URL or become a link. Any other difference is a
    RequestConflict. If the sweeper may be removing the old bytes, the new bytes have another ``blob_name``.
    """
    if given.storage_type == "link":  # its content type is that of its target
        given = replace(given, content_type=existing.content_type)
    wanted = replace(existing, expires=given.expires)
    if existing.storage_type == "reference" and given.storage_type in ("reference", "link"):
        wanted = replace(wanted, storage_type=given.storage_type, details=given.details)
    details = {"existing": _visible(existing), "given": _visible(given)}
    if _visible(wanted) != details["given"] or given.expires < existing.expires:
        raise RequestConflict(
            f"Artifact already exists, and {existing.name!r} is different: only a later expires is accepted, "
            "and another url, or a link, in place of a reference",
            details,
        )
    if existing.has_bytes and existing.expires <= now - _BYTES_KEPT:
        return replace(given, details={**given.details, _RENEWED: f"-{epoch_milliseconds(now)}"})
    return wanted


def artifact_created(task: Task, artifact: Artifact) -> Event:
    """The artifact was created; its content may still be uploaded.

    Source: "Queue AMQP Exchanges", "artifactCreated".
    """
    event = task_event("artifact-created", task, artifact.run_id)
    return replace(event, payload={**event.payload, "artifact": artifact.to_wire()})


def blob_etag(sha256: str, size: int) -> str:
    """The ETag of the upload of a blob or of a part, without quotes."""
    return f"{sha256}-{size}"


def etags_are_right(artifact: Artifact, etags: Sequence[str]) -> bool:
    """Whether these are the ETags of the blob's uploads, in order; a proxy may have made them weak."""
    bare = [etag.removeprefix("W/").strip('"') for etag in etags]
    details = artifact.details
    if "partsSha256" in details:
        return bool(_hash_of(bare) == details["partsSha256"])
    return bare == [blob_etag(details["transferSha256"], details["transferLength"])]


def _hash_of(etags: Iterable[str]) -> str:
    """A hash of all parts, stored instead of them."""
    return hashlib.sha256("\n".join(etags).encode()).hexdigest()


def _visible(artifact: Artifact) -> dict[str, Any]:
    """The fields that the owner may see."""
    wire = {**artifact.to_wire(), **artifact.details}
    return {name: value for name, value in wire.items() if name not in _HIDDEN}


def _check_expires(expires: datetime, latest: datetime, now: datetime) -> None:
    if expires <= now - EXPIRED_FOR:
        rule = f"be more than 15 minutes ago, now is {format_time(now)}"
    elif expires > latest:
        rule = f"be after the task's, {format_time(latest)}"
    else:
        return
    raise InputError(f"expires is {format_time(expires)}: it must not {rule}")


def _blob_details(body: Mapping[str, Any]) -> dict[str, Any]:
    length, sha256 = int(body["contentLength"]), body["contentSha256"].lower()
    sent, sent_sha256 = int(body.get("transferLength", length)), body.get("transferSha256", sha256).lower()
    encoding = body.get("contentEncoding", IDENTITY)
    if encoding != IDENTITY and not {"transferLength", "transferSha256"} <= body.keys():
        raise InputError(
            f"contentEncoding is {encoding!r}: it needs transferLength and transferSha256 of the encoded body"
        )
    if encoding == IDENTITY and (sent, sent_sha256) != (length, sha256):
        raise InputError(
            "transferLength and transferSha256 differ from contentLength and contentSha256: without a "
            "contentEncoding they must be the same, or left out"
        )
    details = {
        "contentLength": length,
        "contentSha256": sha256,
        "transferLength": sent,
        "transferSha256": sent_sha256,
        "contentEncoding": encoding,
    }
    if "parts" not in body:
        _check_size("transferLength", sent, MAX_UPLOAD_SIZE, "in one request; send more in parts")
        return details
    parts = [(part["sha256"].lower(), int(part["size"])) for part in body["parts"]]
    _check_parts([size for _, size in parts], sent)
    return {**details, "partCount": len(parts), "partsSha256": _hash_of(starmap(blob_etag, parts))}


def _check_parts(sizes: Sequence[int], length: int) -> None:
    _check_size("transferLength", length, MAX_BLOB_SIZE, "for one artifact")
    for number, size in enumerate(sizes, 1):
        _check_size(f"the size of part {number}", size, MAX_UPLOAD_SIZE, "for a part")
        if size < (MIN_PART_SIZE if number < len(sizes) else 1):
            raise InputError(
                f"the size of part {number} is {size}: at least {MIN_PART_SIZE} bytes are accepted, "
                "1 for the last part"
            )
    if sum(sizes) != length:
        raise InputError(f"the parts have {sum(sizes)} bytes in total: transferLength is {length}")


def _check_size(what: str, size: int, max_size: int, where: str) -> None:
    if size > max_size:
        raise InputTooLarge(f"{what} is {size}: at most {max_size} bytes are accepted {where}")
