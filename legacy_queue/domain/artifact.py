"""Artifacts: the files of a run. There are seven storage types, each a class with its own fields.

Source: docs/reference/artifacts.md; src/artifacts.js and the schemas of the original queue,
and those of today's queue for links and objects.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import starmap
from typing import Any, ClassVar, get_args

from legacy_queue.domain.errors import InputError, InputTooLarge, RequestConflict
from legacy_queue.domain.events import Event, task_event
from legacy_queue.domain.ids import RUN_ID, TASK_ID, RunKey, slugid
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import epoch_milliseconds, format_time, parse_field, parse_time

UPLOAD = "upload"  # the name of a request to a signed URL of an artifact
MAX_UPLOAD_SIZE = 5 * 1024**3  # bytes in one request, as in S3
MAX_BLOB_SIZE = 150 * 1024**3  # bytes: fewer blocks of 4 MiB than the 50,000 of Azure
MIN_PART_SIZE = 5 * 1024**2  # bytes of each part except the last, as in S3
UPLOAD_WINDOW = timedelta(minutes=25)  # after an exception: 20 minutes, and 5 more for clocks that differ
CREATED_UNTIL_AFTER_EXPIRY = timedelta(minutes=15)  # createArtifact accepts an ``expires`` this long ago
IDENTITY = "identity"  # no encoding
# headers of each answer with an artifact's bytes, so that no browser shows it as a page of this server
NEVER_INLINE = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}

_MAX_BLOB_NAME = 1024  # characters
# Which names of artifacts can be names of blobs. Azure refuses or changes a segment that ends in a dot, an
# empty last segment, and a backslash (it becomes a slash). Proxies change other empty segments. A name that
# begins with a SHA-256 could be the blob of another artifact. Source: "Naming and Referencing Containers".
_BLOB_PATH = r"(?![0-9a-f]{64})[^/\\]*[^/\\.](?:/[^/\\]*[^/\\.]){0,250}"
_URL_LIFE = timedelta(minutes=45)  # less if the artifact expires earlier
# after this, a process whose clock is ahead may remove the bytes
_BYTES_KEPT = CREATED_UNTIL_AFTER_EXPIRY - timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class BaseArtifact:
    """The fields of every artifact, whatever its storage type."""

    storage_type: ClassVar[str]
    # the type's own fields that the owner may see: their names on the wire and here
    shown: ClassVar[Sequence[tuple[str, str]]] = ()

    task_id: str
    run_id: int
    name: str
    content_type: str
    expires: datetime
    # a blob is complete after completeArtifact, an object after finishArtifact, others at once
    is_complete: bool = True

    def uploads_until(self, now: datetime) -> datetime:
        """When uploads must end: at ``expires`` or, if that has passed, when the bytes may be removed."""
        return self.expires if self.expires > now else self.expires + CREATED_UNTIL_AFTER_EXPIRY

    def url_expiry(self, now: datetime) -> datetime:
        """When a signed URL that is made now, for upload or download, must expire."""
        return min(now + _URL_LIFE, self.uploads_until(now))

    def to_wire(self) -> dict[str, Any]:
        """The artifact as lists and events show it."""
        return {
            "storageType": self.storage_type,
            "name": self.name,
            "expires": format_time(self.expires),
            "contentType": self.content_type,
        }

    def details(self) -> dict[str, Any]:
        """The fields of this storage type that the owner may see."""
        return {name: getattr(self, field) for name, field in self.shown}


@dataclass(frozen=True, kw_only=True)
class UploadedArtifact(BaseArtifact):
    """An artifact whose bytes are uploaded."""

    # makes the blob name new when an artifact is created again, because its old bytes may be about to be
    # removed
    blob_suffix: str = ""

    @property
    def blob_name(self) -> str:
        """The name of the blob with its bytes. It has a hash of the name, which may be any text."""
        digest = hashlib.sha256(self.name.encode()).hexdigest()
        return f"{self.task_id}/{self.run_id}/{digest}{self.blob_suffix}"

    @property
    def is_closed(self) -> bool:
        """Whether the bytes can no longer be replaced."""
        return False


@dataclass(frozen=True, kw_only=True)
class SizedArtifact(UploadedArtifact):
    """An artifact whose worker may declare a content length. Nothing compares it with the content."""

    content_length: int | None = None

    def to_wire(self) -> dict[str, Any]:
        length = {} if self.content_length is None else {"contentLength": self.content_length}
        return {**super().to_wire(), **length}


@dataclass(frozen=True, kw_only=True)
class S3Artifact(SizedArtifact):
    """A file that is uploaded by a PUT, as to S3."""

    storage_type = "s3"


@dataclass(frozen=True, kw_only=True)
class AzureArtifact(UploadedArtifact):
    """A file that is uploaded to the blob storage itself."""

    storage_type = "azure"

    # False in rows that 0.1.0 wrote: their blobs are named by a hash
    is_named: bool = False

    @property
    def blob_name(self) -> str:
        """``<taskId>/<runId>/<name>`` as in the original queue, if a blob can have that name.

        docker-worker makes its block ids of this name, so a short name keeps them short. The name is checked
        here because a row may come from a backup that somebody else has made.
        """
        name = f"{self.task_id}/{self.run_id}/{self.name}"
        fits = len(name) <= _MAX_BLOB_NAME and re.fullmatch(_BLOB_PATH, self.name)
        return name if self.is_named and not self.blob_suffix and fits else super().blob_name


@dataclass(frozen=True, kw_only=True)
class BlobArtifact(UploadedArtifact):
    """A file whose length and hash are declared before its upload, in one request or in parts."""

    storage_type = "blob"
    shown = (
        ("contentLength", "content_length"),
        ("contentSha256", "content_sha256"),
        ("transferLength", "transfer_length"),
        ("transferSha256", "transfer_sha256"),
        ("contentEncoding", "content_encoding"),
    )

    content_length: int
    content_sha256: str
    transfer_length: int
    transfer_sha256: str
    content_encoding: str
    # for a blob in parts: a hash stands for the parts, because there may be thousands
    part_count: int = 0
    parts_sha256: str = ""

    @property
    def is_closed(self) -> bool:
        return self.is_complete

    @property
    def encoding(self) -> str | None:
        """The content encoding; None for no encoding."""
        return None if self.content_encoding == IDENTITY else self.content_encoding

    def details(self) -> dict[str, Any]:
        parts = {"partCount": self.part_count, "partsSha256": self.parts_sha256}
        return {**super().details(), **(parts if self.part_count else {})}


@dataclass(frozen=True, kw_only=True)
class ObjectArtifact(SizedArtifact):
    """An object of today's Object service."""

    storage_type = "object"
    shown = (("projectId", "project_id"),)

    project_id: str
    upload_id: str
    # the hashes of the content by their names; None until the upload is finished
    hashes: Mapping[str, str] | None = None

    @property
    def is_closed(self) -> bool:
        return self.hashes is not None


