"""The threads of a server process: they do their work until they are stopped."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import Flag
from legacy_queue.services.composition import Services
from legacy_queue.services.recovery.background import Background
from legacy_queue.services.recovery.jobs import Pace
from tests.services.harness import ALICE, CLAIM_TIMEOUT, MINUTE, SECOND, FaultAt, Harness, failing, task_body
from tests.system.processes import wait_until

OFTEN = Pace(*[SECOND / 100] * 4)
MAX_WAIT = 30  # seconds, after which a test that waits fails


@contextmanager
def running(server: Services) -> Iterator[Background]:
    background = server.background(OFTEN)
    background.start()
    try:
        yield background
    finally:
        background.stop()


def claimed_by(server: Services, harness: Harness, **changes: Any) -> str:
    task_id = slugid()
    server.tasks.create(task_id, task_body(harness.clock.now(), **changes))
    message = next(message for message in harness.receive() if message.task_id == task_id)
    harness.claim(message, ALICE, server)
    return task_id


class CallCounter:
    """Intercepts calls: ``happened`` is set after ``count`` calls of that name, which may fail."""

    def __init__(self, name: str, count: int = 1, error: Exception | None = None) -> None:
        self._name, self._left, self._error = name, count, error
        self.happened = threading.Event()

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if name != self._name or self.happened.is_set():
            return call()
        self._left -= 1
        try:
            if self._error:
                raise self._error
            return call()
        finally:
            if self._left <= 0:
                self.happened.set()

    def wait(self) -> None:
        assert self.happened.wait(MAX_WAIT)


def test_the_threads_publish_unpublished_events_when_the_broker_is_back(harness: Harness) -> None:
    server = harness.replica(resolves=False)
    harness.broker.capacity = 0

    def later() -> list[Event]:
        harness.clock.advance(SECOND)  # then it is retried
        return harness.broker.published[1:]

    with running(server):
        server.tasks.create(slugid(), task_body())
        harness.broker.capacity = None
        wait_until(later)
    assert [event.exchange for event in harness.broker.published] == ["task-defined", "task-pending"]


def test_the_broker_is_asked_before_the_process_is_ready() -> None:
    asked = CallCounter("broker.check")
    background = Harness().replica(asked).background(Pace(check=MINUTE))
    background.start()
    assert asked.happened.is_set()
    background.stop()


def test_the_calls_of_workers_are_written_by_a_thread_and_at_the_end(harness: Harness) -> None:
    written = CallCounter("worker.insert", 3)
    server = harness.replica(written)
    with running(server):
        server.workers.record_activity(("scheduler", "b2", "g", "first"))
        written.wait()
    background = server.background(Pace())
    server.workers.record_activity(("scheduler", "b2", "g", "last"))
    background.stop()
    for name in ("first", "last"):
        assert harness.replica().workers.load(("scheduler", "b2", "g", name))


@pytest.mark.parametrize(
    ("error", "event", "level"),
    [
        (ServiceUnavailable("storage is away"), "background-delayed", "warning"),
        (ValueError("a defect"), "background-failed", "error"),
    ],
    ids=["away", "a defect"],
)
def test_a_failure_is_logged_and_the_thread_goes_on(
    harness: Harness, error: Exception, event: str, level: str, logs: list[MutableMapping[str, Any]]
) -> None:
    fails, again = CallCounter("timer.due", 2, error), CallCounter("timer.due", 3)
    with running(harness.replica(lambda name, call: again(name, lambda: fails(name, call)))):
        again.wait()
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [(event, level)] * 2


def test_a_thread_that_ends_by_a_defect_is_logged_and_begins_again(
    logs: list[MutableMapping[str, Any]],
) -> None:
    class Defective(SystemWaiter):
        def __init__(self) -> None:
            self.left = iter(range(5))

        def wait(self, flag: Flag, seconds: float) -> bool:
            if seconds < 1 and next(self.left, None) is not None:
                raise ValueError("a defect")
            return super().wait(flag, min(seconds, 0.01))

    harness = Harness()
    task_id = harness.claimed()  # by a dead process
    with running(harness.replica(waiter=Defective())):
        harness.clock.advance(CLAIM_TIMEOUT + MINUTE)
        wait_until(lambda: len(harness.task(task_id).runs) == 2)
    assert "background-restarted" in [entry["event"] for entry in logs]


def test_a_process_stops_while_storage_is_away_and_its_timers_fire_later(
    harness: Harness,
    logs: list[MutableMapping[str, Any]],
) -> None:
    """Its timer fires later, and publishes the events again."""
    server = harness.replica(
        FaultAt(1, of="timer.put", before=failing(ServiceUnavailable("storage is away")))
    )
    background = server.background(OFTEN)
    task_id = claimed_by(server, harness)
    background.stop()
    assert [entry["event"] for entry in logs] == ["background-delayed"]
    harness.run_timers(MINUTE)
    assert harness.events().count(("task-running", task_id, 0)) == 2


STOPPED_WHILE_STARTING = """
from gevent import monkey

monkey.patch_all()
import gevent
from tests.services.harness import Harness

background = Harness().replica().background()
starting = gevent.spawn(background.start)
gevent.sleep(0)  # it waits for the first of its threads
background.stop()
starting.join()
"""


@pytest.mark.processes
def test_a_background_can_be_stopped_while_its_threads_start() -> None:
    """As in ``serve``, with the threads of gevent."""
    subprocess.run([sys.executable, "-c", STOPPED_WHILE_STARTING], check=True, timeout=MAX_WAIT)
