"""The threads of a server process, and the periodic jobs, which one of the processes does."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.call_statistics import CallingClient
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import WorkerPath
from legacy_queue.ports import BrokerAway, Flag
from legacy_queue.services.background_gate import BackgroundGate
from legacy_queue.services.process.background import Background
from legacy_queue.services.process.liveness import DEAD_AFTER, READ_EVERY
from legacy_queue.services.process.processes import Processes
from legacy_queue.services.recovery.job_definitions import PAGE, Intervals, PeriodicJob
from legacy_queue.services.recovery.periodic_jobs import PeriodicJobs
from legacy_queue.services.services import Services
from tests.domain.sample_tasks import CLAIM_TIMEOUT, DAY, HOUR, MINUTE, NOW, SECOND, task_body
from tests.memory_server import FakeClock
from tests.services.fake_ports import CallRecorder, FaultAt
from tests.services.harness import (
    PROVISIONER,
    QUEUE,
    WORKER_TYPE,
    FakeEvent,
    Harness,
    Logs,
)
from tests.system.processes import wait_until

OFTEN = Intervals(*[SECOND / 100] * 4)
MAX_WAIT = 30  # seconds; a test that waits longer fails


@contextmanager
def running(server: Services, intervals: Intervals = OFTEN) -> Iterator[Background]:
    background = server.background(intervals)
    background.start()
    try:
        yield background
    finally:
        background.stop()


def test_unpublished_events_are_published_when_the_broker_is_back(harness: Harness) -> None:
    server = harness.replica()
    harness.broker.capacity = 0

    def later() -> list[Event]:
        harness.clock.advance(SECOND)  # by then, publishing is retried
        return harness.broker.published[1:]

    with running(server):
        server.tasks.create(slugid(), task_body())
        harness.broker.capacity = None
        wait_until(later)
    assert [event.exchange for event in harness.broker.published] == ["task-defined", "task-pending"]


def test_a_process_ends_its_own_expired_claims_without_searching_the_table(harness: Harness) -> None:
    harness.services = harness.replica()
    with running(harness.services, replace(OFTEN, read=HOUR)):
        task_id = harness.claimed()
        harness.clock.advance(CLAIM_TIMEOUT)
        wait_until(lambda: harness.states(task_id) == ["exception claim-expired", "pending"])


def test_the_process_is_ready_only_after_it_has_connected_to_the_broker(harness: Harness) -> None:
    """Consumers bind their queues when the server is ready. By then, the exchanges must be declared."""
    calls = CallRecorder()
    background = harness.replica(calls).background(Intervals(check=HOUR))
    background.start()
    assert "broker.check" in calls.names
    background.stop()


def test_the_calls_of_workers_are_written_by_a_thread_and_when_the_process_stops(harness: Harness) -> None:
    pool = PROVISIONER, WORKER_TYPE
    first, last = WorkerPath(*pool, "group", "first"), WorkerPath(*pool, "group", "last")
    server = harness.replica()
    with running(server):
        server.workers.record_activity(first)
        assert wait_until(lambda: harness.storage.workers.load(first))
    background = server.background()
    server.workers.record_activity(last)
    server.calls.record_poll(QUEUE, "client")
    background.stop()
    assert harness.storage.workers.load(last)
    assert harness.storage.workers.load_client(CallingClient(*pool, "client"))


@pytest.mark.parametrize(
    ("error", "event", "level"),
    [
        (ServiceUnavailable("storage is away"), "background-delayed", "warning"),
        (ValueError("a defect"), "background-failed", "error"),
    ],
    ids=["away", "a defect"],
)
def test_a_failure_is_logged_and_the_thread_goes_on(
    harness: Harness, error: Exception, event: str, level: str, logs: Logs
) -> None:
    writes: list[str] = []

    def fail_twice(name: str, call: Callable[[], Any]) -> Any:
        writes.extend([name] * (name == "process.write"))
        if name == "process.write" and len(writes) <= 2:
            raise error
        return call()

    with running(harness.replica(fail_twice)):
        wait_until(lambda: len(writes) > 2)
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [(event, level)] * 2


def test_a_thread_that_crashes_is_logged_and_restarted(logs: Logs) -> None:
    class Defective(SystemWaiter):
        def __init__(self) -> None:
            self.left = iter(range(5))

        def wait(self, flag: Flag, seconds: float) -> bool:
            if seconds < 1 and next(self.left, None) is not None:
                raise ValueError("a defect")
            return super().wait(flag, min(seconds, 0.01))

    harness = Harness()
    task_id = harness.claimed()  # this process does no more, so another must retry the run

    def is_retried() -> bool:
        harness.clock.advance(MINUTE)
        return len(harness.task(task_id).runs) == 2

    with running(harness.replica(waiter=Defective())):
        wait_until(is_retried)
    assert "background-restarted" in [entry["event"] for entry in logs]


def test_a_process_stops_while_storage_is_away_and_another_takes_over_later(
    harness: Harness, logs: Logs
) -> None:
    """The row of the stopped process still names the task, so its events are published again."""
    away = FaultAt(1, of="process.write", before=ServiceUnavailable("storage is away"))
    harness.services = harness.replica(away)
    background = harness.services.background(OFTEN)
    task_id = harness.create()
    background.stop()
    assert [entry["event"] for entry in logs] == ["background-delayed"]
    harness.do_work(DEAD_AFTER, harness.replica())
    assert harness.events().count(("task-pending", task_id, 0)) == 2


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
def test_a_process_can_be_stopped_while_its_threads_start() -> None:
    """The threads are gevent's, as in ``serve``."""
    subprocess.run([sys.executable, "-c", STOPPED_WHILE_STARTING], check=True, timeout=MAX_WAIT)


