import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.ports import Clock
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, memory_server


@dataclass(frozen=True)
class Backend:
    """A new storage, and its time."""

    storage: Storage
    other: Storage  # the same, as another process sees it
    prefix: str  # of the names of its tables and queues
    clock: FakeClock  # of all its processes; Azure's queues have their own
    wait: Callable[[float], None]  # until so many seconds have passed for the storage


@contextmanager
def memory_backend(_request: pytest.FixtureRequest) -> Iterator[Backend]:
    clock = FakeClock()
    with memory_server(clock) as storage:
        other = Storage(storage.account, "q", clock)
        yield Backend(storage, other, "q", clock, lambda seconds: clock.advance(timedelta(seconds=seconds)))


@contextmanager
def azure_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    azurite: Azurite = request.getfixturevalue("azurite")
    clock = FakeClock()
    prefix = f"t{secrets.token_hex(4)}"
    storage, other = (azure_storage(azurite.connection_string, prefix, clock) for _ in range(2))
    storage.account.check()
    yield Backend(storage, other, prefix, clock, lambda seconds: time.sleep(seconds + 0.05))


def azure_storage(connection_string: str, prefix: str, clock: Clock) -> Storage:
    return Storage(AzureAccount(connection_string, prefix), prefix, clock)


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[Backend]]] = {
    "memory": memory_backend,
    "azure": azure_backend,
}


# for what the URLs of a storage allow; tests/contracts shows that all storages keep the rest of the promises
ON_EACH_STORAGE = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


@pytest.fixture(params=["memory"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with BACKENDS[request.param](request) as ready:
        yield ready


@pytest.fixture
def storage(backend: Backend) -> Storage:
    return backend.storage


@pytest.fixture
def other(backend: Backend) -> Storage:
    """The same storage as another process sees it, with its own caches."""
    return backend.other


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue("provisioner", "worker-Type_1", "high")
