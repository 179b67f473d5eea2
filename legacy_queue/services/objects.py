"""The Object service of today's Taskcluster, for artifacts of the storage type ``object``."""

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from legacy_queue.domain.artifact import Artifact
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
from legacy_queue.services.uploads import Uploads
from legacy_queue.stores import ArtifactStore, Blobs, StoredArtifact


class Objects:
    """``name``: an object name from createArtifact. Each method raises ResourceNotFound for other names."""

    def __init__(
        self, artifacts: ArtifactStore, blobs: Blobs, uploads: Uploads, clock: Clock, issuer: Client
    ) -> None:
        self._artifacts, self._blobs, self._uploads = artifacts, blobs, uploads
        self._clock, self._issuer = clock, issuer

    def access(self, artifact: Artifact) -> Mapping[str, Any]:
        """The body with which a client gets the content of an object artifact."""
        return download_access(artifact, self._issuer, self._clock.wall_time())

    def create_upload(self, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Stores inline data, and returns the body that createUpload answers.

        Safe to repeat until the upload is finished. Raises InputError, RequestConflict.
        """
        artifact = self._stored(name).artifact
        check_upload(artifact, body)
        proposed = body["proposedUploadMethods"]
        method: dict[str, Any] = {}
        if artifact.is_closed:
            raise RequestConflict(f"object {name!r} is finished, its content can't be replaced")
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
        """From now on the object can be downloaded, and not uploaded. Safe to repeat.

        Raises InputError; RequestConflict, also if nothing was uploaded.
        """
        while True:
            stored = self._stored(name)
            check_upload(stored.artifact, body)
            wanted = finished(stored.artifact, body.get("hashes", {}))
            if not self._blobs.properties(wanted.blob_name):
                raise RequestConflict(f"object {name!r} was not uploaded yet")
            with suppress(Changed):
                if wanted != stored.artifact:
                    self._artifacts.replace(stored, wanted)
                return

    def start_download(self, name: str, accepted: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body that startDownload answers. Raises NoMatchingMethod."""
        artifact, method = self.find(name), download_method(accepted)
        expiry = self._clock.wall_time_of(artifact.url_expiry(self._clock.now()))
        url = self._blobs.download_url(artifact.blob_name, expiry)
        if method == "simple":
            return {"method": method, "url": url}
        hashes = artifact.details["hashes"]
        return {"method": method, "url": url, "expires": format_time(expiry), "hashes": hashes}

    def find(self, name: str) -> Artifact:
        """The artifact of the object. Raises ResourceNotFound until its upload is finished."""
        artifact = self._stored(name).artifact
        if not artifact.is_closed:
            raise ResourceNotFound(f"object {object_name(artifact)!r} is not there yet: finish its upload")
        return artifact

    def _stored(self, name: str) -> StoredArtifact:
        stored = self._artifacts.load(*artifact_key(name))
        is_there = stored is not None and stored.artifact.expires > self._clock.now()
        if stored is None or not is_there or stored.artifact.storage_type != "object":
            raise ResourceNotFound(
                f"there is no object {name!r}: createArtifact with the storageType object answers a name"
            )
        return stored


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InputError(f"objectData is not base64: {error}") from None
