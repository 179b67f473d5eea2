"""What a process may open, and how many connections that is."""

from dataclasses import replace

import pytest

from legacy_queue.config import Settings
from legacy_queue.server.file_descriptors import max_connections

MEMORY = Settings(storage="memory")


@pytest.mark.parametrize(
    ("limit", "expected"), [(64, 32), (256, 192), (1024, 960), (4000, 3936), (1024 * 1024, 4000)]
)
def test_with_memory_storage_nearly_all_file_descriptors_serve_connections(limit: int, expected: int) -> None:
    assert max_connections(limit, MEMORY) == expected


def test_file_descriptors_are_reserved_for_storage_and_broker() -> None:
    azurite = replace(MEMORY, storage="azurite")
    with_broker = replace(azurite, amqp_url="amqp://127.0.0.1")
    assert max_connections(1024, azurite) == (1024 - 64 - 3 * 128 - 48) // 2
    assert max_connections(1024, with_broker) == (1024 - 64 - 3 * 128 - 48 - 16) // 2
    assert max_connections(1024 * 1024, with_broker) == 4000
