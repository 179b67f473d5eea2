"""Clients of the SDK, for infrequent operations, and its errors as those of the ports.

Source: docs/explanation/azurite.md#the-sdk.
"""

import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

import requests
import structlog
from azure.core.credentials import TokenCredential
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline.transport import RequestsTransport
from azure.storage.blob import BlobServiceClient

from legacy_queue.adapters.azure.connection import MAX_IDLE, StorageTimeouts, default_context
from legacy_queue.adapters.azure.rest import Service, StorageRefused, helps_to_retry, pause, refusal
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Asked = ParamSpec("Asked")
Found = TypeVar("Found")

_DOWNLOADED = 1024 * 1024  # bytes in one request: as much waits in memory for a slow client
_OPTIONS: Mapping[type, Mapping[str, Any]] = {
    BlobServiceClient: {"max_single_get_size": _DOWNLOADED, "max_chunk_get_size": _DOWNLOADED},
}


class _Adapter(requests.adapters.HTTPAdapter):
    """For https, also through a proxy."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(pool_maxsize=MAX_IDLE)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, ssl_context=self._context)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        return super().proxy_manager_for(*args, **kwargs, ssl_context=self._context)


class _Transport(RequestsTransport):  # type: ignore[misc] # imported lazily, of an unknown type
    """Counts requests, and sends them again as RestClient does.

    The SDK's own policies do not wait for Retry-After, or wait for as long as it says.
    """

    def __init__(self, service: Service, counts: Counter[tuple[str, str]], **options: Any) -> None:
        self._service, self._counts = service, counts
        super().__init__(**options)

    def send(self, request: Any, **options: Any) -> Any:
        delays = iter((*self._service.delays, None))
        while True:
            delay = next(delays)
            self._counts[self._service.name, request.method] += 1
            try:
                response = super().send(request, **options)
            except (ServiceRequestError, ServiceResponseError):
                wait = pause(delay)
                if wait is None:
                    raise
            else:
                wait = pause(delay, response.headers.get("retry-after"))
                if wait is None or not helps_to_retry(response.status_code):
                    return response
            self.sleep(wait)


def connect(
    kind: Any,
    service: Service,
    access: str | tuple[str, TokenCredential],
    counts: Counter[tuple[str, str]],
    context: ssl.SSLContext | None = None,
    proxy: str | None = None,
) -> Any:
    """A client of that kind, which gives up after two retries; raises ValueError.

    ``access`` is a connection string, or a URL and an identity. ``counts`` counts all requests by service
    and HTTP method. ``context`` and ``proxy`` are for https, as those of Connections.
    """
    session, timeouts = requests.Session(), StorageTimeouts()
    session.trust_env = False  # as the lean connection: no proxies of the environment and no netrc
    session.proxies = {"https": proxy} if proxy else {}
    session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=MAX_IDLE))
    session.mount("https://", _Adapter(context or default_context()))
    transport = _Transport(
        service,
        counts,
        session=session,
        session_owner=False,
        connection_timeout=timeouts.connect,
        read_timeout=timeouts.read,
    )
    options = {
        "transport": transport,
        "api_version": service.version,
        "retry_total": 0,
        **_OPTIONS.get(kind, {}),
    }
    if isinstance(access, str):
        return kind.from_connection_string(access, **options)
    url, credential = access
    return kind(url, credential=credential, **options)


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
