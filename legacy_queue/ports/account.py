"""A storage account: tables, queues and one container of blobs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from legacy_queue.ports.blob import BlobContainer
from legacy_queue.ports.queue import Queue, ShownMessages
from legacy_queue.ports.table import Table


class UnusableStorage(Exception):
    """A server cannot use the storage; the message is a sentence for a person, with a remedy."""


@dataclass(frozen=True)
class SigningEndpoint:
    """Where clients reach a service of the account, and the base64 key that verifies its signed URLs.

    ``is_own``: this server answers there.
    """

    url: str
    account: str
    key: str = field(repr=False)
    is_own: bool = False


class StorageAccount(Protocol):
    """``check`` creates tables and the container, ``Queue.create`` creates a queue."""

    container: BlobContainer
    public_queues: SigningEndpoint  # for workers
    public_blobs: SigningEndpoint
    endpoints: Mapping[str, str | None]  # the URLs of queue, table and blob that this server uses
    # differs once another process has written; None: only a poll shows that
    version: Callable[[], int] | None
    # None where storage does not show all messages, as Azure
    shown_messages: ShownMessages | None

    def table(self, name: str) -> Table:
        """The table of that name, letters and digits; the same object each time."""

    def queue(self, name: str) -> Queue:
        """The queue of that name. Sends nothing."""

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        """The queues whose names have the prefix, with their metadata, in the order of their names."""

    def check(self) -> None:
        """Return once all services answer, and the container and each table of ``table`` exist."""

    def warning(self) -> str:
        """A sentence if storage needs a look by a person, else ""."""
        return ""

    def empty(self) -> None:
        """Delete everything. After ``check`` it can be used again."""

    def close(self) -> None:
        """From now on every operation on rows, messages and written blobs raises ServiceUnavailable."""
