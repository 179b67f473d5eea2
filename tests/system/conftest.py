import json
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import cycle

import pytest

from .http_queue import Queue
from .processes import RUNNING, Server, serve
from .real_clients import CLIENTS, TODAY, RealClient, real_client

TOKEN = "an-access-token-for-the-tests-of-servers"

# each client once and each storage once, but not every combination
EACH_CLIENT = pytest.mark.parametrize(
    ("server", "client"), list(zip(cycle(("azurite", "embedded")), CLIENTS, strict=False)), indirect=True
)
EACH_NEWEST_CLIENT = pytest.mark.parametrize(
    ("server", "client"), list(zip(("azurite", "embedded"), TODAY, strict=True)), indirect=True
)

Running = Callable[[str], Server]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """If a test fails, its report shows the end of the log of each running process."""
    report = yield
    if report.failed:
        for running in RUNNING:
            report.sections.append((f"log of {running.process.args!r}", running.errors[-4000:]))
    return report


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The servers that the tests share. Each is started when it is first used, and each test has its own
    pool.

    All servers on Azurite share the session's Azurite. Each has its own prefix there.
    """
    with ExitStack() as stack:

        @cache
        def get(storage: str) -> Server:
            settings = {"STORAGE": storage}
            if storage == "azurite":
                settings = {
                    "STORAGE": "azure",
                    "CONNECTION_STRING": request.getfixturevalue("azurite").connection_string,
                    "QUEUE_PREFIX": f"t{secrets.token_hex(4)}",
                    "SIGNING_SECRETS": "a-signing-secret-for-the-tests-of-servers",
                    "CLIENTS": json.dumps({"root": {"accessToken": TOKEN, "scopes": ["*"]}}),
                }
            env = {f"LEGACY_QUEUE_{name}": value for name, value in settings.items()}
            server = stack.enter_context(serve(tmp_path_factory.mktemp("server"), env=env))
            server.line.setdefault("credentials", {"clientId": "root", "accessToken": TOKEN})
            return server

        yield get


@pytest.fixture(params=["embedded"])
def server(request: pytest.FixtureRequest, running: Running) -> Server:
    """A server. Its claims last longer than any test."""
    return running(request.param)


@pytest.fixture
def queue(server: Server) -> Queue:
    return Queue(server)


@pytest.fixture(scope="session")
def clients() -> Iterator[Callable[[str, Server], RealClient]]:
    """The real clients that the tests share, one for each name and server."""
    with ExitStack() as stack:
        yield cache(lambda name, server: stack.enter_context(real_client(name, server)))


@pytest.fixture(params=CLIENTS)
def client(
    request: pytest.FixtureRequest, server: Server, clients: Callable[[str, Server], RealClient]
) -> RealClient:
    """Each real client of 2015 to 2018 in turn. With EACH_NEWEST_CLIENT, each client of today."""
    return clients(request.param, server)


@pytest.fixture
def worker_type(request: pytest.FixtureRequest) -> str:
    """The worker type of a pool that no other test uses."""
    return f"w{abs(hash(request.node.nodeid)):x}"[:22]
