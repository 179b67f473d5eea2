"""Clients of the SDK, for infrequent operations, and its errors as those of the ports.

Source: docs/explanation/azurite.md#the-sdk.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, Self, TypeVar

import structlog
from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.transport import HttpTransport
from azure.core.rest._http_response_impl import HttpResponseImpl
from azure.core.utils import case_insensitive_dict
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.queue import QueueServiceClient

from legacy_queue.adapters.azure.connection import Response
from legacy_queue.adapters.azure.rest import Sender, StorageRefused, refusal
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

Asked = ParamSpec("Asked")
Found = TypeVar("Found")

_OWN = ("host", "content-length")
_DOWNLOADED = 1024 * 1024  # bytes in one request: as much waits in memory for a slow client
CLIENTS: Sequence[Any] = (QueueServiceClient, TableServiceClient, BlobServiceClient)
_OPTIONS: Mapping[type, Mapping[str, Any]] = {
    BlobServiceClient: {"max_single_get_size": _DOWNLOADED, "max_chunk_get_size": _DOWNLOADED},
}


class _Body:
    """The body of an answer as the SDK reads it, which also sets attributes of this."""

    def __init__(self, response: HttpResponseImpl) -> None:
        self.response = response
        self.content_length = len(response.content)
        self._parts = iter([response.content])

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return next(self._parts)


class _Response(HttpResponseImpl):
    """An answer whose body has been read."""

    def __init__(self, request: Any, response: Response) -> None:
        super().__init__(
            request=request,
            internal_response=response,
            status_code=response.status,
            reason="",
            content_type=response.headers.get("content-type"),
            headers=case_insensitive_dict(response.headers),
            stream_download_generator=None,
        )
        self._content = response.body
        self._is_closed = True
        self._is_stream_consumed = True

    def stream_download(self, _pipeline: Any, **_options: Any) -> _Body:
        return _Body(self)


class _Transport(HttpTransport[Any, Any]):
    """Sends the SDK's requests on the connections of all others.

    The SDK's own policies do not wait for Retry-After, or wait for as long as it says.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    def send(self, request: Any, **_options: Any) -> Any:
        url = request.url
        target = url[url.index("/", len("https://")) :]
        body = request.data if hasattr(request, "data") else request.content
        body = body.encode() if isinstance(body, str) else body
        # those are Connections'
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
        return _Response(request, self._sender.send(request.method, target, lambda: headers, body))

    def open(self) -> None:
        """Connections are opened when they are needed."""

    def close(self) -> None:
        """Closed with the account."""

    def __exit__(self, *_error: object) -> None:
        self.close()


def endpoints(connection_string: str) -> list[str]:
    """The URLs of queues, tables and blobs; raises ValueError."""
    return [str(kind.from_connection_string(connection_string).url) for kind in CLIENTS]


def sdk_client(kind: Any, sender: Sender, access: str | tuple[str, TokenCredential]) -> Any:
    """A client of that kind; raises ValueError.

    ``access`` is a connection string, or a URL and an identity.
    """
    options = {
        "transport": _Transport(sender),
        "api_version": sender.service.version,
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
