"""The fixtures ``legacy_queue`` and ``legacy_queue_server``, and a section in the report of a failed test.

Wherever this package is installed, pytest imports this module in every test run. So it imports only pytest.
The fixtures import the rest when they are first used.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from typing import Any

    from legacy_queue.testing import LegacyQueue

    Servers = Callable[[Mapping[str, Any]], LegacyQueue]

__tracebackhide__ = True  # so that a traceback ends at the test's own call

_SECTION = "legacy-queue"
_MARKER = "legacy_queue(storage=..., **settings): the settings of the test's server"
_USED = pytest.StashKey["LegacyQueue"]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def _legacy_queue_servers() -> Iterator[Servers]:
    """A function that returns the server with these settings. It starts the server at its first use."""
    from contextlib import ExitStack

    from legacy_queue.testing import LegacyQueue, ServerFailed

    running: dict[str, LegacyQueue] = {}
    with ExitStack() as stack:

        def server(settings: Mapping[str, Any]) -> LegacyQueue:
            name = repr(sorted(settings.items()))
            if name not in running:
                try:
                    running[name] = stack.enter_context(LegacyQueue(**settings))
                except ServerFailed as failed:  # mostly a wrong setting: a traceback would not help
                    pytest.fail(str(failed), pytrace=False)
            return running[name]

        yield server


def clean(queue: LegacyQueue) -> None:
    """Empty the queue. If its server has ended, the same object gets a new server, because the fixture
    ``legacy_queue_server`` may have handed the object out. Raises ServerFailed.
    """
    from legacy_queue.testing import ServerFailed

    try:
        queue.reset()
    except ServerFailed as failed:
        queue.__exit__(type(failed), failed, None)
        queue.__enter__()


@pytest.fixture(scope="session")
def legacy_queue_server(_legacy_queue_servers: Servers) -> LegacyQueue:
    """A queue with the default settings, which all tests of this process share.

    The fixture ``legacy_queue`` empties it for each test, unless the test is marked with settings.
    """
    return _legacy_queue_servers({})


@pytest.fixture
def legacy_queue(request: pytest.FixtureRequest, _legacy_queue_servers: Servers) -> Iterator[LegacyQueue]:
    """An empty queue in memory, with the settings of the marker ``legacy_queue``."""
    queue = _legacy_queue_servers(_settings(request.node))
    clean(queue)
    request.node.stash[_USED] = queue
    yield queue
    queue.check_faults()


def _settings(item: pytest.Item) -> dict[str, Any]:
    """The settings from the markers of the module, the class and the test. The nearest marker wins."""
    settings: dict[str, Any] = {}
    for marker in item.iter_markers("legacy_queue"):
        if marker.args:
            raise pytest.UsageError(
                f"pytest.mark.legacy_queue: expected settings as keywords, such as storage={marker.args[0]!r}"
            )
        settings = {**marker.kwargs, **settings}
    return settings


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add to the report of a failed test the summary of each queue that the test has used."""
    report = (yield).get_result()
    if report.failed:
        for number, queue in enumerate(_used(item)):
            report.sections.append((_SECTION, queue.summary() + _pictures(item, queue, number)))


def _pictures(item: pytest.Item, queue: LegacyQueue, number: int) -> str:
    """A line that names a file in pytest's cache with a picture of each task; "" if it cannot be written.

    Each test has its own file, so that the processes of pytest-xdist do not overwrite each other's.
    """
    try:
        name = re.sub(r"[^\w.-]+", "-", item.nodeid)[-200:]
        file = item.config.cache.mkdir("legacy-queue") / f"{name}-{number}.html"
        file.write_text(queue.life_page(), encoding="utf-8")
    except Exception:  # noqa: BLE001 - there is no cache, no right to write, or no server any more
        return ""
    return f"\nthe tasks as pictures: {file}"


def _used(item: pytest.Item) -> list[LegacyQueue]:
    """The queues that a test has used: the values of its fixtures, and the attributes of its class."""
    testing = sys.modules.get("legacy_queue.testing")
    if testing is None:
        return []
    owners = (getattr(item, name, None) for name in ("cls", "instance"))
    attributes = (value for owner in owners for value in getattr(owner, "__dict__", {}).values())
    values = [item.stash.get(_USED, None), *getattr(item, "funcargs", {}).values(), *attributes]
    return list({id(value): value for value in values if isinstance(value, testing.LegacyQueue)}.values())
