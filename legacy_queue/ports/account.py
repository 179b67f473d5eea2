"""A storage account: tables, queues and one container of blobs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from legacy_queue.ports.blob import BlobContainer
from legacy_queue.ports.queue import Queue, ShownMessages
from legacy_queue.ports.table import Table


class UnusableStorage(Exception):
    """The server cannot use the storage. The message tells a person why and what to do."""


@dataclass(frozen=True)
class SigningEndpoint:
    """Where clients reach a service of the account, and the base64 key that verifies its signed URLs.

    ``is_own`` is set if this server itself answers there.
    """

    url: str
    account: str
    key: str = field(repr=False)
    is_own: bool = False


class StorageAccount(Protocol):
    """A storage account. ``check`` creates its tables and its container, ``Queue.create`` creates a queue."""

    container: BlobContainer
    public_queues: SigningEndpoint  # for workers
    public_blobs: SigningEndpoint
    endpoints: Mapping[str, str | None]  # the URLs of queue, table and blob that this server uses
    # a number that changes when another process writes; None if the storage has no such number
    version: Callable[[], int] | None
    # None if the storage, like Azure, does not show all messages
    shown_messages: ShownMessages | None

    def table(self, name: str) -> Table:
        """Returns the table of that name (letters and digits), the same object each time."""

    def queue(self, name: str) -> Queue:
        """Returns the queue of that name, without any operation on the storage."""

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yields the queues whose names have the prefix, with their metadata, in the order of their names."""

    def check(self) -> None:
        """Return once all services answer, and the container and each table of ``table`` exist."""

    def warning(self) -> str:
        """Returns a sentence if a person should look at the storage, else ""."""
        return ""

    def empty(self) -> None:
        """Delete everything. Call ``check`` before you use the account again."""

    def close(self) -> None:
        """End the use of the account.

        After this, all operations on rows and messages, and all writes of blobs, raise ServiceUnavailable.
        """
