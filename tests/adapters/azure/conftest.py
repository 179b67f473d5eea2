import ssl
from datetime import UTC, datetime

import pytest

from legacy_queue.server.local_authority import LocalAuthority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LocalAuthority:
    authority = LocalAuthority(tmp_path_factory.mktemp("authority"))
    authority.ensure(datetime.now(UTC))
    return authority


@pytest.fixture(scope="session")
def client_context(authority: LocalAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


@pytest.fixture(scope="session")
def server_context(authority: LocalAuthority) -> ssl.SSLContext:
    """The TLS context of a storage with this authority's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server)
    return context
