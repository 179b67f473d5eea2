import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from tests.memory_server import FakeClock


def opened(file: StorageFile | None, clock: FakeClock | None = None) -> EmbeddedAccount:
    """An account in this file, which is created if it is missing. Without a file, an account in memory."""
    if file:
        file.prepare()
    return EmbeddedAccount(file, clock or FakeClock(), "http://127.0.0.1:1", "q")


def content(account: EmbeddedAccount, name: str) -> bytes:
    found = account.container.read(name)
    assert found
    return b"".join(found[1])


@contextmanager
def disk_full_after(size: int) -> Iterator[None]:
    """The disk refuses to write beyond the first ``size`` bytes of any file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def file(tmp_path: Path) -> StorageFile:
    return StorageFile(tmp_path)


@pytest.fixture
def account(file: StorageFile, clock: FakeClock) -> Iterator[EmbeddedAccount]:
    account = opened(file, clock)
    yield account
    account.close()
