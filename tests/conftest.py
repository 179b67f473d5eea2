import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from legacy_queue.adapters.azurite import Azurite

# A slow machine is no failure; CI tries the same examples every time, a developer's run always new ones.
settings.register_profile(
    "here", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("here")

AZURITE_DIR = Path(__file__).parents[1] / "azurite"


@pytest.fixture(scope="session")
def azurite_dir() -> Path:
    """Where scripts/test has installed Azurite; where it has not, the tests that need it fail."""
    return AZURITE_DIR


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory, azurite_dir: Path) -> Iterator[Azurite]:
    """One real Azurite for the whole run; a test keeps to queue, table and key names of its own."""
    with Azurite(tmp_path_factory.mktemp("azurite"), azurite_dir) as running:
        yield running
