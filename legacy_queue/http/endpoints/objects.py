"""Endpoints of today's Object service, which has the bytes of artifacts of the storage type ``object``."""

from dataclasses import replace
from functools import partial

from legacy_queue.domain.times import format_time
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.endpoints.artifacts import redirect
from legacy_queue.http.endpoints.liveness import ping

_uploading = partial(endpoint, service="object", scopes="object:upload:<projectId>:<objectName>")
_downloading = partial(endpoint, service="object", scopes="object:download:<objectName>")

object_ping = replace(ping, name="objectPing", service="object")


@_uploading(
    "PUT",
    "/upload/<objectName>",
    "Begin Upload of an Object",
    input="create-upload-request",
    output="create-upload-response",
)
def create_upload(call: Call) -> Reply:
    """Store inline data, or get the URL for a PUT of the data, which finishUpload completes.

    You can repeat the call safely.
    """
    site = call.authorize(projectId=call.body["projectId"])
    return site.services.objects.create_upload(call.params["objectName"], call.body)


@_uploading(
    "POST",
    "/finish-upload/<objectName>",
    "Mark an Upload as Complete",
    input="finish-upload-request",
)
def finish_upload(call: Call) -> Reply:
    """Make an uploaded object available, with these hashes. You can repeat the call safely."""
    site = call.authorize(projectId=call.body["projectId"])
    site.services.objects.finish_upload(call.params["objectName"], call.body)
    return {}


@_downloading(
    "PUT",
    "/start-download/<objectName>",
    "Download Object Data",
    input="download-object-request",
    output="download-object-response",
)
def start_download(call: Call) -> Reply:
    """Get a URL from which to download the object, by a method that the caller accepts: getUrl or simple."""
    accepted = call.body["acceptDownloadMethods"]
    return call.authorize().services.objects.start_download(call.params["objectName"], accepted)


@_downloading("GET", "/metadata/<objectName>", "Get an Object's Metadata", output="get-object-response")
def object_(call: Call) -> Reply:
    """Get the project of an object, its hashes, and when it expires."""
    artifact = call.authorize().services.objects.find(call.params["objectName"])
    expires = format_time(artifact.expires)
    return {"projectId": artifact.project_id, "expires": expires, "hashes": artifact.hashes}


@_downloading("GET", "/download/<objectName>", "Get an Object's Data")
def download(call: Call) -> Reply:
    """Redirect to the content of the object."""
    objects = call.authorize().services.objects
    answer = objects.start_download(call.params["objectName"], {"simple": True})
    return redirect("object", answer["url"])
