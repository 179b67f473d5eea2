from collections.abc import Iterator

import pytest

from tests.cli.command_runner import Asking, ServedQueue, served


@pytest.fixture
def queue() -> Iterator[ServedQueue]:
    with served() as queue:
        yield queue


@pytest.fixture
def ask(queue: ServedQueue) -> Asking:
    """Runs ``legacy-queue`` with these words."""
    return queue.command
