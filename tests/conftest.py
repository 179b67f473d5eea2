import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from legacy_queue.local_processes.azurite import Azurite
from tests import answer_shapes, process_guard
from tests.rabbitmq import RabbitMQ

pytest_plugins = ["tests.folder_times"]

# Fixtures that start a real Azurite or RabbitMQ.
SERVICES = {"azurite", "rabbitmq", "tls_rabbitmq"}

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    # Some CI systems ignore these signals, and so do background jobs of a script. Processes of the tests
    # would inherit that, but they do not inherit a handler.
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda _number, _frame: None)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent / "child_processes"), os.environ.get("PYTHONPATH")])
)
process_guard.start(os.environ)
answer_shapes.watch()

# even if this shell forbids it, because otherwise each process of a test compiles everything that it imports
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# this run has read the variable, and a pytest that a test starts may not know its options
os.environ.pop("PYTEST_ADDOPTS", None)

# A slow machine is not a failure. CI tries the same examples every time, your own runs try new ones each
# time.
settings.register_profile(
    "here", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("here")

# the processes of the tests find the programs that scripts/install installed
_AZURITE = Path(__file__).parents[1] / "azurite/node_modules/.bin"
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), str(_AZURITE), os.environ["PATH"]])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need one of the services are not in the quick tier."""
    for item in items:
        if SERVICES & set(getattr(item, "fixturenames", ())):
            item.add_marker("processes")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Single files run in pytest's own process, which starts immediately. Folders run in two processes."""
    files = [word for word in config.args if word.partition("::")[0].endswith(".py")]
    return 0 if files == config.args else 2


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process even if a thread never ends."""
    # with mutmut, forks would wait for this thread, which they do not have
    if "MUTANT_UNDER_TEST" in os.environ:
        return
    limit = config.getoption("timeout") or float(config.getini("timeout"))
    faulthandler.dump_traceback_later(limit, exit=True)


@pytest.fixture(autouse=True)
def _shapes() -> Iterator[None]:
    """Fails a test in which an answer or event had the wrong shape."""
    yield
    if faults := answer_shapes.faults():
        pytest.fail(faults, pytrace=False)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A real Azurite for the whole run. Each test uses its own names for queues, tables and keys."""
    with Azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A real RabbitMQ for the whole run. Each test uses its own project."""
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running
