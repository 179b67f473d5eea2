"""Endpoints about artifacts, and the views behind the signed URLs for their uploads and downloads.

Source: docs/reference/artifacts.md.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from flask import Response, request
from werkzeug.exceptions import RequestedRangeNotSatisfiable

from legacy_queue.domain.artifact import (
    NEVER_INLINE,
    UPLOAD,
    Artifact,
    BlobArtifact,
    ErrorArtifact,
    LinkArtifact,
    ObjectArtifact,
    ReferenceArtifact,
)
from legacy_queue.domain.errors import InputError, LengthRequired, ResourceNotFound
from legacy_queue.domain.scopes import AllOf, AnyOf, ForEach
from legacy_queue.http.endpoint import Call, Endpoint, Reply, endpoint
from legacy_queue.http.fault_injection import FaultInjection
from legacy_queue.http.paging import PAGED, RenderItem, page_answer
from legacy_queue.http.request_log import record_of
from legacy_queue.http.site import Site
from legacy_queue.services.artifacts.artifacts import ArtifactLocation, Artifacts
from legacy_queue.services.artifacts.objects import Objects
from legacy_queue.services.artifacts.uploads import UploadHeaders
from legacy_queue.services.pagination import Page
from legacy_queue.services.services import Services

UPLOADS = "/uploads"  # the path of these signed URLs

_OF_RUN = "/task/<taskId>/runs/<runId>/artifacts"
_OF_LATEST = "/task/<taskId>/artifacts"
_ARTIFACT = f"{_OF_RUN}/<name>"
_INFO, _CONTENT = (f"/task/<taskId>/runs/<runId>/artifact-{what}/<name>" for what in ("info", "content"))
_LATEST_INFO, _LATEST_CONTENT = (f"/task/<taskId>/artifact-{what}/<name>" for what in ("info", "content"))
_AS_WORKER = AllOf(("queue:create-artifact:<name>", "assume:worker-id:<workerGroup>/<workerId>"))
_AS_HOLDER = ("queue:claim-task:<taskId>/<runId>", "queue:create-artifact:<taskId>/<runId>")
_GETTING = AllOf((ForEach("name", "names", "queue:get-artifact:<name>"),))
_LISTING = "queue:list-artifacts:<taskId>:<runId>"
_LISTING_LATEST = "queue:list-artifacts:<taskId>"
_NAME = r"[ -~]{1,1024}"
_MAX_LINKS = 30  # followed on the way to one artifact
_CHUNK = 256 * 1024  # bytes

_putting = partial(endpoint, scopes=AnyOf((*_AS_HOLDER, _AS_WORKER)))
_getting = partial(endpoint, "GET", scopes=_GETTING)
_listing = partial(endpoint, "GET", query=PAGED, output="list-artifacts-response", stability="experimental")


@_putting(
    "POST", _ARTIFACT, "Create Artifact", input="post-artifact-request", output="post-artifact-response"
)
def create_artifact(call: Call) -> Reply:
    """Record an artifact of a run. The answer says how to upload it.

    You can repeat the call safely: you get new URLs. A repeated call may make these changes; any other change
    is a 409:

    - a later ``expires``;
    - another ``contentLength`` of an s3 or object artifact;
    - another ``url`` of a reference, or a link in its place.

    ``expires`` may be up to 15 minutes in the past. You can create an expired artifact again.
    """
    return _as_creator(call).create(call.task_id, call.run_id, call.params["name"], call.body)


def _of_completing(body: Any) -> Endpoint:
    return finish_artifact if "uploadId" in body else complete_artifact


@_putting(
    "PUT",
    _ARTIFACT,
    "Complete Artifact",
    input="put-artifact-request",
    stability="experimental",
    by_body=_of_completing,
)
def complete_artifact(call: Call) -> Reply:
    """Make an uploaded blob available. Send the ETags of its uploads. You can repeat the call safely."""
    _as_creator(call).complete(call.task_id, call.run_id, call.params["name"], call.body["etags"])
    return _empty(204)


@_putting("PUT", _ARTIFACT, "Finish Artifact", input="finish-artifact-request")
def finish_artifact(call: Call) -> Reply:
    """Make an uploaded object available. Send its uploadId. You can repeat the call safely."""
    _as_creator(call).finish(call.task_id, call.run_id, call.params["name"], call.body["uploadId"])
    return _empty(204)


def _of_latest_run(of: Endpoint, name: str, route: str, title: str, **changes: Any) -> Endpoint:
    description = f"Does the same as {of.name}, for the last run of the task."
    return replace(of, name=name, route=route, title=title, description=description, **changes)


@_getting(_ARTIFACT, "Get Artifact from Run")
def get_artifact(call: Call) -> Response:
    """Redirect to the content of the artifact.

    Links are followed, and the caller needs the scope for each name on the way. Clients that do not follow
    redirects find the storageType and the url in the body.
    """
    return _redirect(_find(call)[1])


get_latest_artifact = _of_latest_run(
    get_artifact, "getLatestArtifact", f"{_OF_LATEST}/<name>", "Get Artifact from Latest Run"
)


@_getting(_CONTENT, "Get Artifact Content From Run", output="artifact-content-response")
def artifact(call: Call) -> Reply:
    """Get what you need to download the artifact: a url, or the name and credentials of an object.

    Links are followed. If the content has a signed URL, the answer's storageType is s3.
    """
    return _content_of(*_find(call))


latest_artifact = _of_latest_run(
    artifact, "latestArtifact", _LATEST_CONTENT, "Get Artifact Content From Latest Run"
)


@endpoint("GET", _INFO, "Get Artifact Information From Run", scopes=_LISTING, output="artifact-response")
def artifact_info(call: Call) -> Reply:
    """Get an artifact's entry of listArtifacts, without its content. A link is not followed."""
    artifacts = call.authorize().services.artifacts
    return artifacts.info(call.task_id, _run_id(call, artifacts), call.params["name"]).to_wire()


