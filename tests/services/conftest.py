from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.services.harness import Harness, Logs


@pytest.fixture(autouse=True)
def logs() -> Iterator[Logs]:
    """The log entries. Without this, rendering tracebacks takes longer than the tests."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def harness() -> Harness:
    return Harness()
