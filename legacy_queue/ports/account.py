"""A storage account: tables, queues and one container of blobs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from legacy_queue.ports.blob import BlobContainer
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Table


@dataclass(frozen=True)
class SigningEndpoint:
    """Where clients reach a service of the account, and the base64 key that signs its URLs."""

    url: str
    account: str
    key: str = field(repr=False)

    @property
    def sas_protocol(self) -> str:
        """Of signed URLs: plain HTTP is allowed where clients are told a URL of plain HTTP only."""
        return "https" if self.url.startswith("https:") else "https,http"


class StorageAccount(Protocol):
    """Tables and the container come into being by ``check``, queues by ``Queue.create``."""

    container: BlobContainer
    public_queues: SigningEndpoint  # as workers are told
    public_blobs: SigningEndpoint
    endpoints: Mapping[str, str | None]  # URLs of queue, table and blob that this server itself uses

    def table(self, name: str) -> Table:
        """The table of that name, letters and digits; the same object each time."""

    def queue(self, name: str) -> Queue:
        """The queue of that name. Nothing is sent."""

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Names that begin so, and their metadata, in the order of the names."""

    def check(self) -> None:
        """Return when queues, tables and blobs answer, and the container is there and each table that
        ``table`` was asked for.
        """