@dataclass(frozen=True, kw_only=True)
class ReferenceArtifact(BaseArtifact):
    """A URL of a file elsewhere."""

    storage_type = "reference"
    shown = (("url", "url"),)

    url: str


@dataclass(frozen=True, kw_only=True)
class LinkArtifact(BaseArtifact):
    """The name of another artifact of the same run."""

    storage_type = "link"
    shown = (("artifact", "target"),)

    target: str


@dataclass(frozen=True, kw_only=True)
class ErrorArtifact(BaseArtifact):
    """The reason why there is no such file."""

    storage_type = "error"
    shown = (("reason", "reason"), ("message", "message"))

    reason: str
    message: str


Artifact = (
    S3Artifact
    | AzureArtifact
    | BlobArtifact
    | ObjectArtifact
    | ReferenceArtifact
    | LinkArtifact
    | ErrorArtifact
)
KINDS: Mapping[str, type[Artifact]] = {kind.storage_type: kind for kind in get_args(Artifact)}


def requested_artifact(
    task: Task, run_id: int, name: str, body: Mapping[str, Any], now: datetime
) -> Artifact:
    """Returns the artifact that a valid createArtifact asks for. Raises InputError and InputTooLarge."""
    expires = parse_field(body, "expires", parse_time)
    latest = task.definition.expires
    if expires <= now - CREATED_UNTIL_AFTER_EXPIRY or expires > latest:
        raise InputError(
            f"expires is {format_time(expires)}: expected a time at most 15 minutes ago (it is "
            f"{format_time(now)} now), and not later than the task's expires, {format_time(latest)}"
        )
    kind = KINDS[body["storageType"]]
    # an error has the content type of the answer of getArtifact
    default_type = "application/binary" if kind is LinkArtifact else "application/json"
    common: dict[str, Any] = {
        "task_id": task.task_id,
        "run_id": run_id,
        "name": name,
        "expires": expires,
        "content_type": body.get("contentType", default_type),
    }
    if kind is BlobArtifact:
        return _requested_blob(body, common)
    if kind is AzureArtifact:
        return AzureArtifact(**common, is_named=True)
    if issubclass(kind, SizedArtifact) and "contentLength" in body:
        common["content_length"] = int(body["contentLength"])
    if kind is ObjectArtifact:
        project_id = task.definition.project_id
        return ObjectArtifact(**common, is_complete=False, project_id=project_id, upload_id=slugid())
    return kind(**common, **{field: body[name] for name, field in kind.shown})