# periodic jobs are done page by page, by one process at a time

STEP = tuple[str, int, datetime | None]


class Pages:
    """The step function of a job with ``count`` pages. It records its arguments."""

    def __init__(self, count: int, before: Callable[[str], None] = lambda _: None) -> None:
        self.done: list[STEP] = []
        self._count, self._before = count, before

    def __call__(self, after: str, limit: int, last_pass: datetime | None) -> str | None:
        self._before(after)
        self.done.append((after, limit, last_pass))
        number = int(after.removeprefix("page ") or 0) + 1
        return f"page {number}" if number < self._count else None

    @property
    def pages(self) -> list[str]:
        return [after for after, _, _ in self.done]


class Process:
    """One of several processes. ``answers`` says, call by call, whether it is the first of them."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOW)
        self.stop = FakeEvent(self.clock)
        self.answers = list[bool | Exception]()

    def is_first(self) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer

    def periodic_jobs(self, *steps: Callable[[str, int, datetime | None], str | None]) -> PeriodicJobs:
        periodic_jobs = [PeriodicJob(f"job {number}", HOUR, step) for number, step in enumerate(steps)]
        return PeriodicJobs(periodic_jobs, cast(Processes, self), self.clock, SystemWaiter())

    def do(self, periodic_jobs: PeriodicJobs) -> timedelta:
        """Do the jobs that are due. Returns how long to wait before calling this again."""
        return periodic_jobs.do_due(self.stop) - self.clock.now()


@pytest.fixture
def process() -> Process:
    return Process()


def test_after_each_page_a_job_pauses_for_as_long_as_the_page_took_but_at_most_a_tenth_of_a_second(
    process: Process,
) -> None:
    took = iter([0.0, 0.03, 3.0, 0.0])
    pages = Pages(4, lambda _: process.clock.advance(timedelta(seconds=next(took))))
    process.do(process.periodic_jobs(pages))
    assert pages.done == [(f"page {number}" if number else "", PAGE, None) for number in range(4)]
    assert process.stop.waits == [0, 0.03, 0.1]


def test_a_long_job_lets_the_other_jobs_have_their_turn(process: Process) -> None:
    done = list[str]()

    def takes_a_second(name: str) -> Callable[[str], None]:
        def take(_after: str) -> None:
            done.append(name)
            process.clock.advance(timedelta(seconds=1))

        return take

    long, short = Pages(12, takes_a_second("long")), Pages(2, takes_a_second("short"))
    process.do(process.periodic_jobs(long, short))
    assert done == [*["long"] * 5, *["short"] * 2, *["long"] * 7]
    assert long.pages == ["", *(f"page {number}" for number in range(1, 12))]


def test_a_process_does_the_jobs_that_are_due_until_it_stops(process: Process) -> None:
    pages = Pages(1)
    stop = FakeEvent(process.clock, NOW + 5 * HOUR + MINUTE)
    process.periodic_jobs(pages).run(stop, BackgroundGate())
    assert len(pages.done) == 6
    assert set(stop.waits) == {60.0}  # not longer, because the clock may be moved during a wait


def test_only_the_first_process_does_jobs_and_a_new_first_process_starts_them_from_the_beginning(
    process: Process,
) -> None:
    pages = Pages(2)
    process.answers = [False, False]
    periodic_jobs = process.periodic_jobs(pages)
    for _ in range(2):
        assert process.do(periodic_jobs) == READ_EVERY
    assert pages.done == []
    process.do(periodic_jobs)
    process.clock.advance(HOUR)
    process.do(periodic_jobs)
    assert pages.done == [("", PAGE, None), ("page 1", PAGE, None), ("", PAGE, NOW), ("page 1", PAGE, NOW)]


def test_expired_tasks_and_queues_that_nobody_uses_are_removed(harness: Harness) -> None:
    task_id = harness.create(expires=format_time(NOW + 2 * DAY))
    harness.sweep(2 * DAY - MINUTE)
    assert harness.storage.tasks.load(task_id)
    harness.sweep(3 * HOUR)
    assert harness.storage.tasks.load(task_id) is None
    # the queue was used in the last ten days
    assert any(metadata for _, metadata in harness.account.queues(""))
    harness.sweep(11 * DAY)
    assert not any(metadata for _, metadata in harness.account.queues(""))


@pytest.mark.parametrize(
    ("error", "again", "logged"),
    [
        (ServiceUnavailable("storage is away"), [], []),
        (BrokerAway(), [""], [("periodic-job-delayed", "job 0")]),
        (ValueError("a defect"), [""], [("periodic-job-failed", "job 0")]),
    ],
    ids=repr,
)
def test_a_job_continues_after_an_outage_and_restarts_after_a_defect_and_the_other_jobs_are_done(
    process: Process, error: Exception, again: list[str], logged: list[tuple[str, str]], logs: Logs
) -> None:
    errors = [error]

    def fails(after: str) -> None:
        if after == "page 1" and errors:
            raise errors.pop()

    first, other = Pages(3, fails), Pages(1)
    process.periodic_jobs(first, other).run(FakeEvent(process.clock, NOW + 2 * MINUTE), BackgroundGate())
    assert (first.pages, len(other.done)) == (["", *again, "page 1", "page 2"], 1)
    assert [(entry["event"], entry["job"]) for entry in logs if "job" in entry] == logged


@pytest.mark.parametrize("error", [ServiceUnavailable("storage is away"), ValueError("a defect")], ids=repr)
def test_jobs_go_on_after_an_error_hid_which_process_is_first(
    process: Process, error: Exception, logs: Logs
) -> None:
    process.answers = [error]
    pages = Pages(1)
    process.periodic_jobs(pages).run(FakeEvent(process.clock, NOW + 2 * MINUTE), BackgroundGate())
    assert len(pages.done) == 1
    assert [entry["event"] for entry in logs] == ["periodic-job-failed"] * isinstance(error, ValueError)
