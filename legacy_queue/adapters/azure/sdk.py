"""Clients of the SDK, for infrequent operations, and its errors as those of the ports.

Source: docs/explanation/azurite.md#the-sdk.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

import requests
import structlog
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from legacy_queue.adapters.azure.connection import MAX_IDLE, StorageTimeouts
from legacy_queue.adapters.azure.rest import BLOB, QUEUE, TABLE, StorageRefused, refusal
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Asked = ParamSpec("Asked")
Found = TypeVar("Found")

_DOWNLOADED = 4 * 1024 * 1024  # bytes in one request
_AT_ONCE_THEN_AFTER_A_SECOND = {"initial_backoff": 0, "increment_base": 1, "random_jitter_range": 0}
# of their own these clients would send a version that is newer than any Azurite
_OPTIONS: Mapping[type, Mapping[str, Any]] = {
    QueueServiceClient: {"api_version": QUEUE.version, **_AT_ONCE_THEN_AFTER_A_SECOND},
    TableServiceClient: {"api_version": TABLE.version, "retry_backoff_factor": 0.1},  # within half a second
    BlobServiceClient: {
        "api_version": BLOB.version,
        **_AT_ONCE_THEN_AFTER_A_SECOND,
        "max_single_get_size": _DOWNLOADED,
        "max_chunk_get_size": _DOWNLOADED,
    },
}


def connect(kind: Any, service: str, connection_string: str, counts: Counter[tuple[str, str]]) -> Any:
    """A client of that kind, which gives up after two retries; raises ValueError.

    ``counts`` counts all requests by service and HTTP method.
    """
    session, timeouts = requests.Session(), StorageTimeouts()
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=MAX_IDLE))
    transport = RequestsTransport(
        session=session, session_owner=False, connection_timeout=timeouts.connect, read_timeout=timeouts.read
    )
    return kind.from_connection_string(
        connection_string,
        transport=transport,
        raw_request_hook=lambda request: counts.update([(service, request.http_request.method)]),
        retry_total=2,
        **_OPTIONS[kind],
    )


def error_code(error: HttpResponseError) -> str:
    """Azure's name of the error, or an empty string."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def find(call: Callable[Asked, Found], *args: Asked.args, **kwargs: Asked.kwargs) -> Found | None:
    """As ``ask``, None for a missing resource."""
    with suppress(ResourceNotFoundError):
        return ask(call, *args, **kwargs)
    return None


def ask(call: Callable[Asked, Found], *args: Asked.args, **kwargs: Asked.kwargs) -> Found:
    """The result of a ``call`` of the SDK.

    Raises ServiceUnavailable where storage cannot serve now, and other refusals as the SDK does.
    """
    try:
        return call(*args, **kwargs)
    except HttpResponseError as error:
        refused = refusal(error.status_code or 500, error_code(error))
        if not isinstance(refused, StorageRefused):
            raise refused from error
        raise
    except AzureError as error:
        log.error("storage-unreachable", error=type(error).__name__)
        raise ServiceUnavailable("storage cannot be reached, try again") from error
