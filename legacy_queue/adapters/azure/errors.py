"""Translates errors of the SDK. Source: Azure's "Status and error codes", and what Azurite answers."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

from legacy_queue.adapters.azure.transport import helps_to_retry
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Result = TypeVar("Result")
# The key is Azure's name of the error, or its status: an int if the error has a name, a str if it has none.
Refusals = Mapping[Any, Callable[[], Exception]]

# errors that mean that the storage cannot serve now, although the status blames the request
_TEMPORARY = {
    "TableNotFound",
    "TableBeingDeleted",
    "QueueBeingDeleted",
    "ContainerNotFound",
    "ContainerBeingDeleted",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",  # from Azure, for a token that it does not accept
    "AuthorizationFailure",  # from Azurite's tables for a wrong key, from Azure for a blocked address
    "AccountIsDisabled",
}
_NOT_SERVED = "the storage did not serve the request, try again"
_CODE = re.compile(r"<Code>(\w{1,100})</Code>|\"code\"\s*:\s*\"(\w{1,100})\"")


class StorageRefused(ServiceUnavailable):
    """The storage refused a request that it should serve, and no retry helps.

    ``refusal`` is the HTTP status and Azure's name of the error.
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(_NOT_SERVED)
        self.refusal = f"{status} {code}".rstrip()


class Missing(Exception):
    """The resource does not exist."""


def call(act: Callable[[], Result], refusals: Refusals | None = None) -> Result:
    """Return the result of ``act``, which calls the SDK and reads everything it needs from the answer.

    Raises one of the ``refusals``. For any other unexpected answer it raises ServiceUnavailable. Its cause is
    never the SDK's error, because that contains the request and, from Azure, the signature that Azure
    expected.
    """
    try:
        return act()
    except ServiceUnavailable:  # there is no token or no key
        raise
    except Exception as error:  # noqa: BLE001 - the SDK may raise any error if it cannot read an answer
        raised = _meaning(error, refusals or {})
    raise raised


def present(value: Result | None) -> Result:
    """Return the value. Raises ValueError if the answer does not have it."""
    if value is None or value == "":
        raise ValueError("expected in every answer to this request")
    return value


def find(act: Callable[[], Result], refusals: Refusals | None = None) -> Result | None:
    """Do what ``call`` does, but return None if the resource is missing or a refusal is ``Missing``."""
    try:
        return call(act, {404: Missing, **(refusals or {})})
    except Missing:
        return None


def _meaning(error: Exception, refusals: Refusals) -> Exception:
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        log.error("storage-unreachable", error=error.message)
        return ServiceUnavailable("the storage cannot be reached, try again")
    # the SDK may fail while it turns the answer into an error
    response = getattr(error, "response", None)
    if not isinstance(error, HttpResponseError) or response is None:
        return _unreadable(error)
    return _refusal(error, response, refusals)


def _refusal(error: HttpResponseError, response: Any, refusals: Refusals) -> Exception:
    """Return the error to raise. If the storage does not serve, it is logged, also for a wrong account key.

    Then a worker gets 503, because it is not the worker's fault.
    """
    status = response.status_code
    named = _CODE.search(response.body().decode(errors="replace"))
    code = response.headers.get("x-ms-error-code") or (named and (named[1] or named[2])) or ""
    is_temporary = helps_to_retry(status) or status >= 500 or code in _TEMPORARY
    refused = refusals.get(code or str(status)) or refusals.get(code and not is_temporary and status)
    if refused:
        return refused()
    if status < 300:
        return _unreadable(error)
    log.error("storage-refused", status=status, azure_code=code, error=StorageRefused.__name__)
    return ServiceUnavailable(_NOT_SERVED) if is_temporary else StorageRefused(status, code)


def _unreadable(error: Exception) -> ServiceUnavailable:
    log.error("storage-unreachable", error=type(error).__name__)
    return ServiceUnavailable("the answer of the storage cannot be read, try again")
