from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What is logged, for tests that ask: drawn for a person, a traceback takes longer than all else."""
    with capture_logs() as entries:
        yield entries
