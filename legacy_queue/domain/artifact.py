"""What a run leaves behind: an artifact of one of seven storage types, and its life.

Source: docs/explanation/http-contract.md#artifacts; the original's src/artifacts.js and its schemas, and
today's for links and objects.
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

MAX_UPLOAD_SIZE = 5 * 1024**3  # bytes in one request, as S3 has it
MAX_BLOB_SIZE = 150 * 1024**3  # bytes: in blocks of 4 MiB it stays below the 50,000 that Azure allows
MIN_PART_SIZE = 5 * 1024**2  # bytes of each part but the last, as S3 has it
UPLOAD_WINDOW = timedelta(minutes=25)  # after an exception: 20, and 5 for clocks that differ
EXPIRED_FOR = timedelta(minutes=15)  # an artifact is kept, and may be created, for so long after it expired
IDENTITY = "identity"  # the encoding that is none

_IN_OBJECT_STORE, _BEGUN_ANEW = "isObject", "begunAnew"
_NOT_TOLD = (_IN_OBJECT_STORE, _BEGUN_ANEW, "uploadId", "hashes")
_URL_LIFE = timedelta(minutes=45)  # or as long as the artifact, if that is shorter
_BYTES_KEPT = EXPIRED_FOR - timedelta(minutes=5)  # after it expired: then expiry removes them, by any clock


@dataclass(frozen=True)
class Artifact:
    """``storage_type`` is s3, azure, blob, object, reference, link or error.

    ``details`` is what the type has beside, JSON throughout: ``url``; ``reason`` and ``message``;
    ``artifact``, the name that a link leads to in the same run;
    ``isObject`` of s3 whose bytes are in the object store; ``begunAnew`` in the name of bytes that do not
    replace those of long ago; of a blob what its request says, all of it filled in, but ``partCount`` and
    ``partsSha256`` for its parts; of an object ``projectId``, ``uploadId``, and ``hashes`` once its upload is
    finished. ``is_complete`` is False for a blob until completeArtifact, for an object until finishArtifact.
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
        """What createArtifact was asked for, its schema checked; raises InputError, InputTooLarge."""
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
        # of an error, the type of what getArtifact answers; a link has that of its target
        default = "application/binary" if body["storageType"] == "link" else "application/json"
        content_type = body.get("contentType", default)
        return cls(
            task.task_id, run_id, name, body["storageType"], content_type, expires, details, is_complete
        )

    @property
    def blob_name(self) -> str:
        """Where its bytes are: the name is data, not a path."""
        digest = hashlib.sha256(self.name.encode()).hexdigest()
        return f"{self.task_id}/{self.run_id}/{digest}{self.details.get(_BEGUN_ANEW, '')}"

    @property
    def has_bytes(self) -> bool:
        """Whether anything is uploaded for it."""
        return self.storage_type in ("s3", "azure", "blob", "object")

    def uploads_until(self, now: datetime) -> datetime:
        """When its uploads end: as it expires. What has expired already is taken until it may be removed."""
        return self.expires if self.expires > now else self.expires + EXPIRED_FOR

    def url_expiry(self, now: datetime) -> datetime:
        """When a signed URL ends that is made now, for upload or, of what has not expired, download."""
        return min(now + _URL_LIFE, self.uploads_until(now))

    @property
    def is_closed(self) -> bool:
        """Whether what was uploaded cannot be replaced any more."""
        return "hashes" in self.details or (self.storage_type == "blob" and self.is_complete)

    @property
    def in_object_store(self) -> bool:
        """Whether its bytes are in the object store."""
        return bool(self.details.get(_IN_OBJECT_STORE))

    @property
    def content_encoding(self) -> str | None:
        """Of a blob, where it has any."""
        encoding = self.details["contentEncoding"]
        return None if encoding == IDENTITY else str(encoding)

    def for_object_store(self) -> Self:
        """The same, its bytes to be in the object store."""
        return replace(self, details={**self.details, _IN_OBJECT_STORE: True})

    def to_wire(self) -> dict[str, Any]:
        """As it is listed, and told of."""
        return {
            "storageType": self.storage_type,
            "name": self.name,
            "expires": format_time(self.expires),
            "contentType": self.content_type,
        }