def run_of_blob(blob_name: str) -> RunKey | None:
    """Returns taskId and runId of a blob that ``UploadedArtifact.blob_name`` named, or None for another."""
    match blob_name.split("/", 2):
        case [task_id, run_id, _] if re.fullmatch(TASK_ID, task_id) and re.fullmatch(RUN_ID, run_id):
            return task_id, int(run_id)
    return None


def check_open(task: Task, run_id: int, now: datetime) -> None:
    """Raises RequestConflict or ResourceNotFound if the run may not get artifacts now."""
    run = task.run(run_id)
    ended = run.resolved if run.worker and run.state == "exception" else None
    if run.state != "running" and not (ended and now <= ended + UPLOAD_WINDOW):
        raise RequestConflict(
            f"run {run_id} of task {task.task_id} is {run.state}: artifacts are created and uploaded while "
            "the run is running, and for up to 20 minutes after a worker's run was resolved as exception",
            {"status": task.status()},
        )


def note_blob(task: Task, artifact: Artifact, now: datetime) -> Outcome:
    """Makes reportCompleted check the blobs of the run from now on. Raises what ``check_open`` raises."""
    check_open(task, artifact.run_id, now)
    if task.runs[artifact.run_id].state == "running":
        task = replace(task, newest_blob=artifact.name)
    return Outcome(task)


def created_again(existing: Artifact, given: Artifact, now: datetime) -> Artifact:
    """Returns the artifact after another createArtifact of the same name.

    The new artifact may expire later, and may declare another content length if nothing checks it. A
    reference may get another URL or become a link. Any other difference raises RequestConflict. If the
    sweeper may be removing the old bytes, the new bytes get another ``blob_name``.
    """
    if isinstance(given, LinkArtifact):  # a link has the content type of its target
        given = replace(given, content_type=existing.content_type)
    wanted: Artifact = replace(existing, expires=given.expires)
    if isinstance(wanted, SizedArtifact) and isinstance(given, SizedArtifact):
        wanted = replace(wanted, content_length=given.content_length)
    if isinstance(existing, ReferenceArtifact) and isinstance(given, ReferenceArtifact | LinkArtifact):
        wanted = replace(given, content_type=existing.content_type)
    details = {"existing": _visible(existing), "given": _visible(given)}
    if _visible(wanted) != details["given"] or given.expires < existing.expires:
        raise RequestConflict(
            f"Artifact already exists, and {existing.name!r} is different: expected only a later expires, "
            "and another url, or a link, in place of a reference",
            details,
        )
    if isinstance(given, UploadedArtifact) and existing.expires <= now - _BYTES_KEPT:
        return replace(given, blob_suffix=f"-{epoch_milliseconds(now)}")
    return wanted


