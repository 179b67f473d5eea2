"""What every answer of Azure Storage has, and its refusals by the code that a client of it knows.

Source: "Common REST API error codes", "Queue Storage error codes" and "Blob Storage error codes" of Azure's
REST reference, whose sentences these are; which of them answers what: design/azurite.md.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Set

from flask import Blueprint, Response

from legacy_queue.gateway.azure_xml import error_xml

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ERRORS = {  # status and sentence
    "AuthenticationFailed": (
        "403 Server failed to authenticate the request. Make sure the value of Authorization header is "
        "formed correctly including the signature."
    ),
    "AuthorizationPermissionMismatch": (
        "403 This request is not authorized to perform this operation using this permission."
    ),
    "BlobAlreadyExists": "409 The specified blob already exists.",
    "BlobNotFound": "404 The specified blob does not exist.",
    "ConditionNotMet": "412 The condition specified using HTTP conditional header(s) is not met.",
    "InvalidBlockList": "400 The specified block list is invalid.",
    "InvalidInput": "400 One of the request inputs is not valid.",
    "InvalidQueryParameterValue": (
        "400 Value for one of the query parameters specified in the request URI is invalid."
    ),
    "InvalidRange": "416 The range specified is invalid for the current size of the resource.",
    "InvalidUri": "400 The requested URI does not represent any resource on the server.",
    "InvalidXmlDocument": "400 XML specified is not syntactically valid.",
    "Md5Mismatch": (
        "400 The MD5 value specified in the request did not match the MD5 value calculated by the server."
    ),
    "MessageNotFound": "404 The specified message does not exist.",
    "MissingContentLengthHeader": "411 The Content-Length header was not specified.",
    "MissingRequiredHeader": "400 An HTTP header that's mandatory for this request is not specified.",
    "MissingRequiredQueryParameter": (
        "400 A query parameter that's mandatory for this request is not specified."
    ),
    "OutOfRangeQueryParameterValue": (
        "400 One of the query parameters specified in the request URI is outside the permissible range."
    ),
    "PopReceiptMismatch": (
        "400 The specified pop receipt did not match the pop receipt for a dequeued message."
    ),
    "QueueNotFound": "404 The specified queue does not exist.",
    "RequestBodyTooLarge": "413 The request body is too large and exceeds the maximum permissible limit.",
    "ServerBusy": "503 The server is currently unable to receive requests. Please retry your request.",
    "UnsupportedHttpVerb": "405 The resource doesn't support specified Http Verb.",
    "UnsupportedQueryParameter": (
        "400 One of the query parameters specified in the request URI is not supported."
    ),
}


class AzureError(Exception):
    """A refusal as Azure words it; ``detail`` is one more sentence that says what would be accepted.

    A refusal to authenticate never has one: it says that, not why.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        status, _, sentence = _ERRORS[code].partition(" ")
        self.status = int(status)
        self.code = code
        self.message = f"{sentence} {detail}".rstrip()
        super().__init__(self.message)


def blueprint_of(name: str, rule: str, serve: Callable[[str], Response]) -> Blueprint:
    """A blueprint that serves all methods of the rule, and answers an AzureError as Azure does."""
    blueprint = Blueprint(name, __name__)
    blueprint.add_url_rule(
        rule,
        view_func=serve,
        methods=_METHODS,
        provide_automatic_options=False,
        merge_slashes=False,  # else a redirect would repeat the SAS
    )
    blueprint.register_error_handler(AzureError, refused)
    return blueprint


def check_names(parameters: Mapping[str, str], known: Set[str], of_sas: Set[str]) -> None:
    """Raise AzureError for a parameter that is not ``known``, or a ``timeout`` that is no number."""
    unknown = sorted(parameters.keys() - known - of_sas)
    if unknown:
        raise AzureError("UnsupportedQueryParameter", f"{unknown[0]!r} is not one of {sorted(known)}.")
    if not re.fullmatch("[0-9]{1,9}", parameters.get("timeout", "30")):
        raise AzureError("InvalidQueryParameterValue", "'timeout' is not a number of seconds.")


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
