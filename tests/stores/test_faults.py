"""A write of a blob that fails at any of its operations leaves a whole blob or none, and may be repeated."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.blob import BlobContainer
from legacy_queue.stores import Blobs
from legacy_queue.stores.blobs import BLOCK
from tests.memory_server import FakeClock, memory_storage
from tests.services.ports import intercept_port

NOW = datetime(2030, 1, 2, 3, tzinfo=UTC)
IN_BLOCKS = [b"a" * BLOCK, b"b" * BLOCK, b"c"]


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


def written(blobs: Blobs) -> bytes:
    return b"".join(blobs.read("name")) if blobs.properties("name") else b""


def write_parts(blobs: Blobs) -> None:
    blobs.write_part("name", 1, IN_BLOCKS)
    blobs.write_part("name", 2, [b"d"])
    blobs.join_parts("name", 2, "text/plain", None)


@pytest.mark.parametrize(
    "write", [lambda blobs: blobs.write("name", IN_BLOCKS, "text/plain", None), write_parts]
)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_failed_write_leaves_a_whole_blob_or_none_and_can_be_repeated(
    write: Callable[[Blobs], Any], is_done: bool
) -> None:
    def blobs(fault: Fault) -> Blobs:
        clock = FakeClock(NOW)
        container = memory_storage(clock).account.container
        return Blobs(intercept_port(BlobContainer, container, fault), clock)

    intact = Fault(None, is_done=False)
    store = blobs(intact)
    write(store)
    operations = intact.count
    whole = written(store)
    for number in range(operations):
        store = blobs(Fault(number, is_done=is_done))
        with pytest.raises(ServiceUnavailable):
            write(store)
        assert written(store) in (b"", whole), f"operation {number}"
        write(store)
        assert written(store) == whole, f"operation {number}"
