"""The SDK's clients, tuned, and its errors turned into ours. Source: "The SDK" in design/azurite.md."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
import structlog
from azure.core.exceptions import AzureError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.blob import ExponentialRetry as BlobRetry
from azure.storage.queue import ExponentialRetry, QueueServiceClient

from legacy_queue.adapters.azure.rest import NOT_NOW
from legacy_queue.domain.errors import ServiceUnavailable

log = structlog.get_logger()

MAX_CONNECTIONS = 128  # kept open to each service; as many calls as that run without a new connection

# another write of that blob came to its end first, and took our blocks away
_NOT_NOW = NOT_NOW | {"InvalidBlockList"}

_DOWNLOADED = 4 * 1024 * 1024  # bytes in one request

LOST_RACE = (404, 409, 412)  # of a conditional write, alone or in a batch: somebody else wrote first


class CountingTransport(RequestsTransport):  # type: ignore[misc]
    """Counts what goes over the wire, retries too: ``(service, HTTP method)`` -> requests.

    A storage that hangs is given up in time for the 503 to reach a client that waits for 30 s.
    """

    def __init__(self, service: str, counts: Counter[tuple[str, str]]) -> None:
        session = requests.Session()
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=MAX_CONNECTIONS)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        super().__init__(session=session, session_owner=False, connection_timeout=5, read_timeout=7)
        self._service, self._counts = service, counts

    def send(self, request: Any, **kwargs: Any) -> Any:
        """Count it, then send it."""
        self._counts[self._service, request.method] += 1
        return super().send(request, **kwargs)


def queue_service(connection_string: str, counts: Counter[tuple[str, str]]) -> QueueServiceClient:
    """A client that gives up after two retries, at once and after a second."""
    return QueueServiceClient.from_connection_string(
        connection_string,
        transport=CountingTransport("queue", counts),
        retry_policy=ExponentialRetry(
            initial_backoff=0, increment_base=1, retry_total=2, random_jitter_range=0
        ),
    )


def blob_service(connection_string: str, counts: Counter[tuple[str, str]]) -> BlobServiceClient:
    """A client that gives up as that for queues does, and reads a blob piece by piece."""
    return BlobServiceClient.from_connection_string(
        connection_string,
        transport=CountingTransport("blob", counts),
        retry_policy=BlobRetry(initial_backoff=0, increment_base=1, retry_total=2, random_jitter_range=0),
        max_single_get_size=_DOWNLOADED,
        max_chunk_get_size=_DOWNLOADED,
    )


def table_service(connection_string: str, counts: Counter[tuple[str, str]]) -> TableServiceClient:
    """A client that gives up after two retries within half a second."""
    return TableServiceClient.from_connection_string(
        connection_string,
        transport=CountingTransport("table", counts),
        retry_total=2,
        retry_backoff_factor=0.1,
    )


def error_code(error: HttpResponseError) -> str:
    """Azure's own name of the error, or an empty string."""
    code, response = getattr(error, "error_code", None), getattr(error, "response", None)
    if code is None and response is not None:  # the SDK does not read it where an entity is created
        code = response.headers.get("x-ms-error-code")
    return str(getattr(code, "value", code) or "")


@contextmanager
def unavailable_when_down() -> Iterator[None]:
    """Turn what means that storage cannot answer now into ServiceUnavailable; let Azure's answers through.

    A wrong key of ours is told in the log; a worker hears 503, since it is not the worker's fault.
    """
    try:
        yield
    except HttpResponseError as error:
        if (
            (error.status_code or 500) < 500
            and error.status_code != 429
            and error_code(error) not in _NOT_NOW
        ):
            raise
        log.error(
            "storage-refused",
            status=error.status_code,
            azure_code=error_code(error),
            error=type(error).__name__,
        )
        raise ServiceUnavailable("storage did not serve the request, try again") from error
    except AzureError as error:
        log.error("storage-unreachable", error=type(error).__name__)
        raise ServiceUnavailable("storage cannot be reached, try again") from error
