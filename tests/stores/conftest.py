import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.stores import Storage
from tests.memory_server import FakeClock, memory_server, memory_storage


@dataclass(frozen=True)
class Backend:
    """A new storage and its clock."""

    storage: Storage
    prefix: str  # its tables' and queues' names begin with this
    clock: FakeClock  # the clock of all processes; Azure's queues have one of their own


@pytest.fixture
def backend() -> Backend:
    """A storage in memory. tests/contracts shows that all storages keep the same promises."""
    clock = FakeClock()
    return Backend(memory_storage(clock), "q", clock)


@pytest.fixture(params=["memory", pytest.param("azure", marks=pytest.mark.processes)])
def served(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each storage in turn, because each answers its signed URLs itself."""
    clock = FakeClock()
    if request.param == "memory":
        with memory_server(clock) as storage:
            yield Backend(storage, "q", clock)
        return
    azurite: Azurite = request.getfixturevalue("azurite")
    prefix = f"t{secrets.token_hex(4)}"
    storage = Storage(AzureAccount(azurite.connection_string, prefix), prefix, clock)
    storage.account.check()
    yield Backend(storage, prefix, clock)


@pytest.fixture
def storage(backend: Backend) -> Storage:
    return backend.storage


@pytest.fixture
def other(backend: Backend) -> Storage:
    """The same storage as another process sees it, with its own caches."""
    return Storage(backend.storage.account, backend.prefix, backend.clock)


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue("provisioner", "worker-Type_1", "high")