latest_artifact_info = _of_latest_run(
    artifact_info,
    "latestArtifactInfo",
    _LATEST_INFO,
    "Get Artifact Information From Latest Run",
    scopes=_LISTING_LATEST,
)


@_listing(_OF_RUN, "Get Artifacts from Run", scopes=_LISTING)
def list_artifacts(call: Call) -> Response:
    """List the artifacts of a run, in pages like listTaskGroup."""
    ask = partial(call.authorize().services.artifacts.list, call.task_id, call.run_id)
    return page_answer(call, "artifacts", _NAME, ask, _wire)


@_listing(_OF_LATEST, "Get Artifacts from Latest Run", scopes=_LISTING_LATEST)
def list_latest_artifacts(call: Call) -> Response:
    """Does the same as listArtifacts, for the last run of the task.

    All pages of a list are of the same run, even if a new run begins meanwhile.
    """
    artifacts = call.authorize().services.artifacts

    def ask(after: str, limit: int, render: RenderItem) -> Page[str]:
        run, _, name = after.partition(" ")
        run_id = int(run) if run else artifacts.latest_run(call.task_id)
        page = artifacts.list(call.task_id, run_id, name, limit, render)
        return replace(page, after=page.after and f"{run_id} {page.after}")

    return page_answer(call, "artifacts", rf"[0-9]{{1,4}} {_NAME}", ask, _wire)


def _wire(artifact: Artifact) -> dict[str, Any]:
    return artifact.to_wire()


def _as_creator(call: Call) -> Artifacts:
    call.task()  # an unknown task is a ResourceNotFound, only an unknown run is an InputError
    try:
        return call.authorize_holder().services.artifacts
    except ResourceNotFound as error:
        raise InputError(error.message) from None


def _run_id(call: Call, artifacts: Artifacts) -> int:
    return call.run_id if "runId" in call.params else artifacts.latest_run(call.task_id)


def _find(call: Call) -> tuple[Objects, ArtifactLocation]:
    """Finds the artifact behind all links, after a check of the caller's scopes for each one on the way.

    Raises InsufficientScopes, ResourceNotFound or ResourceExpired, and InputError if the links are a circle.
    """
    names = [call.params["name"]]
    run_id = None
    while True:
        services = call.authorize(names=names).services
        artifacts = services.artifacts
        run_id = _run_id(call, artifacts) if run_id is None else run_id
        target = artifacts.find(call.task_id, run_id, names[-1])
        if not isinstance(target.artifact, LinkArtifact):
            return services.objects, target
        if len(names) > _MAX_LINKS:
            raise InputError(
                f"artifact {names[0]!r} leads through more than {_MAX_LINKS} links, or in a circle: "
                "expected a link to an artifact"
            )
        names.append(target.artifact.target)


def _content_of(objects: Objects, target: ArtifactLocation) -> Reply:
    match target.artifact:
        case ObjectArtifact() as found:
            return objects.access(found)
        case ErrorArtifact() as found:
            return {"storageType": "error", **found.details()}
        case ReferenceArtifact():
            return {"storageType": "reference", "url": target.url}
    return {"storageType": "s3", "url": target.url}


