import faulthandler
import importlib
import os
import pkgutil
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import legacy_queue.domain
import legacy_queue.services
import legacy_queue.stores
from legacy_queue.local_processes.azurite import Azurite
from tests import guard, shapes
from tests.parsers import PARSERS
from tests.rabbitmq import RabbitMQ

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    # Some CI, and a script in the background, ignore them; a process inherits that, but not a handler.
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda _number, _frame: None)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent / "children"), os.environ.get("PYTHONPATH")])
)
guard.start(os.environ)
shapes.watch()

# even if this shell forbids it: otherwise each process of a test compiles all that it imports
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A slow machine is no failure; CI tries the same examples every time, a developer's run always new ones.
settings.register_profile(
    "here", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("here")

# Folders whose tests alone take every branch of domain and services.
MEASURED = [Path(__file__).parent / name for name in ("domain", "http", "services", "stores")]

# Files, and folders of files, that take longest.
LONG = (
    "simulation",
    "containers",
    "docs/test_pages.py",
    "conform",
    "system",
    "services/test_life_machine.py",
    "local_processes",
    "cli/test_up.py",
    "adapters/test_amqp.py",
    "browser",
    "examples",
    "docs",
    "testing",
)

# where scripts/install installs programs, for the processes of the tests too
_AZURITE = Path(__file__).parents[1] / "azurite/node_modules/.bin"
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), str(_AZURITE), os.environ["PATH"]])

RABBITMQ_HOME = Path(__file__).parents[1] / ".rabbitmq"


def pytest_report_header() -> str:
    without = "" if "fast" in PARSERS else "; gunicorn_h1c is not installed: scripts/install compiles it"
    return f"parsers of HTTP: {', '.join(PARSERS)}{without}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long files first: of several processes, none is left waiting for the last file of another."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, places.get(item.path.parent, len(LONG))))


def pytest_unconfigure(config: pytest.Config) -> None:
    """A thread that never ends cannot hold the process for longer than a test."""
    limit = config.getoption("timeout") or float(config.getini("timeout"))
    faulthandler.dump_traceback_later(limit, exit=True)


@pytest.fixture(autouse=True)
def _shapes() -> Iterator[None]:
    """No answer and no event of the test had another shape than its generation's."""
    yield
    if faults := shapes.faults():
        pytest.fail(faults, pytrace=False)


@contextmanager
def untraced() -> Iterator[None]:
    """Nothing that runs in the context counts towards coverage, which would take processor time."""
    tracer, tracer_of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        if sys.gettrace() is None:  # pytest-cov may have started another tracer meanwhile
            sys.settrace(tracer)
            threading.settrace(tracer_of_threads)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import what is measured, which is traced, and then all else."""
    for package in (legacy_queue.domain, legacy_queue.services, legacy_queue.stores):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    with untraced():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Trace only tests of MEASURED folders, and of these no test that is marked no_cover.

    pytest-cov leaves out marked tests too, but not in a worker of pytest-xdist.
    """
    is_measured = any(item.path.is_relative_to(folder) for folder in MEASURED)
    if is_measured and not item.get_closest_marker("no_cover"):
        return (yield)
    with untraced():
        return (yield)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """One real Azurite for the whole run; each test uses its own names of queues, tables and keys."""
    with Azurite(tmp_path_factory.mktemp("azurite")) as running:
        yield running


@pytest.fixture(scope="session")
def rabbitmq_home() -> Path:
    """Where scripts/up puts RabbitMQ if the machine has none. For tests that stop and start a broker."""
    return RABBITMQ_HOME


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory, rabbitmq_home: Path) -> Iterator[RabbitMQ]:
    """One real RabbitMQ for the whole run; each test uses its own project."""
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), rabbitmq_home) as running:
        yield running
