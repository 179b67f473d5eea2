"""Endpoints about artifacts, and where signed URLs lead that upload them through this server.

Source: "Methods" and "Bodies worth spelling out" in design/api.md.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from flask import Response, request

from legacy_queue.domain.artifacts import Artifact
from legacy_queue.domain.errors import InputError, LengthRequired, ResourceNotFound
from legacy_queue.domain.scopes import AllOf, AnyOf, ForEach
from legacy_queue.http.endpoint import Answer, Call, endpoint
from legacy_queue.http.paging import PAGED, page_answer, render
from legacy_queue.services import Services
from legacy_queue.services.artifacts import Found
from legacy_queue.services.pages import Page
from legacy_queue.services.upload_slots import UploadSlots
from legacy_queue.services.uploads import Sent

UPLOADS = "/uploads"  # a path

_OF_RUN = "/task/<taskId>/runs/<runId>/artifacts"
_OF_LATEST = "/task/<taskId>/artifacts"
_ONE = f"{_OF_RUN}/<name>"
_AS_WORKER = AllOf(("queue:create-artifact:<name>", "assume:worker-id:<workerGroup>/<workerId>"))
_AS_HOLDER = ("queue:claim-task:<taskId>/<runId>", "queue:create-artifact:<taskId>/<runId>")
_GETTING = AllOf((ForEach("private", "privateNames", "queue:get-artifact:<private>"),))
_NAME = r"[ -~]{1,1024}"
_CHUNK = 256 * 1024  # bytes

_putting = partial(endpoint, scopes=AnyOf((*_AS_HOLDER, _AS_WORKER)))
_listing = partial(endpoint, "GET", query=PAGED, output="list-artifacts-response", stability="experimental")


@_putting("POST", _ONE, "Create Artifact", input="post-artifact-request", output="post-artifact-response")
def create_artifact(call: Call) -> Answer:
    """Put an artifact of a run on record, and learn how to upload it. Safe to repeat, for fresh URLs.

    A later expires is taken over, and another url of a reference; anything else is never replaced. An
    artifact that has expired may be created again, and expires may be up to 15 minutes ago.
    """
    services = _as_creator(call)
    return services.artifacts.create(call.task_id, call.run_id, call.params["name"], call.body)


@_putting("PUT", _ONE, "Complete Artifact", input="put-artifact-request", stability="experimental")
def complete_artifact(call: Call) -> Response:
    """Say that a blob is uploaded, with the ETags of its uploads: now it can be had. Safe to repeat."""
    services = _as_creator(call)
    services.artifacts.complete(call.task_id, call.run_id, call.params["name"], call.body["etags"])
    return _empty(204)


@endpoint("GET", _ONE, "Get Artifact from Run", scopes=_GETTING)
def get_artifact(call: Call) -> Response:
    """Redirect to the artifact; one whose name begins with public/ anybody may get."""
    services = _as_reader(call)
    return _redirect(services.artifacts.find(call.task_id, call.run_id, call.params["name"]))


@endpoint("GET", f"{_OF_LATEST}/<name>", "Get Artifact from Latest Run", scopes=_GETTING)
def get_latest_artifact(call: Call) -> Response:
    """As getArtifact, of the last run."""
    artifacts = _as_reader(call).artifacts
    return _redirect(artifacts.find(call.task_id, artifacts.latest_run(call.task_id), call.params["name"]))


@_listing(_OF_RUN, "Get Artifacts from Run")
def list_artifacts(call: Call) -> Response:
    """The artifacts of a run, in pages as those of listTaskGroup."""
    services = call.authorize()
    ask = partial(services.artifacts.list, call.task_id, call.run_id, render=_listed)
    return page_answer(call, services, "artifacts", _NAME, ask)


@_listing(_OF_LATEST, "Get Artifacts from Latest Run")
def list_latest_artifacts(call: Call) -> Response:
    """As listArtifacts, of the last run; the pages of one list are of one run, though another begins."""
    services = call.authorize()

    def ask(after: str, limit: int) -> Page[str]:
        run, _, name = after.partition(" ")
        run_id = int(run) if run else services.artifacts.latest_run(call.task_id)
        page = services.artifacts.list(call.task_id, run_id, name, limit, _listed)
        return replace(page, after=page.after and f"{run_id} {page.after}")

    return page_answer(call, services, "artifacts", rf"[0-9]{{1,4}} {_NAME}", ask)


def _as_creator(call: Call) -> Services:
    call.task()  # of none, a ResourceNotFound
    try:
        return call.authorize_holder()
    except ResourceNotFound as error:
        raise InputError(error.message) from None


def _as_reader(call: Call) -> Services:
    name = call.params["name"]
    return call.authorize(privateNames=[] if name.startswith("public/") else [name])


class _Redirect(Response):
    """Its Location is what was given, which Werkzeug would write anew."""

    def get_wsgi_headers(self, environ: Any) -> Any:
        headers = super().get_wsgi_headers(environ)
        headers["Location"] = self.headers["Location"]
        return headers


def _redirect(found: Found) -> Response:
    artifact = found.artifact
    if found.url is None:
        body = {name: artifact.details[name] for name in ("reason", "message")}
        response = Response(json.dumps(body), 424, content_type="application/json")
    else:
        response = _Redirect("{}", 303, {"Location": found.url}, content_type="application/json")
    if artifact.storage_type == "blob":
        response.headers.update(_location_headers(artifact))
    response.headers["x-taskcluster-artifact-storage-type"] = artifact.storage_type
    response.headers["Cache-Control"] = "no-store"
    return response


def _location_headers(artifact: Artifact) -> Mapping[str, str]:
    """What old download clients insist on."""
    details = artifact.details
    values = {
        "content-sha256": details["contentSha256"],
        "content-length": str(details["contentLength"]),
        "transfer-sha256": details["transferSha256"],
        "transfer-length": str(details["transferLength"]),
        "content-encoding": details["contentEncoding"],
        "content-type": artifact.content_type,
    }
    return {f"x-taskcluster-location-{name}": value for name, value in values.items()}


def _listed(artifact: Artifact) -> bytes:
    return render(artifact.to_wire())


def upload_view(services: Services, slots: UploadSlots) -> Callable[[str], Response]:
    """``PUT /uploads/<ticket>?signature=..``: 200 and an ETag once the body is stored as a whole, as by S3.

    What signs the URL is all the authorization there is. An upload that finds no slot is refused unread.
    """

    def upload(ticket: str) -> Response:
        length, headers = request.environ.get("CONTENT_LENGTH", ""), request.headers
        if not length.isdecimal():
            raise LengthRequired("content-length is missing: a body in chunks is not accepted")
        # in place of the limit of JSON; where it is reached, Werkzeug refuses
        request.max_content_length = int(length) + 1
        encoding, md5 = headers.get("content-encoding"), headers.get("content-md5")
        sent = Sent(int(length), headers.get("content-type", ""), encoding, md5)
        chunks = iter(lambda: request.stream.read(_CHUNK), b"")  # read no faster than they are stored
        with slots.taken(ticket):
            etag = services.uploads.receive(ticket, request.args.get("signature", ""), sent, chunks)
        return _empty(200, ETag=f'"{etag}"')

    return upload


def _empty(status: int, **headers: str) -> Response:
    response = Response(status=status, headers=headers)
    del response.headers["Content-Type"]
    return response
