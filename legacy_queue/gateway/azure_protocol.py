"""What Azure's queues and blobs have in common: signed URLs, answers and errors.

A signature is a secret, so this module must never log. Sources: Azure's "Create a service SAS" (version
2015-04-05 and later for queues, 2020-12-06 and later for blobs); "Common REST API error codes", "Queue
Storage error codes" and "Blob Storage error codes", which have the sentences of the errors below;
docs/explanation/legacy-clients.md#signed-urls-and-xml. docs/reference/azure.md has the error of each request.
"""

import base64
import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import parse_qsl

from flask import Blueprint, Response, g, request
from flask.blueprints import BlueprintSetupState
from lxml import etree

from legacy_queue.domain.errors import InjectedError, ServiceUnavailable
from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import parse_time
from legacy_queue.ports.queue import QueuedMessage
from legacy_queue.services.control.fault import Fault

API_PATH = "/azure"  # of signed URLs that this server answers: on embedded storage, or with control

# the fields that are signed after the resource, in this order
_QUEUE_FIELDS = ("si", "sip", "spr", "sv")
_BLOB_FIELDS = (*_QUEUE_FIELDS, "sr", "snapshot", "ses", "rscc", "rscd", "rsce", "rscl", "rsct")
_NEVER_GRANTED = ("sip", "snapshot", "ses", "rscc", "rsce", "rscl", "rsct")
_SAS_FIELDS = {"sp", "st", "se", "sig"}
_SIGNED = _SAS_FIELDS.union(_BLOB_FIELDS)
_MAX_PARAMETERS = 50
_DEFAULT_VERSION = "2021-12-02"  # for a request that names none
_FIRST_VERSION = date(2009, 9, 19)
_CLIENT_REQUEST_ID = re.compile("[ -~]{1,1024}")
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PROLOGUE = b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>'  # byte for byte as Azure sends it
_ERRORS = """
AuthenticationFailed 403 Server failed to authenticate the request. Make sure the value of Authorization \
header is formed correctly including the signature.
AuthorizationPermissionMismatch 403 This request is not authorized to perform this operation using this \
permission.
AuthorizationProtocolMismatch 403 This request is not authorized to perform this operation using this \
protocol.
BlobAlreadyExists 409 The specified blob already exists.
BlobNotFound 404 The specified blob does not exist.
BothCrc64AndMd5HeaderPresent 400 Both x-ms-content-crc64 header and Content-MD5 header are present.
BlockCountExceedsLimit 409 The uncommitted block count cannot exceed the maximum limit.
ConditionNotMet 412 The condition specified using HTTP conditional header(s) is not met.
CorsPreflightFailure 403 CORS not enabled or no matching rule found for this request.
Crc64Mismatch 400 The CRC64 value specified in the request did not match the CRC64 value calculated by the \
server.
InvalidBlobOrBlock 400 The specified blob or block content is invalid.
InvalidBlockList 400 The specified block list is invalid.
InvalidHeaderValue 400 The value for one of the HTTP headers is not in the correct format.
InvalidInput 400 One of the request inputs is not valid.
InvalidMd5 400 The MD5 value specified in the request is invalid. The MD5 value must be 128 bits and \
Base64-encoded.
InvalidMetadata 400 The specified metadata is invalid. It includes characters that are not permitted.
InvalidQueryParameterValue 400 Value for one of the query parameters specified in the request URI is invalid.
InvalidRange 416 The range specified is invalid for the current size of the resource.
InvalidUri 400 The requested URI does not represent any resource on the server.
InvalidXmlDocument 400 XML specified is not syntactically valid.
Md5Mismatch 400 The MD5 value specified in the request did not match the MD5 value calculated by the server.
MessageNotFound 404 The specified message does not exist.
MetadataTooLarge 400 The size of the specified metadata exceeds the maximum size permitted.
MissingContentLengthHeader 411 The Content-Length header was not specified.
MissingRequiredHeader 400 An HTTP header that's mandatory for this request is not specified.
OutOfRangeQueryParameterValue 400 One of the query parameters specified in the request URI is outside the \
permissible range.
QueueNotFound 404 The specified queue does not exist.
RequestBodyTooLarge 413 The request body is too large and exceeds the maximum permissible limit.
ServerBusy 503 The server is currently unable to receive requests. Please retry your request.
UnsupportedHttpVerb 405 The resource doesn't support specified Http Verb.
"""
_INJECTED = {  # the code for a status, for one method or for all methods
    "400": "InvalidInput",
    "401": "NoAuthenticationInformation",
    "403": "AuthenticationFailed",
    "404": "ResourceNotFound",
    "405": "UnsupportedHttpVerb",
    "409": "ResourceAlreadyExists",
    "411": "MissingContentLengthHeader",
    "412": "ConditionNotMet",
    "413": "RequestBodyTooLarge",
    "416": "InvalidRange",
    "500": "InternalError",
    "503": "ServerBusy",
    "DELETE 400": "InvalidQueryParameterValue",
    "DELETE 404": "MessageNotFound",
    "GET 404": "QueueNotFound",
    "PUT 404": "ContainerNotFound",
    "PUT 409": "BlobAlreadyExists",
}
_SENTENCES = dict(line.partition(" ")[::2] for line in _ERRORS.strip().splitlines())


