from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.services.harness import Harness, Logs


@pytest.fixture(autouse=True)
def logs() -> Iterator[Logs]:
    """Captures the log entries.

    If they were printed, rendering tracebacks would take longer than the tests.
    """
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def harness() -> Harness:
    return Harness()
