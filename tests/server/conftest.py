import pytest

from tests.server.serving import Tls, contexts


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return contexts(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["http", "https"])
def either(request: pytest.FixtureRequest) -> Tls | None:
    """Without and with TLS, for what the two do by different code."""
    found: Tls | None = request.getfixturevalue("tls") if request.param == "https" else None
    return found
