"""A storage account: tables, queues and one container of blobs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from legacy_queue.ports.blob import BlobContainer
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Table

BlobPermission = Literal["r", "cw"]  # to read; to create and write


@dataclass(frozen=True)
class SigningEndpoint:
    """The URL at which clients reach a service of the account, and the base64 key that signs its URLs."""

    url: str
    account: str
    key: str = field(repr=False)

    @property
    def sas_protocol(self) -> str:
        """The protocols that signed URLs allow: plain HTTP only where the URL is plain HTTP."""
        return "https" if self.url.startswith("https:") else "https,http"


class StorageAccount(Protocol):
    """``check`` creates tables and the container, ``Queue.create`` creates a queue."""

    container: BlobContainer
    public_queues: SigningEndpoint  # for workers
    public_blobs: SigningEndpoint
    endpoints: Mapping[str, str | None]  # the URLs of queue, table and blob that this server uses
    version: (
        Callable[[], int] | None
    )  # differs once another process has written; None: only a poll shows that

    def table(self, name: str) -> Table:
        """The table of that name, letters and digits; the same object each time."""

    def queue(self, name: str) -> Queue:
        """The queue of that name. Sends nothing."""

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """The queues whose names have the prefix, with their metadata, in the order of their names."""

    def queue_sas(self, name: str, start: datetime, expiry: datetime) -> str:
        """A query that allows to receive and delete messages of the queue between the two times.

        It is for URLs at ``public_queues``.
        """

    def blob_sas(
        self,
        name: str,
        permission: BlobPermission,
        start: datetime,
        expiry: datetime,
        disposition: str | None = None,
    ) -> str:
        """A query that allows that with the blob of ``container`` between the two times.

        It is for URLs at ``public_blobs``. ``disposition`` is the Content-Disposition of the answers.
        """

    def check(self) -> None:
        """Return once all services answer, and the container and each table of ``table`` exist."""

    def empty(self) -> None:
        """Delete everything. After ``check`` it can be used again."""

    def close(self) -> None:
        """From now on every operation on rows, messages and written blobs raises ServiceUnavailable."""
