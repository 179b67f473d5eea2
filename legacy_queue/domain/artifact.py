"""Artifacts: the files of a run, of seven storage types, each a class with its own fields.

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
from legacy_queue.domain.times import epoch_milliseconds, format_time, given, parse_time

UPLOAD = "upload"  # the name of a request to a signed URL of an artifact
MAX_UPLOAD_SIZE = 5 * 1024**3  # bytes in one request, as in S3
MAX_BLOB_SIZE = 150 * 1024**3  # bytes: fewer blocks of 4 MiB than the 50,000 of Azure
MIN_PART_SIZE = 5 * 1024**2  # bytes of each part except the last, as in S3
UPLOAD_WINDOW = timedelta(minutes=25)  # after an exception: 20, and 5 for different clocks
CREATED_UNTIL_AFTER_EXPIRY = timedelta(minutes=15)  # an artifact may be created until then after its expiry
IDENTITY = "identity"  # no encoding
# of each answer with bytes of an artifact: no browser shows it as a page of this origin
NEVER_INLINE = {
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
}

_MAX_BLOB_NAME = 1024  # characters
# The names of artifacts that a blob can have. Azure refuses or changes a segment that ends in a dot, an empty
# last one, and a backslash, which it takes for a slash; programs on the way change other empty segments. What
# begins with a SHA-256 may be the blob of another artifact. Source: "Naming and Referencing Containers".
_BLOB_PATH = r"(?![0-9a-f]{64})[^/\\]*[^/\\.](?:/[^/\\]*[^/\\.]){0,250}"
_URL_LIFE = timedelta(minutes=45)  # or until the artifact expires, if that is earlier
# after that, a process with a fast clock may remove them
_BYTES_KEPT = CREATED_UNTIL_AFTER_EXPIRY - timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class BaseArtifact:
    """What artifacts of all storage types have."""

    storage_type: ClassVar[str]
    # the names on the wire of the fields of the type that the owner may see, and their names here
    shown: ClassVar[Sequence[tuple[str, str]]] = ()

    task_id: str
    run_id: int
    name: str
    content_type: str
    expires: datetime
    # False for a blob until completeArtifact, for an object until finishArtifact
    is_complete: bool = True

    def uploads_until(self, now: datetime) -> datetime:
        """When its uploads end: when it expires or, if it has expired already, when it may be removed."""
        return self.expires if self.expires > now else self.expires + CREATED_UNTIL_AFTER_EXPIRY

    def url_expiry(self, now: datetime) -> datetime:
        """When a signed URL that is made now ends, for upload or download."""
        return min(now + _URL_LIFE, self.uploads_until(now))

    def to_wire(self) -> dict[str, Any]:
        """The artifact in lists and events."""
        return {
            "storageType": self.storage_type,
            "name": self.name,
            "expires": format_time(self.expires),
            "contentType": self.content_type,
        }

    def details(self) -> dict[str, Any]:
        """The fields of its own type that the owner may see."""
        return {name: getattr(self, field) for name, field in self.shown}


@dataclass(frozen=True, kw_only=True)
class UploadedArtifact(BaseArtifact):
    """An artifact whose bytes are uploaded."""

    # of the blob name: older bytes of an artifact that was created again may be about to be removed
    blob_suffix: str = ""

    @property
    def blob_name(self) -> str:
        """The name of the blob with its bytes: the artifact name is data, not a path."""
        digest = hashlib.sha256(self.name.encode()).hexdigest()
        return f"{self.task_id}/{self.run_id}/{digest}{self.blob_suffix}"

    @property
    def is_closed(self) -> bool:
        """Whether its bytes cannot be replaced any more."""
        return False


@dataclass(frozen=True, kw_only=True)
class SizedArtifact(UploadedArtifact):
    """An artifact whose worker may say how long its content is; nothing compares that with the content."""

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

    # False in the rows of 0.1.0, whose blobs have a hash of the name
    is_named: bool = False

    @property
    def blob_name(self) -> str:
        """``<taskId>/<runId>/<name>`` as in the original queue, where a blob can have that name.

        docker-worker makes the ids of its blocks of it, which are short for a short name. The name is checked
        here, since a row may come from a backup that somebody else has made.
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
    # of a blob in parts; a hash stands for the parts, of which there may be thousands
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
    # of its content, by their names; None until its upload is finished
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
    """A name of another artifact of the same run."""

    storage_type = "link"
    shown = (("artifact", "target"),)

    target: str


@dataclass(frozen=True, kw_only=True)
class ErrorArtifact(BaseArtifact):
    """Why there is no such file."""

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
    """The artifact of a createArtifact that matches its schema; raises InputError, InputTooLarge."""
    expires = given(body, "expires", parse_time)
    latest = task.definition.expires
    if expires <= now - CREATED_UNTIL_AFTER_EXPIRY or expires > latest:
        raise InputError(
            f"expires is {format_time(expires)}: it must not be more than 15 minutes ago, now is "
            f"{format_time(now)}, nor after the task's, {format_time(latest)}"
        )
    kind = KINDS[body["storageType"]]
    # of an error: the type of the answer of getArtifact
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
    """The taskId and runId of a blob, from ``UploadedArtifact.blob_name``; None for a foreign blob."""
    match blob_name.split("/", 2):
        case [task_id, run_id, _] if re.fullmatch(TASK_ID, task_id) and re.fullmatch(RUN_ID, run_id):
            return task_id, int(run_id)
    return None


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

    It may expire later, and be of another length that is not checked; a reference may get another URL or
    become a link. Any other difference is a RequestConflict. If the sweeper may be removing the old bytes,
    the new bytes have another ``blob_name``.
    """
    if isinstance(given, LinkArtifact):  # its content type is that of its target
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
    """The artifact was created; its content may still be uploaded.

    Today's queue publishes it only for an artifact that can be read: not for one that needs a call when its
    upload has ended, and never for one whose upload it does not see.
    Source: "Queue AMQP Exchanges", "artifactCreated"; ``src/artifacts.js`` of today's queue.
    """
    event = task_event("artifact-created", task, artifact.run_id)
    can_be_read = artifact.is_complete and not isinstance(artifact, S3Artifact | AzureArtifact)
    only = None if can_be_read else "2018"
    return replace(event, payload={**event.payload, "artifact": artifact.to_wire()}, only=only)


def blob_etag(sha256: str, size: int) -> str:
    """The ETag of the upload of a blob or of a part, without quotes."""
    return f"{sha256}-{size}"


def etags_are_right(blob: BlobArtifact, etags: Sequence[str]) -> bool:
    """Whether these are the ETags of the blob's uploads, in order; a proxy may have made them weak."""
    bare = [etag.removeprefix("W/").strip('"') for etag in etags]
    if blob.part_count:
        return _hash_of(bare) == blob.parts_sha256
    return bare == [blob_etag(blob.transfer_sha256, blob.transfer_length)]


def _hash_of(etags: Iterable[str]) -> str:
    """A hash of all parts, stored instead of them."""
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
            "contentEncoding they must be the same, or left out"
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
        _check_size("transferLength", sent, MAX_UPLOAD_SIZE, "in one request; send more in parts")
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
        raise InputError(f"the parts have {sum(sizes)} bytes in total: transferLength is {length}")


def _check_size(what: str, size: int, max_size: int, where: str) -> None:
    if size > max_size:
        raise InputTooLarge(f"{what} is {size}: expected at most {max_size} bytes {where}")
