"""Objects of today's Object service. Here an object holds the bytes of an artifact of the type ``object``.

Source: the ``upload`` and ``download`` of today's clients, and the schemas of its object service.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.domain.artifact import ObjectArtifact
from legacy_queue.domain.authentication import Client, create_temporary_credentials
from legacy_queue.domain.errors import InputError, NoMatchingMethod, RequestConflict
from legacy_queue.domain.ids import RUN_ID, TASK_ID, slugid
from legacy_queue.domain.times import format_time, parse_field, parse_time

OBJECT_NAME = rf"t/{TASK_ID}/{RUN_ID}/[ -~]{{1,1024}}"
DOWNLOAD_METHODS = ("getUrl", "simple")  # the preferred method first

_HASHES = ("sha256", "sha512")
_UPLOAD_ACCESS = timedelta(days=1)
_DOWNLOAD_ACCESS = timedelta(hours=1)
_DRIFT = timedelta(minutes=15)  # of clocks: credentials are valid from this long before now


def object_name(artifact: ObjectArtifact) -> str:
    """The name of the artifact's bytes in the Object service."""
    return f"t/{artifact.task_id}/{artifact.run_id}/{artifact.name}"


def artifact_key(name: str) -> tuple[str, int, str]:
    """Returns taskId, runId and artifact name of an object's name, which must match OBJECT_NAME."""
    _, task_id, run_id, artifact_name = name.split("/", 3)
    return task_id, int(run_id), artifact_name


def upload_access(
    artifact: ObjectArtifact, issuer: Client, now: datetime, expires: datetime
) -> dict[str, Any]:
    """Returns the answer of createArtifact: the object's name, its uploadId, and credentials to upload it.

    ``now`` and ``expires`` are in real time, because credentials are checked in real time.
    """
    project_id = artifact.project_id
    expiry = min(expires, now + _UPLOAD_ACCESS)
    return {
        **_access(artifact, "upload", f"{project_id}:", issuer, now, expiry),
        "projectId": project_id,
        "uploadId": artifact.upload_id,
        "expires": format_time(artifact.expires),
    }


def download_access(artifact: ObjectArtifact, issuer: Client, now: datetime) -> dict[str, Any]:
    """Returns the answer of ``artifact``: the object's name, and credentials to download it."""
    return _access(artifact, "download", "", issuer, now, now + _DOWNLOAD_ACCESS)


def check_upload(artifact: ObjectArtifact, body: Mapping[str, Any]) -> None:
    """Raises InputError or RequestConflict if the body does not belong to this object's upload."""
    name = object_name(artifact)
    project_id = artifact.project_id
    if body["projectId"] != project_id:
        raise InputError(
            f"projectId is {body['projectId']!r}: expected {project_id!r}, the project of {name!r}"
        )
    if body["uploadId"] != artifact.upload_id:
        raise RequestConflict(
            f"object {name!r} has another uploadId: use the one in the answer of createArtifact"
        )
    if "expires" in body and parse_field(body, "expires", parse_time) != artifact.expires:
        expires = format_time(artifact.expires)
        raise RequestConflict(f"object {name!r} expires at {expires}, not at {body['expires']}")


def finished(artifact: ObjectArtifact, hashes: Mapping[str, str]) -> ObjectArtifact:
    """Returns the artifact after its upload, with the hashes of its content.

    Safe to repeat with the same hashes; raises RequestConflict for other hashes. Only SHA-256 and SHA-512 are
    kept.
    """
    new = {name: hashes[name] for name in _HASHES if name in hashes}
    if artifact.hashes is None:
        return replace(artifact, hashes=new)
    if not new.items() <= artifact.hashes.items():
        details = {"hashes": artifact.hashes}
        raise RequestConflict(
            f"object {object_name(artifact)!r} is finished already, with other hashes", details
        )
    return artifact


def download_method(accepted: Mapping[str, Any]) -> str:
    """Returns the preferred method of those that the caller accepts. Raises NoMatchingMethod."""
    for method in DOWNLOAD_METHODS:
        if method in accepted:
            return method
    raise NoMatchingMethod(
        f"the caller accepts no method that works here: expected {' or '.join(DOWNLOAD_METHODS)}"
    )


def _access(
    artifact: ObjectArtifact, right: str, project: str, issuer: Client, now: datetime, expiry: datetime
) -> dict[str, Any]:
    name = object_name(artifact)
    credentials = create_temporary_credentials(
        issuer,
        f"artifact-{right}/{artifact.task_id}/{artifact.run_id}",
        [f"object:{right}:{project}{name}"],
        start=now - _DRIFT,
        expiry=expiry,
        seed=slugid() + slugid(),
    )
    return {"storageType": "object", "name": name, "credentials": credentials.to_wire()}
