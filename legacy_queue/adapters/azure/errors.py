"""What an error of the SDK means here. Source: Azure's "Status and error codes", and what Azurite answers."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from xml.etree.ElementTree import ParseError

import structlog
from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError, ServiceResponseError

from legacy_queue.adapters.azure.transport import helps_to_retry
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Result = TypeVar("Result")
# by Azure's name of the error (str), or by the status (int) of one with a name, or (str) of one without
Refusals = Mapping[Any, type[Exception]]

# codes that mean that storage cannot serve now, although the status blames the request
_TEMPORARY = {
    "TableNotFound",
    "TableBeingDeleted",
    "QueueBeingDeleted",
    "ContainerNotFound",
    "ContainerBeingDeleted",
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",  # of Azure for a token that it does not take
    "AuthorizationFailure",  # of Azurite's tables for a wrong key, of Azure for a blocked address
    "AccountIsDisabled",
}
_CODE = re.compile(r"<Code>(\w{1,100})</Code>|\"code\"\s*:\s*\"(\w{1,100})\"")


class StorageRefused(Exception):
    """Storage refused the request, and no retry helps: the HTTP status and Azure's name of the error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}".rstrip())
        self.code = code


class Missing(Exception):
    """The resource does not exist."""


def call(act: Callable[[], Result], refusals: Refusals | None = None) -> Result:
    """The result of ``act``, a call of the SDK.

    Raises one of the ``refusals``, or else ServiceUnavailable or StorageRefused, and never with the error of
    the SDK as its cause: that has the request, and of Azure the signature which it expected.
    """
    try:
        return act()
    except HttpResponseError as error:
        raised = _refusal(error, refusals or {})
    except (ServiceRequestError, ServiceResponseError) as error:
        log.error("storage-unreachable", error=error.message)
        raised = ServiceUnavailable("storage cannot be reached, try again")
    except (AzureError, ParseError, LookupError, ValueError, TypeError, AttributeError) as error:
        raised = _unreadable(error)
    raise raised


def find(act: Callable[[], Result], refusals: Refusals | None = None) -> Result | None:
    """As ``call``; None for a missing resource, and for refusals that are ``Missing``."""
    try:
        return call(act, {404: Missing, **(refusals or {})})
    except Missing:
        return None


def _refusal(error: HttpResponseError, refusals: Refusals) -> Exception:
    """The error to raise. It is logged where storage cannot serve now, also for a wrong account key.

    A worker gets 503 for that, since it is not the worker's fault.
    """
    response: Any = error.response
    status = response.status_code
    named = _CODE.search(response.text())
    code = response.headers.get("x-ms-error-code") or (named and (named[1] or named[2])) or ""
    is_temporary = helps_to_retry(status) or status >= 500 or code in _TEMPORARY
    refused = refusals.get(code or str(status)) or refusals.get(code and not is_temporary and status)
    if refused:
        return refused()
    if status < 300:
        return _unreadable(error)
    if not is_temporary:
        return StorageRefused(status, code)
    log.error("storage-refused", status=status, azure_code=code, error=StorageRefused.__name__)
    return ServiceUnavailable("storage did not serve the request, try again")


def _unreadable(error: Exception) -> ServiceUnavailable:
    log.error("storage-unreachable", error=type(error).__name__)
    return ServiceUnavailable("storage gave no answer that can be read, try again")