class AzureError(Exception):
    """An error that is answered as Azure would.

    ``detail`` says what was expected; the answer has it as the element Reason. ``parameter`` names the wrong
    query parameter, and ``elements`` are more elements of the answer. After a failed authentication the
    answer has no detail: only the record of the request gets the ``reason``.
    """

    def __init__(
        self,
        code: str,
        detail: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        parameter: str = "",
        elements: Mapping[str, str] | None = None,
        reason: str = "",
    ) -> None:
        status, _, self.message = _SENTENCES[code].partition(" ")
        self.status = int(status)
        self.code = code
        self.headers = headers or {}
        self.elements = dict(elements or {})
        if parameter:
            value = g.get("azure_parameters", {}).get(parameter, "")
            named = {"QueryParameterName": parameter, "QueryParameterValue": value}
            self.elements = {**named, **self.elements}
        if detail:
            self.elements["Reason"] = detail
        self.reason = reason or f"{self.message} {detail}".rstrip()
        super().__init__(self.reason)


class RecordedRequest(Protocol):
    """What the log and the journal say about a request. The gateway fills in what it knows."""

    endpoint: str | None
    queue: WorkQueue | None
    runs: Sequence[RunKey]
    url_expires: str | None
    messages: Sequence[QueuedMessage] | None  # messages that the request has received
    reason: str | None  # why it got an error


RecordOf = Callable[[dict[str, Any]], RecordedRequest]  # takes the WSGI environ


class Faults(Protocol):
    """Causes faults in requests."""

    def cause_fault(
        self, environ: dict[str, Any], endpoint: str, task_id: str = "", *, has_message: bool = False
    ) -> Fault | None:
        """Returns the fault that happens to a request about this task, if any. Raises InjectedError."""


def blueprint_of(name: str, rule: str, serve: Callable[[str], Response], record_of: RecordOf) -> Blueprint:
    """Returns a blueprint that serves the rule for every method. It answers an AzureError as Azure does."""

    def refused(error: AzureError) -> Response:
        record_of(request.environ).reason = error.reason
        return _error(error.status, error.code, error.message, error.elements, error.headers)

    def add_route(state: BlueprintSetupState) -> None:
        # slashes are not merged: Werkzeug would redirect, and the redirect would repeat the SAS
        endpoint = f"{name}.serve"
        route = state.app.url_rule_class(
            f"{state.url_prefix or ''}{rule}", endpoint=endpoint, methods=None, merge_slashes=False
        )
        state.app.url_map.add(route)
        state.app.view_functions[endpoint] = serve

    blueprint = Blueprint(name, __name__)
    blueprint.record(add_route)
    blueprint.register_error_handler(AzureError, refused)
    blueprint.register_error_handler(
        ServiceUnavailable, lambda error: refused(AzureError("ServerBusy", error.message))
    )
    blueprint.register_error_handler(InjectedError, _injected)
    blueprint.after_request(_with_common_headers)
    return blueprint


