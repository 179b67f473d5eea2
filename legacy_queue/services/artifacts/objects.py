"""The Object service of today's Taskcluster, for artifacts of the storage type ``object``."""

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from legacy_queue.domain.artifact import ObjectArtifact
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.errors import InputError, RequestConflict, ResourceNotFound
from legacy_queue.domain.object_access import (
    artifact_key,
    check_upload,
    download_access,
    download_method,
    finished,
    object_name,
)
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Changed, Clock
from legacy_queue.services.artifacts.uploads import Uploads
from legacy_queue.stores import ArtifactStore, Blobs, StoredArtifact


class Objects:
    """The objects that createArtifact has named. Each method raises ResourceNotFound for any other name."""

    def __init__(
        self, artifacts: ArtifactStore, blobs: Blobs, uploads: Uploads, clock: Clock, issuer: Client
    ) -> None:
        self._artifacts = artifacts
        self._blobs = blobs
        self._uploads = uploads
        self._clock = clock
        self._issuer = issuer

    def access(self, artifact: ObjectArtifact) -> Mapping[str, Any]:
        """Returns the body that tells a client how to get the content of an object artifact."""
        return download_access(artifact, self._issuer, self._clock.wall_time())

    def create_upload(self, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store inline data, if there are any. Returns the body for the answer of createUpload.

        Safe to repeat until the upload is finished. Raises InputError, RequestConflict.
        """
        artifact, _ = self._stored(name)
        check_upload(artifact, body)
        proposed = body["proposedUploadMethods"]
        method: dict[str, Any] = {}
        if artifact.is_closed:
            raise RequestConflict(f"object {name!r} is finished, so its content cannot be replaced")
        if "dataInline" in proposed:
            inline = proposed["dataInline"]
            self._uploads.store(artifact, _decoded(inline["objectData"]), inline["contentType"])
            method = {"dataInline": True}
        elif "putUrl" in proposed:
            wanted = proposed["putUrl"]
            length = int(wanted["contentLength"])
            method = {"putUrl": self._uploads.object_request(artifact, wanted["contentType"], length)}
        expires = format_time(artifact.expires)
        upload = {key: body[key] for key in ("projectId", "uploadId")}
        return {**upload, "expires": expires, "uploadMethod": method}

    def finish_upload(self, name: str, body: Mapping[str, Any]) -> None:
        """Finish the upload. The object can now be downloaded, and no longer uploaded. Safe to repeat.

        Raises InputError. Raises RequestConflict, also if nothing was uploaded.
        """
        while True:
            artifact, stored = self._stored(name)
            check_upload(artifact, body)
            wanted = finished(artifact, body.get("hashes", {}))
            if not self._blobs.properties(wanted.blob_name):
                raise RequestConflict(f"object {name!r} has not been uploaded yet")
            with suppress(Changed):
                if wanted != artifact:
                    self._artifacts.replace(stored, wanted)
                return

    def start_download(self, name: str, accepted: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the body for the answer of startDownload. Raises NoMatchingMethod."""
        artifact = self.find(name)
        method = download_method(accepted)
        expiry = self._clock.wall_time_of(artifact.url_expiry(self._clock.now()))
        url = self._blobs.download_url(artifact.blob_name, expiry)
        if method == "simple":
            return {"method": method, "url": url}
        return {"method": method, "url": url, "expires": format_time(expiry), "hashes": artifact.hashes}

    def find(self, name: str) -> ObjectArtifact:
        """Returns the artifact of the object. Raises ResourceNotFound until its upload is finished."""
        artifact, _ = self._stored(name)
        if not artifact.is_closed:
            raise ResourceNotFound(f"object {object_name(artifact)!r} has no content yet: finish its upload")
        return artifact

    def _stored(self, name: str) -> tuple[ObjectArtifact, StoredArtifact]:
        stored = self._artifacts.load(*artifact_key(name))
        artifact = stored.artifact if stored else None
        if stored and isinstance(artifact, ObjectArtifact) and artifact.expires > self._clock.now():
            return artifact, stored
        raise ResourceNotFound(
            f"there is no object {name!r}: expected a name that createArtifact returned "
            "for the storageType object"
        )


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InputError(f"objectData is not base64: {error}") from None
