import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.local_processes.azurite import Azurite
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.blob import BlobContainer
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Table
from tests.memory_server import FakeClock


@dataclass(frozen=True)
class Backend:
    """A new account, and how its time passes."""

    account: StorageAccount
    other: StorageAccount  # the same account in another process
    wait: Callable[[float], None]  # waits until this many seconds have passed for the storage


def memory_backend(request: pytest.FixtureRequest) -> Backend:
    clock = FakeClock()
    account = EmbeddedAccount(None, clock, "http://127.0.0.1/azure", "t")
    request.addfinalizer(account.close)
    return Backend(account, account, lambda seconds: clock.advance(timedelta(seconds=seconds)))


def embedded_backend(request: pytest.FixtureRequest) -> Backend:
    file, clock = StorageFile(request.getfixturevalue("tmp_path")), FakeClock()
    file.prepare()
    account, other = (EmbeddedAccount(file, clock, "http://127.0.0.1/azure", "t") for _ in range(2))
    for opened in (account, other):
        request.addfinalizer(opened.close)
    return Backend(account, other, lambda seconds: clock.advance(timedelta(seconds=seconds)))


def azure_backend(request: pytest.FixtureRequest) -> Backend:
    azurite: Azurite = request.getfixturevalue("azurite")
    prefix = f"t{secrets.token_hex(4)}"
    account, other = (AzureAccount(azurite.connection_string, prefix) for _ in range(2))
    return Backend(account, other, lambda seconds: time.sleep(seconds + 0.05))


BACKENDS = {"memory": memory_backend, "embedded": embedded_backend, "azurite": azure_backend}
_MARKS = {"azurite": pytest.mark.processes}  # backends that need a service


@pytest.fixture(params=[pytest.param(name, marks=_MARKS.get(name, ())) for name in BACKENDS])
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param](request)


@pytest.fixture
def account(backend: Backend) -> StorageAccount:
    return backend.account


@pytest.fixture
def other(backend: Backend) -> StorageAccount:
    """The same account in another process."""
    return backend.other


@pytest.fixture
def wait(backend: Backend) -> Callable[[float], None]:
    """Let this many seconds pass for the storage. In memory, this takes no time."""
    return backend.wait


@pytest.fixture
def table_name() -> str:
    return f"t{secrets.token_hex(8)}"


@pytest.fixture
def table(account: StorageAccount, table_name: str) -> Table:
    """An empty table."""
    table = account.table(table_name)
    account.check()
    return table


@pytest.fixture
def queue(account: StorageAccount) -> Iterator[Queue]:
    """An empty queue."""
    queue = account.queue(f"q{secrets.token_hex(8)}")
    queue.create({})
    yield queue
    queue.remove()


@pytest.fixture
def container(account: StorageAccount) -> BlobContainer:
    """An empty container of blobs."""
    account.check()
    return account.container
