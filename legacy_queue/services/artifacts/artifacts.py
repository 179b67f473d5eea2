"""Creates, completes, finds and lists artifacts, and removes them after they have expired."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from legacy_queue.domain.artifact import (
    CREATED_UNTIL_AFTER_EXPIRY,
    Artifact,
    AzureArtifact,
    BlobArtifact,
    ObjectArtifact,
    ReferenceArtifact,
    S3Artifact,
    UploadedArtifact,
    artifact_created,
    check_open,
    created_again,
    etags_are_right,
    note_blob,
    requested_artifact,
    run_of_blob,
)
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.errors import (
    InputError,
    RequestConflict,
    ResourceExpired,
    ResourceNotFound,
    ServiceUnavailable,
)
from legacy_queue.domain.object_access import upload_access
from legacy_queue.domain.tickets import Ticket
from legacy_queue.domain.times import format_time
from legacy_queue.ports import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.services.artifacts.blob_checks import BlobChecks
from legacy_queue.services.artifacts.uploads import Uploads
from legacy_queue.services.pagination import Page, read_page
from legacy_queue.services.tasks.changes import Changes
from legacy_queue.stores import Storage, StoredArtifact, StoredTask

log = structlog.get_logger()


@dataclass(frozen=True)
class ArtifactLocation:
    """A complete artifact and its URL. An error, and a link to another artifact, have no URL."""

    artifact: Artifact
    url: str | None


class Artifacts:
    """The artifacts of runs."""

    def __init__(
        self, storage: Storage, uploads: Uploads, changes: Changes, clock: Clock, issuer: Client
    ) -> None:
        self._artifacts = storage.artifacts
        self._blobs = storage.blobs
        self._uploads = uploads
        self._changes = changes
        self._checks = BlobChecks(storage.blobs)
        self._clock = clock
        self._issuer = issuer

    def create(self, task_id: str, run_id: int, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record the artifact and publish it. Returns the body for the answer of createArtifact.

        Safe to repeat, even after the artifact has expired. Raises ResourceNotFound, InputError,
        InputTooLarge. Raises RequestConflict if the run takes no more artifacts, or another has this name.
        """
        stored = self._changes.read(task_id)
        now = self._clock.now()
        check_open(stored.task, run_id, now)
        requested = requested_artifact(stored.task, run_id, name, body, now)
        if "parts" in body:
            self._blobs.check_parts(int(part["size"]) for part in body["parts"])
        with self._changes.writing(task_id, now) as owed:
            artifact = self._recorded(requested)
        self._changes.publish_artifact(stored, artifact_created(stored.task, artifact), owed)
        return self._answer(artifact, body)

    def complete(self, task_id: str, run_id: int, name: str, etags: Sequence[str]) -> None:
        """Complete the blob and publish it. From now on it can be downloaded, and its run can be completed.

        Safe to repeat: each call publishes the event again. ``etags`` are the ETags in the answers
        to its uploads. Raises

        - ResourceNotFound, ResourceExpired,
        - InputError for another storage type and for wrong ETags,
        - RequestConflict if the blob was not uploaded, or has other content,
        - ServiceUnavailable while many parts are being compared: repeat the call.
        """
        stored = self._load(task_id, run_id, name)
        artifact = stored.artifact
        if not isinstance(artifact, BlobArtifact):
            raise InputError(
                f"etags: artifact {name!r} has the storage type {artifact.storage_type}, "
                "and only a blob has etags"
            )
        if not etags_are_right(artifact, etags):
            count = artifact.part_count or 1
            raise InputError(
                f"the etags ({len(etags)}) differ from the answers to the uploads of {name!r} ({count}): "
                "give the etag of each upload, in the order of the requests"
            )
        of_task = self._changes.read(task_id)
        if not artifact.is_complete:
            check_open(of_task.task, run_id, self._clock.now())
            if artifact.part_count:
                # Reading the parts may take longer than this call. The check marks the blob complete, even if
                # this call no longer waits.
                self._checks.check(artifact, partial(self._mark_complete, of_task, stored))
                return
            if not self._blobs.properties(artifact.blob_name):  # if it exists, it was checked as it came in
                raise RequestConflict(f"artifact {name!r} has not been uploaded yet")
        self._mark_complete(of_task, stored)

    def finish(self, task_id: str, run_id: int, name: str, upload_id: str) -> None:
        """Complete an object: see ``complete``. Also raises InputError if its upload is not finished."""
        stored = self._load(task_id, run_id, name)
        artifact = stored.artifact
        if not isinstance(artifact, ObjectArtifact):
            raise InputError(
                f"uploadId: artifact {name!r} has the storage type {artifact.storage_type}, "
                "and only an object has an uploadId"
            )
        if upload_id != artifact.upload_id:
            raise InputError(f"uploadId: expected the uploadId that createArtifact returned for {name!r}")
        if not artifact.is_closed:
            raise InputError(f"the upload of {name!r} is not finished: call finishUpload first")
        of_task = self._changes.read(task_id)
        if not artifact.is_complete:
            check_open(of_task.task, run_id, self._clock.now())
        self._mark_complete(of_task, stored)

    def info(self, task_id: str, run_id: int, name: str) -> Artifact:
        """Returns the artifact. Raises ResourceExpired, or ResourceNotFound if it is not complete."""
        artifact = self._load(task_id, run_id, name).artifact
        if not artifact.is_complete:
            raise ResourceNotFound(f"artifact {name!r} is not complete: its upload has not finished")
        return artifact

    def find(self, task_id: str, run_id: int, name: str) -> ArtifactLocation:
        """Returns the artifact and its URL. Does not follow links. Raises the errors of ``info``."""
        artifact = self.info(task_id, run_id, name)
        if isinstance(artifact, ReferenceArtifact):
            return ArtifactLocation(artifact, artifact.url)
        if not isinstance(artifact, UploadedArtifact):
            return ArtifactLocation(artifact, None)
        expiry = self._clock.wall_time_of(artifact.url_expiry(self._clock.now()))
        if isinstance(artifact, BlobArtifact):
            return ArtifactLocation(artifact, self._uploads.download_url(artifact, expiry))
        return ArtifactLocation(artifact, self._blobs.download_url(artifact.blob_name, expiry))

    def content(self, ticket: Ticket) -> tuple[BlobArtifact, Iterator[bytes]]:
        """Returns a blob and its bytes as they were uploaded. Raises the errors of ``info``."""
        artifact = self.info(ticket.task_id, ticket.run_id, ticket.name)
        if isinstance(artifact, BlobArtifact):
            with suppress(KeyError):
                return artifact, self._blobs.read(artifact.blob_name)
        raise ResourceNotFound(f"artifact {ticket.name!r} was replaced after this URL was made")

    def latest_run(self, task_id: str) -> int:
        """Returns the last run of the task. Raises ResourceNotFound, also if the task has no run."""
        task = self._changes.read(task_id).task
        if not task.runs:
            raise ResourceNotFound(f"task {task_id} has no runs yet, so it has no artifacts")
        return len(task.runs) - 1

    def list(
        self, task_id: str, run_id: int, after: str, limit: int, render: Callable[[Artifact], bytes]
    ) -> Page[str]:
        """Returns a page of the run's artifacts, in the order of the store. Raises ResourceNotFound."""
        self._changes.read(task_id).task.run(run_id)
        read = partial(self._artifacts.list, task_id, run_id)
        return read_page(read, lambda artifact: artifact.name, after, limit, render)

    def remove_expired(self, after: str, limit: int, _since: datetime | None) -> str | None:
        """Remove artifacts that expired a while ago, their content first. Raises ServiceUnavailable."""
        expired, next_after = self._artifacts.expired(
            self._clock.now() - CREATED_UNTIL_AFTER_EXPIRY, after, limit
        )
        for stored in expired:
            artifact = stored.artifact
            try:
                self._remove(stored)
            except ServiceUnavailable:
                raise
            except Exception:  # the other artifacts must still be removed
                ids = {"task_id": artifact.task_id, "run_id": artifact.run_id, "name": artifact.name}
                log.exception("artifact-not-removed", **ids)
        return next_after

    def discard_blocks(self, after: str, limit: int, _since: datetime | None) -> str | None:
        """Discard blocks that no list names, of runs that take no more artifacts. For a periodic job."""
        return self._blobs.discard_blocks(after, limit, self._is_closed)

    def _is_closed(self, blob_name: str) -> bool:
        run = run_of_blob(blob_name)
        if run is None:
            return True  # it belongs to no artifact
        task_id, run_id = run
        try:
            check_open(self._changes.read(task_id).task, run_id, self._clock.now())
        except (RequestConflict, ResourceNotFound):
            return True
        except Corrupt:
            pass
        return False

    def _remove(self, stored: StoredArtifact) -> None:
        artifact = stored.artifact
        if isinstance(artifact, UploadedArtifact):
            self._blobs.remove(artifact.blob_name)
        with suppress(Changed):  # another process changed it first
            self._artifacts.remove(stored)

    def _load(self, task_id: str, run_id: int, name: str) -> StoredArtifact:
        stored = self._artifacts.load(task_id, run_id, name)
        if stored is None:
            raise ResourceNotFound(f"there is no artifact {name!r} of run {run_id} of task {task_id}")
        expires = stored.artifact.expires
        if expires <= self._clock.now():
            raise ResourceExpired(f"artifact {name!r} expired at {format_time(expires)}")
        return stored

    def _mark_complete(self, of_task: StoredTask, stored: StoredArtifact) -> None:
        """Mark it complete and publish it. Raises RequestConflict if it was created again meanwhile."""
        artifact = stored.artifact
        with self._changes.writing(artifact.task_id, self._clock.now()) as owed:
            while not stored.artifact.is_complete:
                try:
                    stored = self._artifacts.replace(stored, replace(stored.artifact, is_complete=True))
                except Changed:
                    stored = self._load(artifact.task_id, artifact.run_id, artifact.name)
                    if not _same_bytes(stored.artifact, artifact):
                        raise RequestConflict(
                            f"artifact {artifact.name!r} was created again in the meantime"
                        ) from None
        created = artifact_created(of_task.task, replace(artifact, is_complete=True))
        self._changes.publish_artifact(of_task, created, owed)

    def _recorded(self, requested: Artifact) -> Artifact:
        """Store the artifact. Returns it as it is stored now.

        If it is an incomplete blob or object, its task then notes it in a conditional write. So a later
        reportCompleted finds every incomplete artifact.
        """
        stored, is_new = self._stored(requested)
        artifact = stored.artifact
        if artifact.is_complete:
            return artifact
        try:
            self._changes.apply(
                requested.task_id, lambda task, now: note_blob(task, artifact, now), requested.run_id
            )
        except RequestConflict:
            if is_new:
                with suppress(Changed):
                    self._artifacts.remove(stored)
            raise
        return artifact

    def _stored(self, requested: Artifact) -> tuple[StoredArtifact, bool]:
        """Returns the stored artifact, and whether this call has inserted it."""
        while True:
            with suppress(AlreadyExists):
                return self._artifacts.insert(requested), True
            stored = self._artifacts.load(requested.task_id, requested.run_id, requested.name)
            if stored is None:
                continue
            wanted = created_again(stored.artifact, requested, self._clock.now())
            before = stored.artifact
            if isinstance(before, UploadedArtifact) and not _same_bytes(wanted, before):
                self._blobs.remove(before.blob_name)  # no row will name it any more
            with suppress(Changed):
                if wanted != before:
                    stored = self._artifacts.replace(stored, wanted)
                return stored, False

    def _answer(self, artifact: Artifact, body: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = {"storageType": artifact.storage_type}
        clock = self._clock
        expiry = clock.wall_time_of(artifact.url_expiry(clock.now()))
        match artifact:
            case BlobArtifact():
                requests = self._uploads.requests(artifact, body.get("parts"), expiry)
                return {**answer, "expires": format_time(expiry), "requests": requests}
            case ObjectArtifact():
                expires = clock.wall_time_of(artifact.expires)
                return upload_access(artifact, self._issuer, clock.wall_time(), expires)
            case AzureArtifact():
                url = self._blobs.upload_url(artifact.blob_name, expiry)
            case S3Artifact():
                url = self._uploads.url(artifact, expiry)
            case _:
                return answer
        content_type = artifact.content_type
        return {**answer, "contentType": content_type, "expires": format_time(expiry), "putUrl": url}


def _same_bytes(one: Artifact, other: Artifact) -> bool:
    return (
        isinstance(one, UploadedArtifact)
        and isinstance(other, UploadedArtifact)
        and one.blob_name == other.blob_name
    )
