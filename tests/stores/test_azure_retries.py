"""What is sent again to a storage that read a request and did not answer: it may have done what it should."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.adapters.azurite import Azurite
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.stores import Storage
from tests.memory_server import HandClock

from .conftest import azure_storage

WORK = WorkQueue("p", "w", "lowest")
MINUTE = timedelta(minutes=1)


class Silent:
    """A storage that reads each request and hangs up."""

    def __init__(self) -> None:
        self.heard: list[str] = []  # the methods of the requests
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/devstoreaccount1"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    self.heard.append(connection.recv(65536).decode().partition(" ")[0])


@pytest.fixture
def silent() -> Iterator[Silent]:
    one = Silent()
    yield one
    one.close()


@pytest.fixture
def storage(azurite: Azurite, silent: Silent) -> Storage:
    words = azurite.connection_string.split(";")[:3]
    endpoints = [f"{service}Endpoint={silent.url}" for service in ("Blob", "Queue", "Table")]
    return azure_storage(";".join([*words, *endpoints, ""]), "silent", HandClock())


@pytest.mark.parametrize(
    "receive",
    [
        lambda storage: storage.own_queues.receive("events", 32, MINUTE),
        lambda storage: storage.work_queues.receive(WORK, 32, MINUTE),
    ],
    ids=["own queues", "work queues"],
)
def test_a_receive_is_sent_once_because_another_would_hide_what_nobody_has(
    storage: Storage, silent: Silent, receive: Callable[[Storage], Any]
) -> None:
    with pytest.raises(ServiceUnavailable):
        receive(storage)
    assert silent.heard == ["GET"]


def test_a_put_is_sent_again(storage: Storage, silent: Silent) -> None:
    with pytest.raises(ServiceUnavailable):
        storage.own_queues.put("events", "text", timedelta(0))
    assert silent.heard == ["POST"] * 3
