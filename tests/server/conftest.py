import pytest

from tests.server.serving import Tls, contexts


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return contexts(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["http", "https"])
def with_and_without_tls(request: pytest.FixtureRequest) -> Tls | None:
    """Once without and once with TLS, for behavior that has separate code in each case."""
    found: Tls | None = request.getfixturevalue("tls") if request.param == "https" else None
    return found