def _version(parameters: Mapping[str, str]) -> str:
    """Returns the version of Azure's API that the request names: in a parameter, in a header, or in its SAS.

    Raises AzureError for a version that cannot exist.
    """
    named, header = parameters.get("api-version"), request.environ.get("HTTP_X_MS_VERSION")
    signed = parameters.get("sv", "")
    if named is not None and not _is_version(named):
        raise AzureError("InvalidQueryParameterValue", parameter="api-version")
    if header is not None and not _is_version(header):
        elements = {"HeaderName": "x-ms-version", "HeaderValue": header}
        raise AzureError("InvalidHeaderValue", elements=elements)
    return named or header or (signed if _is_version(signed) else _DEFAULT_VERSION)


@lru_cache(maxsize=100)
def _is_version(text: str) -> bool:
    """Whether the text is a date, _FIRST_VERSION or later. The server answers all versions alike."""
    try:
        return bool(re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text)) and (
            date.fromisoformat(text) >= _FIRST_VERSION
        )
    except ValueError:
        return False


def authenticated(resource: str, permission: str, key: str, now: datetime) -> dict[str, str]:
    """Checks the SAS for this resource and permission. Returns the other parameters of the request.

    For a queue these include ``si``, which names the client that asked for the URL. ``resource`` is
    ``/queue/<account>/<queue>`` or ``/blob/<account>/<container>/<blob>``, and ``key`` is base64. The check
    uses decoded values, because clients may encode them differently.

    Raises AzureError for a wrong SAS, and for options that this server never signs: a range of addresses
    (``sip``), response headers (``rsct`` and so on), a snapshot, an encryption scope, and ``si`` for a blob.
    ``rscd=attachment`` is allowed, because every answer is an attachment.
    """
    if request.method == "OPTIONS":  # a browser asks on behalf of a page of another origin
        raise AzureError("CorsPreflightFailure")
    g.azure_parameters = parameters = _parameters()
    g.azure_version = _version(parameters)
    signed_fields = _BLOB_FIELDS if resource.startswith("/blob/") else _QUEUE_FIELDS
    first, second, third, *others = (parameters.get(name, "") for name in ("sp", "st", "se", *signed_fields))
    signed = "\n".join((first, second, third, resource, *others)).encode()
    expected = base64.b64encode(hmac.digest(base64.b64decode(key), signed, hashlib.sha256))
    if not hmac.compare_digest(expected, parameters.get("sig", "").encode()):
        raise AzureError("AuthenticationFailed", reason="the URL is not signed by this server's key")
    if not _is_valid(parameters, now):
        begin = f"from {second} " if second else ""
        reason = f"the URL is valid only {begin}until {third}"
        raise AzureError("AuthenticationFailed", reason=reason)
    is_queue = signed_fields == _QUEUE_FIELDS
    if not _is_granted(parameters) or (parameters.get("si") and not is_queue):
        raise AzureError(
            "AuthenticationFailed", reason="the URL is signed for options that this server never grants"
        )
    if request.scheme not in (parameters.get("spr") or "https,http").split(","):
        raise AzureError("AuthorizationProtocolMismatch")
    if permission not in first:
        raise AzureError("AuthorizationPermissionMismatch")
    hidden = _SAS_FIELDS.union(signed_fields) - {"si" if is_queue else ""}
    return {name: value for name, value in parameters.items() if name not in hidden}


def _parameters() -> dict[str, str]:
    """Returns the decoded parameters. Raises AzureError if a signed one is given twice, so is ambiguous.

    For other parameters the first one counts, as in Azurite: Azure's JavaScript client appends its own
    ``visibilitytimeout`` to the one in a poll URL.
    """
    query = request.query_string.decode("latin-1")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise AzureError("InvalidQueryParameterValue", "There are too many parameters.") from None
    signed = [name for name, _ in pairs if name in _SIGNED]
    if len(signed) > len(set(signed)):
        raise AzureError("AuthenticationFailed", reason="a signed parameter is given twice")
    return dict(reversed(pairs))


def _is_valid(parameters: Mapping[str, str], now: datetime) -> bool:
    try:
        has_begun = "st" not in parameters or parse_time(parameters["st"]) <= now
        return has_begun and now < parse_time(parameters.get("se", ""))
    except ValueError:
        return False


