"""A call of a store that fails at any of its operations leaves nothing half done, and may be repeated."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.adapters.embedded import EmbeddedAccount
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue, work_queues
from legacy_queue.domain.usage_key import Calls, UsageKey
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import BlobContainer
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Table
from legacy_queue.stores import JobLease, Storage
from legacy_queue.stores.blobs import BLOCK
from tests.memory_server import FakeClock
from tests.services.ports import Intercept, intercept_port

NOW = datetime(2030, 1, 2, 3, tzinfo=UTC)
NO_TIME, HOUR = timedelta(0), timedelta(hours=1)
WORK = WorkQueue("provisioner", "type", "high")
USED = {UsageKey("p", "w", "claimWork", str(n)): Calls(n, NOW, NOW) for n in range(3)}
IN_BLOCKS = [b"a" * BLOCK, b"b" * BLOCK, b"c"]


class InterceptedAccount(StorageAccount):
    """Another account, each operation of whose tables, queues and container goes through ``intercept``."""

    def __init__(self, account: StorageAccount, intercept: Intercept) -> None:
        self._account, self._intercept = account, intercept
        self.container = intercept_port(BlobContainer, account.container, intercept)
        self.public_queues, self.public_blobs = account.public_queues, account.public_blobs
        self.endpoints, self.version = account.endpoints, account.version

    def table(self, name: str) -> Table:
        return intercept_port(Table, self._account.table(name), self._intercept)

    def queue(self, name: str) -> Queue:
        return intercept_port(Queue, self._account.queue(name), self._intercept)

    def queues(self, prefix: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        queues: Iterator[tuple[str, Mapping[str, str]]] = self._intercept(
            "queues", lambda: self._account.queues(prefix)
        )
        return queues

    def empty(self) -> None:
        self._account.empty()

    def close(self) -> None:
        self._account.close()

    def check(self) -> None:
        self._intercept("check", self._account.check)


class Fault:
    """The operation ``number``, from 0, fails: before it is done, or after."""

    def __init__(self, number: int | None, *, is_done: bool) -> None:
        self._number, self._is_done = number, is_done
        self.count = 0

    def __call__(self, _name: str, call: Callable[[], Any]) -> Any:
        is_faulty = self.count == self._number
        self.count += 1
        if is_faulty and not self._is_done:
            raise ServiceUnavailable("storage is away, try again")
        result = call()
        if is_faulty:
            raise ServiceUnavailable("storage is away, try again")
        return result


def messages(storage: Storage) -> set[str]:
    """One of them may be there twice."""
    return {message.text for message in storage.work_queues.receive(WORK, 32, HOUR)}


def blob(storage: Storage) -> bytes:
    return b"".join(storage.blobs.read("name")) if storage.blobs.properties("name") else b""


def write_parts(storage: Storage) -> None:
    storage.blobs.write_part("name", 1, IN_BLOCKS)
    storage.blobs.write_part("name", 2, [b"d"])
    storage.blobs.join_parts("name", 2, "text/plain", None)


def take(storage: Storage) -> Any:
    """The lease, or until when it is taken: by the call that failed, too."""
    lease = storage.leases.acquire("sweeping", NOW + HOUR)
    return storage.leases.renew(lease, NOW + HOUR, "", None) if isinstance(lease, JobLease) else lease


def remove_unused(storage: Storage) -> None:
    storage.work_queues.signed_urls([WORK], NOW, NOW, HOUR)
    storage.work_queues.remove_expired(NOW + timedelta(days=12), "", 10)


# what is done, and what is to be seen of it: nothing, or all
ACTS: dict[str, tuple[Callable[[Storage], Any], Callable[[Storage], Any]]] = {
    "put a message": (lambda storage: storage.work_queues.put(WORK, "text", HOUR, NO_TIME), messages),
    "sign": (
        lambda storage: storage.work_queues.signed_urls(work_queues("p", "w"), NOW, NOW + HOUR, HOUR),
        lambda _: None,
    ),
    "remove queues": (remove_unused, lambda storage: storage.work_queues.count(WORK)),
    "write in blocks": (
        lambda storage: storage.blobs.write("name", IN_BLOCKS, "text/plain", None),
        blob,
    ),
    "join parts": (write_parts, blob),
    "count uses": (
        lambda storage: list(storage.usage.add(USED)),
        lambda storage: {use for use, _ in storage.usage.since(NOW, None, None)} <= {*USED},
    ),
    "take a lease": (take, lambda storage: storage.leases.acquire("sweeping", NOW + HOUR) == NOW + HOUR),
}


def stores(intercept: Intercept) -> Storage:
    clock = FakeClock(NOW)
    account = EmbeddedAccount(None, clock, "http://127.0.0.1:1/azure", "q")
    return Storage(InterceptedAccount(account, intercept), "q", clock)


@pytest.mark.parametrize("name", ACTS)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_call_that_failed_at_any_operation_can_be_repeated(name: str, is_done: bool) -> None:
    act, seen = ACTS[name]
    intact = Fault(None, is_done=False)
    storage = stores(intact)
    act(storage)
    operations, expected = intact.count, seen(storage)
    assert operations
    for number in range(operations):
        storage = stores(Fault(number, is_done=is_done))
        with pytest.raises(ServiceUnavailable):
            act(storage)
        act(storage)
        assert seen(storage) == expected, f"operation {number}"


@pytest.mark.parametrize("name", ["write in blocks", "join parts"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_failed_write_leaves_a_whole_blob_or_none(name: str, is_done: bool) -> None:
    act, seen = ACTS[name]
    intact = Fault(None, is_done=False)
    storage = stores(intact)
    act(storage)
    operations, whole = intact.count, seen(storage)
    for number in range(operations):
        storage = stores(Fault(number, is_done=is_done))
        with pytest.raises(ServiceUnavailable):
            act(storage)
        assert seen(storage) in (b"", whole), f"operation {number}"
