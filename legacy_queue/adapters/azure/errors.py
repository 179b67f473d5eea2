"""What an error of the SDK means here. Source: Azure's "Status and error codes", and what Azurite answers."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import structlog
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

from legacy_queue.adapters.azure.transport import helps_to_retry
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Result = TypeVar("Result")
# by Azure's name of the error (str), or by the status (int) of one with a name, or (str) of one without
Refusals = Mapping[Any, Callable[[], Exception]]

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
_NOT_SERVED = "storage did not serve the request, try again"
_CODE = re.compile(r"<Code>(\w{1,100})</Code>|\"code\"\s*:\s*\"(\w{1,100})\"")


class StorageRefused(ServiceUnavailable):
    """Storage refused a request that it is expected to serve, and no retry helps.

    ``refusal`` is the HTTP status and Azure's name of the error.
    """

    def __init__(self, status: int, code: str) -> None:
        super().__init__(_NOT_SERVED)
        self.refusal = f"{status} {code}".rstrip()


class Missing(Exception):
    """The resource does not exist."""


def call(act: Callable[[], Result], refusals: Refusals | None = None) -> Result:
    """The result of ``act``, a call of the SDK that also reads all that is expected of the answer.

    Raises one of the ``refusals``. For any other answer than the expected one it raises ServiceUnavailable,
    and never with the error of the SDK as its cause: that has the request, and of Azure the signature which
    it expected.
    """
    try:
        return act()
    except ServiceUnavailable:  # there is no token, or no key
        raise
    except Exception as error:  # noqa: BLE001 - the SDK raises anything for what it cannot read
        raised = _meaning(error, refusals or {})
    raise raised


def present(value: Result | None) -> Result:
    """The value; raises ValueError where the answer lacks it."""
    if value is None or value == "":
        raise ValueError("expected in every answer to this request")
    return value


def find(act: Callable[[], Result], refusals: Refusals | None = None) -> Result | None:
    """As ``call``; None for a missing resource, and for refusals that are ``Missing``."""
    try:
        return call(act, {404: Missing, **(refusals or {})})
    except Missing:
        return None


def _meaning(error: Exception, refusals: Refusals) -> Exception:
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        log.error("storage-unreachable", error=error.message)
        return ServiceUnavailable("storage cannot be reached, try again")
    # the SDK may fail while it makes an error of the answer
    response = getattr(error, "response", None)
    if not isinstance(error, HttpResponseError) or response is None:
        return _unreadable(error)
    return _refusal(error, response, refusals)


def _refusal(error: HttpResponseError, response: Any, refusals: Refusals) -> Exception:
    """The error to raise. It is logged where storage does not serve, also for a wrong account key.

    A worker gets 503 for that, since it is not the worker's fault.
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
    return ServiceUnavailable("storage gave no answer that can be read, try again")