def _is_granted(parameters: Mapping[str, str]) -> bool:
    return (
        bool(parameters.get("sv"))
        and not any(parameters.get(name) for name in _NEVER_GRANTED)
        and parameters.get("rscd", "") in ("", "attachment")
    )


def check_timeout(parameters: Mapping[str, str]) -> None:
    """Raises AzureError if ``timeout`` is not a number. A number changes nothing."""
    if not re.fullmatch("[0-9]{1,9}", parameters.get("timeout", "30")):
        raise AzureError("InvalidQueryParameterValue", "expected a number of seconds", parameter="timeout")


def bytes_of_base64(text: str) -> int | None:
    """Returns how many bytes the text encodes, or None if it is not base64."""
    try:
        return len(base64.b64decode(text, validate=True))
    except ValueError:
        return None


def element(tag: str, **texts: str) -> etree._Element:
    """Returns an element with one child element for each text."""
    parent = etree.Element(tag)
    for name, text in texts.items():
        etree.SubElement(parent, name).text = _NOT_IN_XML.sub("\ufffd", text)
    return parent


def _document(root: etree._Element) -> bytes:
    return _PROLOGUE + etree.tostring(root, encoding="utf-8").replace(b"/>", b" />")


def answer(status: int, root: etree._Element | None = None) -> Response:
    """Returns an answer without a body, or with XML as Azure writes it: no line breaks, and ``<a />``."""
    if root is None:
        response = Response(status=status)
        del response.headers["Content-Type"]
        return response
    return Response(_document(root), status, content_type="application/xml")


def _injected(error: InjectedError) -> Response:
    """The answer of a fault, with Azure's code for its status. If Azure has none, it has the fault's code."""
    of_method = _INJECTED.get(f"{request.method} {error.status}")
    return _error(error.status, of_method or _INJECTED.get(str(error.status), error.code), error.message)


def _error(
    status: int,
    code: str,
    message: str,
    elements: Mapping[str, str] = MappingProxyType({}),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    response = answer(status, _error_element(code, message, _request_id(), elements))
    response.headers.update({"x-ms-error-code": code, **headers})
    if status == 503:
        response.headers["Retry-After"] = "5"  # seconds
    return response


def _error_element(
    code: str, message: str, request_id: str, elements: Mapping[str, str] = MappingProxyType({})
) -> etree._Element:
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f0Z")
    return element("Error", Code=code, Message=f"{message}\nRequestId:{request_id}\nTime:{time}", **elements)


def bare_error(code: str, message: str, request_id: str) -> tuple[dict[str, str], bytes]:
    """Returns headers and body of an error for a request that did not get as far as an application."""
    headers = {
        "Content-Type": "application/xml",
        "x-ms-error-code": code,
        "x-ms-request-id": request_id,
        "x-ms-version": _DEFAULT_VERSION,
    }
    return headers, _document(_error_element(code, message, request_id))


def _request_id() -> str:
    """The id of this request, for the headers of the answer and for the message of an error."""
    if "azure_request_id" not in g:
        g.azure_request_id = str(uuid.uuid4())
    return str(g.azure_request_id)


def _with_common_headers(response: Response) -> Response:
    """Adds the headers that every answer of Azure has, except Date, which the server adds.

    It also turns errors of other parts of the server into errors of Azure.
    """
    if response.status_code >= 400 and "x-ms-error-code" not in response.headers:
        ours = response.get_json(silent=True) or {}
        code = _INJECTED.get(str(response.status_code)) or ours.get("code", "InternalError")
        message = ours.get("message", "The server failed.").partition("\n")[0]
        response = _error(response.status_code, code, message)
    response.headers["Cache-Control"] = "no-store"  # the answer is for the holder of a signed URL
    response.headers["x-ms-request-id"] = _request_id()
    response.headers["x-ms-version"] = g.get("azure_version") or _DEFAULT_VERSION
    client_request_id = request.environ.get("HTTP_X_MS_CLIENT_REQUEST_ID", "")
    if _CLIENT_REQUEST_ID.fullmatch(client_request_id):
        response.headers["x-ms-client-request-id"] = client_request_id
    return response