def artifact_created(task: Task, artifact: Artifact) -> Event:
    """Returns the event that the artifact was created. Its content may still be uploading.

    Today's queue publishes it only for an artifact that can be read. So it leaves out an artifact that still
    needs a call after its upload, and an artifact whose upload it does not see.
    Source: "Queue AMQP Exchanges", "artifactCreated"; ``src/artifacts.js`` of today's queue.
    """
    event = task_event("artifact-created", task, artifact.run_id)
    can_be_read = artifact.is_complete and not isinstance(artifact, S3Artifact | AzureArtifact)
    only = None if can_be_read else "2018"
    return replace(event, payload={**event.payload, "artifact": artifact.to_wire()}, only=only)


def blob_etag(sha256: str, size: int) -> str:
    """Returns the ETag, without quotes, that an upload of these bytes gets."""
    return f"{sha256}-{size}"


def etags_are_right(blob: BlobArtifact, etags: Sequence[str]) -> bool:
    """Whether these are the ETags of the blob's uploads, in order. A proxy may have made them weak."""
    bare = [etag.removeprefix("W/").strip('"') for etag in etags]
    if blob.part_count:
        return _hash_of(bare) == blob.parts_sha256
    return bare == [blob_etag(blob.transfer_sha256, blob.transfer_length)]


def _hash_of(etags: Iterable[str]) -> str:
    """Returns one hash for all parts, which is stored instead of them."""
    return hashlib.sha256("\n".join(etags).encode()).hexdigest()


def _visible(artifact: Artifact) -> dict[str, Any]:
    return {**artifact.to_wire(), **artifact.details()}


def _requested_blob(body: Mapping[str, Any], common: Mapping[str, Any]) -> BlobArtifact:
    length = int(body["contentLength"])
    sha256 = body["contentSha256"].lower()
    sent = int(body.get("transferLength", length))
    sent_sha256 = body.get("transferSha256", sha256).lower()
    encoding = body.get("contentEncoding", IDENTITY)
    if encoding != IDENTITY and not {"transferLength", "transferSha256"} <= body.keys():
        raise InputError(
            f"contentEncoding is {encoding!r}: it needs transferLength and transferSha256 of the encoded body"
        )
    if encoding == IDENTITY and (sent, sent_sha256) != (length, sha256):
        raise InputError(
            "transferLength and transferSha256 differ from contentLength and contentSha256: without a "
            "contentEncoding, expected the same values, or neither of them"
        )
    blob = BlobArtifact(
        **common,
        is_complete=False,
        content_length=length,
        content_sha256=sha256,
        transfer_length=sent,
        transfer_sha256=sent_sha256,
        content_encoding=encoding,
    )
    if "parts" not in body:
        _check_size("transferLength", sent, MAX_UPLOAD_SIZE, "in one request; to send more, use parts")
        return blob
    parts = [(part["sha256"].lower(), int(part["size"])) for part in body["parts"]]
    _check_parts([size for _, size in parts], sent)
    return replace(blob, part_count=len(parts), parts_sha256=_hash_of(starmap(blob_etag, parts)))


def _check_parts(sizes: Sequence[int], length: int) -> None:
    _check_size("transferLength", length, MAX_BLOB_SIZE, "for one artifact")
    for number, size in enumerate(sizes, 1):
        _check_size(f"the size of part {number}", size, MAX_UPLOAD_SIZE, "for a part")
        if size < (MIN_PART_SIZE if number < len(sizes) else 1):
            raise InputError(
                f"the size of part {number} is {size}: expected at least {MIN_PART_SIZE} bytes, "
                "1 for the last part"
            )
    if sum(sizes) != length:
        raise InputError(f"the parts have {sum(sizes)} bytes in total: expected {length}, the transferLength")


def _check_size(what: str, size: int, max_size: int, where: str) -> None:
    if size > max_size:
        raise InputTooLarge(f"{what} is {size}: expected at most {max_size} bytes {where}")