class _Redirect(Response):
    """A response whose Location stays the given URL. Werkzeug would rewrite it."""

    def get_wsgi_headers(self, environ: Any) -> Any:
        headers = super().get_wsgi_headers(environ)
        headers["Location"] = self.headers["Location"]
        return headers


def redirect(storage_type: str, url: str) -> Response:
    """A redirect to the URL. Today's clients do not follow it; they read the url in the body."""
    body = json.dumps({"storageType": storage_type, "url": url})
    headers = {"Location": url, **_headers(storage_type)}
    return _Redirect(body, 303, headers, content_type="application/json")


def _redirect(target: ArtifactLocation) -> Response:
    artifact = target.artifact
    if target.url is None:
        body = json.dumps(artifact.details())
        return Response(body, 424, _headers("error"), content_type="application/json")
    response = redirect(artifact.storage_type, target.url)
    if isinstance(artifact, BlobArtifact):
        response.headers.update(_location_headers(artifact))
    return response


def _headers(storage_type: str) -> dict[str, str]:
    return {"x-taskcluster-artifact-storage-type": storage_type, "Cache-Control": "no-store"}


def _location_headers(artifact: BlobArtifact) -> Mapping[str, str]:
    """The headers that old download clients need."""
    encoding = artifact.content_encoding
    content_type = artifact.content_type
    values = {**_checksums(artifact), "content-encoding": encoding, "content-type": content_type}
    return {f"x-taskcluster-location-{name}": value for name, value in values.items()}


def _checksums(artifact: BlobArtifact) -> Mapping[str, str]:
    return {
        "content-sha256": artifact.content_sha256,
        "content-length": str(artifact.content_length),
        "transfer-sha256": artifact.transfer_sha256,
        "transfer-length": str(artifact.transfer_length),
    }


def upload_view(site: Site, faults: FaultInjection) -> Callable[[str], Response]:
    """``PUT /uploads/<ticket>?signature=..``: answers 200 and an ETag once the body is stored, as S3 does.

    The signature is the only authorization. If no slot is free, the upload is refused before it is read.
    """
    uploads = site.services.uploads

    def upload(ticket: str) -> Response:
        signature = request.args.get("signature", "")
        permission = uploads.verified(ticket, signature)
        run = permission.task_id, permission.run_id
        record_of(request.environ).runs = [run]
        faults.cause_fault(request.environ, UPLOAD, permission.task_id)
        length = request.environ.get("CONTENT_LENGTH", "")
        headers = request.headers
        if not length.isdecimal():
            raise LengthRequired(
                f"content-length is {repr(length) if length else 'missing'}: expected the body's length, "
                "and a body without chunks"
            )
        # instead of the limit for JSON bodies: Werkzeug refuses a longer body
        request.max_content_length = int(length) + 1
        encoding = headers.get("content-encoding")
        md5 = headers.get("content-md5")
        sent = UploadHeaders(int(length), headers.get("content-type", ""), encoding, md5)
        chunks = iter(lambda: request.stream.read(_CHUNK), b"")  # no faster than they are stored
        with site.upload_slots.acquire(run):
            etag = uploads.receive(permission, sent, chunks)
        return _empty(200, ETag=f'"{etag}"')

    return upload


def download_view(services: Services) -> Callable[[str], Response]:
    """``GET /uploads/<ticket>?signature=..``: answers with the bytes of a blob.

    The answer has the metadata that the original queue's objects in S3 had, because
    taskcluster-lib-artifact-go refuses a download without it.
    """

    def download(ticket: str) -> Response:
        permission = services.uploads.verified(ticket, request.args.get("signature", ""), "download")
        artifact, chunks = services.artifacts.content(permission)
        response = Response(chunks, content_type=artifact.content_type, headers=NEVER_INLINE)
        response.headers.update({f"x-amz-meta-{name}": text for name, text in _checksums(artifact).items()})
        if artifact.encoding:
            response.headers["Content-Encoding"] = artifact.encoding
        response.set_etag(artifact.transfer_sha256)
        response.content_length = artifact.transfer_length
        try:
            response.make_conditional(request, True, response.content_length)
        except RequestedRangeNotSatisfiable as error:
            return Response(status=416, headers=dict(error.get_headers()))
        return response

    return download


def _empty(status: int, **headers: str) -> Response:
    response = Response(status=status, headers=headers)
    del response.headers["Content-Type"]
    return response
