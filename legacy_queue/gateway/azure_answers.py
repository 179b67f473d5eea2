"""The headers and the refusals that every answer of Azure Storage has."""

import uuid

from flask import Response

from legacy_queue.gateway.azure_errors import AzureError
from legacy_queue.gateway.azure_xml import error_xml


def answer(status: int, body: bytes = b"") -> Response:
    """XML, or nothing; not to be kept by anybody on its way."""
    response = Response(body, status, content_type="application/xml")
    if not body:
        del response.headers["Content-Type"]
    return with_common_headers(response)


def with_common_headers(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"  # it was for the holder of a signed URL
    response.headers["x-ms-request-id"] = str(uuid.uuid4())
    return response


def refused(error: AzureError) -> Response:
    response = answer(error.status, error_xml(error.code, error.message))
    response.headers["x-ms-error-code"] = error.code
    if error.status == 503:
        response.headers["Retry-After"] = "5"  # seconds
    return response