def check_open(task: Task, run_id: int, now: datetime) -> None:
    """The run's artifacts may be created and uploaded; raises ResourceNotFound, RequestConflict."""
    run = task.run(run_id)
    ended = run.resolved if run.worker and run.state == "exception" else None
    if run.state != "running" and not (ended and now <= ended + UPLOAD_WINDOW):
        raise RequestConflict(
            f"run {run_id} of task {task.task_id} is {run.state}: artifacts are created and uploaded while "
            "the run is running, and for up to 20 minutes after a worker's run was resolved as exception",
            {"status": task.status()},
        )


def note_blob(task: Task, artifact: Artifact, now: datetime) -> Outcome:
    """The run cannot be reported completed without a look at its blobs; raises as ``check_open``."""
    check_open(task, artifact.run_id, now)
    if task.runs[artifact.run_id].state == "running":
        task = replace(task, newest_blob=artifact.name)
    return Outcome(task)


def created_again(existing: Artifact, given: Artifact, now: datetime) -> Artifact:
    """The artifact as it is to be when the one that exists, or has expired, is asked for again.

    It may expire later, and a reference lead elsewhere or become a link. RequestConflict where anything else
    differs. Where the uploaded bytes may be being removed, those to come have another ``blob_name``.
    """
    if given.storage_type == "link":  # whose content is another artifact's
        given = replace(given, content_type=existing.content_type)
    wanted = replace(existing, expires=given.expires)
    if existing.storage_type == "reference" and given.storage_type in ("reference", "link"):
        wanted = replace(wanted, storage_type=given.storage_type, details=given.details)
    told = {"existing": _told(existing), "given": _told(given)}
    if _told(wanted) != told["given"] or given.expires < existing.expires:
        raise RequestConflict(
            f"artifact {existing.name!r} exists, and is another one: only a later expires is accepted, and "
            "another url, or a link, in place of a reference",
            told,
        )
    if existing.has_bytes and existing.expires <= now - _BYTES_KEPT:
        return replace(given, details={**given.details, _BEGUN_ANEW: f"-{epoch_milliseconds(now)}"})
    return wanted


def artifact_created(task: Task, artifact: Artifact) -> Event:
    """The artifact is on record; its content may be on its way.

    Source: "Queue AMQP Exchanges", "artifactCreated".
    """
    event = task_event("artifact-created", task, artifact.run_id)
    return replace(event, payload={**event.payload, "artifact": artifact.to_wire()})


def blob_etag(sha256: str, size: int) -> str:
    """What the upload of a blob, or of a part of one, answers, without its quotes."""
    return f"{sha256}-{size}"


def etags_are_right(artifact: Artifact, etags: Sequence[str]) -> bool:
    """Whether they are those of the blob's uploads, in their order; a proxy may have weakened them."""
    bare = [etag.removeprefix("W/").strip('"') for etag in etags]
    details = artifact.details
    if "partsSha256" in details:
        return bool(_hash_of(bare) == details["partsSha256"])
    return bare == [blob_etag(details["transferSha256"], details["transferLength"])]


def _hash_of(etags: Iterable[str]) -> str:
    """One hash that stands for all parts, so that they need not be stored."""
    return hashlib.sha256("\n".join(etags).encode()).hexdigest()


def _told(artifact: Artifact) -> dict[str, Any]:
    wire = {**artifact.to_wire(), **artifact.details}
    return {name: value for name, value in wire.items() if name not in _NOT_TOLD}


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
            f"contentEncoding is {encoding!r}: it needs transferLength and transferSha256, of what is sent"
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
        raise InputError(f"the parts have {sum(sizes)} bytes together: what is transferred has {length}")


def _check_size(what: str, size: int, most: int, where: str) -> None:
    if size > most:
        raise InputTooLarge(f"{what} is {size}: at most {most} bytes are accepted {where}")
