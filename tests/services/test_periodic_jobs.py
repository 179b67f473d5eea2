"""Periodic jobs are done page by page, by one process at a time."""

import threading
from collections.abc import Callable, MutableMapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.ports import BrokerAway
from legacy_queue.services.gate import Gate
from legacy_queue.services.recovery.jobs import PAGE, PeriodicJob
from legacy_queue.services.recovery.periodic_jobs import PeriodicJobs
from legacy_queue.stores import LeaseStore
from tests.memory_server import FakeClock, memory_storage
from tests.services.harness import HOUR, MINUTE, NOW, PREFIX, FakeEvent, FaultAt, Harness, failing
from tests.services.ports import intercept_port

DAY = 24 * HOUR
STEP = tuple[str, int, datetime | None]


class Pages:
    """The step of a job with some pages. Records its arguments."""

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


class Processes:
    """Several processes on one storage."""

    def __init__(self) -> None:
        self.clock = FakeClock(NOW)
        self.leases = memory_storage(self.clock, "http://127.0.0.1:1/azure", PREFIX).leases
        self.stop = FakeEvent(self.clock)

    def periodic_jobs(self, *steps: Callable[[str, int, datetime | None], str | None]) -> PeriodicJobs:
        periodic_jobs = [PeriodicJob(f"job {number}", HOUR, step) for number, step in enumerate(steps)]
        return PeriodicJobs(periodic_jobs, self.leases, self.clock, SystemWaiter())

    def do(self, periodic_jobs: PeriodicJobs, stop: threading.Event | None = None) -> timedelta:
        """Do the due jobs. Returns how long until the next may be due."""
        return periodic_jobs.do_due(stop or self.stop) - self.clock.now()


@pytest.fixture
def processes() -> Processes:
    return Processes()


def test_a_job_is_done_page_by_page_with_a_pause_as_long_as_the_page_took_or_shorter(
    processes: Processes,
) -> None:
    took = iter([0.0, 0.03, 3.0, 0.0])
    pages = Pages(4, lambda _: processes.clock.advance(timedelta(seconds=next(took))))
    processes.do(processes.periodic_jobs(pages))
    assert pages.done == [(f"page {number}" if number else "", PAGE, None) for number in range(4)]
    assert processes.stop.waits == [0, 0.03, 0.1]


def test_a_job_that_takes_long_lets_the_others_go_on_after_each_turn(processes: Processes) -> None:
    done = list[str]()

    def takes_a_second(name: str) -> Callable[[str], None]:
        def take(_after: str) -> None:
            done.append(name)
            processes.clock.advance(timedelta(seconds=1))

        return take

    long, short = Pages(12, takes_a_second("long")), Pages(2, takes_a_second("short"))
    processes.do(processes.periodic_jobs(long, short))
    assert done == [*["long"] * 5, *["short"] * 2, *["long"] * 7]
    assert long.pages == ["", *(f"page {number}" for number in range(1, 12))]


def test_another_process_continues_the_job_of_a_dead_process(processes: Processes) -> None:
    def dies(after: str) -> None:
        if after == "page 2":
            raise SystemExit

    first, second = Pages(4, dies), Pages(4)
    with pytest.raises(SystemExit):
        processes.do(processes.periodic_jobs(first))
    periodic_jobs = processes.periodic_jobs(second)
    assert processes.do(periodic_jobs) > timedelta(0)
    assert second.done == []
    processes.clock.advance(5 * MINUTE)
    processes.do(periodic_jobs)
    assert first.pages + second.pages == ["", "page 1", "page 2", "page 3"]
    processes.clock.advance(HOUR)
    processes.do(periodic_jobs)
    assert second.done[2:][0] == ("", PAGE, NOW)  # when the first process began


def test_another_process_continues_the_job_of_a_stopped_process_at_once(processes: Processes) -> None:
    stop = threading.Event()
    first = Pages(3, lambda after: stop.set() if after == "page 1" else None)
    second = Pages(3)
    processes.do(processes.periodic_jobs(first), stop)
    processes.do(processes.periodic_jobs(second))
    assert (first.pages, second.pages) == (["", "page 1"], ["page 2"])


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (ServiceUnavailable("storage is away"), set()),
        (BrokerAway(), {"periodic-job-delayed"}),
        (ValueError("a defect"), {"periodic-job-failed"}),
    ],
    ids=repr,
)
def test_the_other_jobs_are_done_after_a_job_fails(
    processes: Processes, error: Exception, logged: set[str], logs: list[MutableMapping[str, Any]]
) -> None:
    def fail(_after: str) -> None:
        raise error

    pages = Pages(2)
    processes.periodic_jobs(Pages(1, fail), pages).run(FakeEvent(processes.clock, NOW + 10 * MINUTE), Gate())
    assert len(pages.done) == 2
    assert {entry["event"] for entry in logs} == logged


def test_expired_tasks_groups_dependencies_and_queues_are_removed(harness: Harness) -> None:
    required = harness.create(expires=format_time(NOW + 20 * DAY))
    group, expires = slugid(), format_time(NOW + 2 * DAY)
    task_id = harness.create(dependencies=[required], expires=expires, taskGroupId=group)
    harness.run(required)
    harness.sweep(2 * DAY - MINUTE)
    assert harness.storage.tasks.load(task_id)
    harness.sweep(3 * HOUR)
    assert harness.storage.tasks.load(task_id) is None
    assert list(harness.storage.dependencies.dependents(required, "", 9)) == []
    assert harness.storage.groups.load(group)  # up to the end of the day
    harness.sweep(DAY)
    assert harness.storage.groups.load(group) is None
    assert list(harness.storage.groups.members(group, "", 9)) == []
    assert harness.storage.tasks.load(required)
    assert work_queues(harness)  # in use within ten days
    harness.sweep(11 * DAY)
    assert not work_queues(harness)


def work_queues(harness: Harness) -> list[str]:
    return [name for name, metadata in harness.account.queues("") if metadata]


def test_a_job_that_fails_begins_anew_a_minute_later(
    processes: Processes, logs: list[MutableMapping[str, Any]]
) -> None:
    def fails(after: str) -> None:
        if after == "page 1" and not logs:
            raise ValueError("a defect")

    first, other = Pages(3, fails), Pages(1)
    periodic_jobs = processes.periodic_jobs(first, other)
    assert processes.do(periodic_jobs) <= MINUTE
    assert len(other.done) == 1
    assert [(entry["event"], entry["job"]) for entry in logs] == [("periodic-job-failed", "job 0")]
    processes.clock.advance(MINUTE)
    processes.do(periodic_jobs)
    assert first.pages == ["", "", "page 1", "page 2"]


def test_a_process_whose_job_fails_does_not_release_the_lease_of_its_successor(processes: Processes) -> None:
    second = Pages(1)

    def fails(_after: str) -> None:
        processes.clock.advance(6 * MINUTE)
        processes.do(processes.periodic_jobs(second))
        raise ValueError("a defect")

    assert processes.do(processes.periodic_jobs(Pages(1, fails))) <= MINUTE
    assert len(second.done) == 1


def test_jobs_go_on_after_a_lease_could_not_be_acquired(
    processes: Processes, logs: list[MutableMapping[str, Any]]
) -> None:
    fault = FaultAt(0, of="acquire", before=failing(ValueError("a defect")))
    leases = intercept_port(LeaseStore, processes.leases, fault)
    pages = Pages(1)
    periodic_jobs = PeriodicJobs([PeriodicJob("job", HOUR, pages)], leases, processes.clock, SystemWaiter())
    periodic_jobs.run(FakeEvent(processes.clock, NOW + 2 * MINUTE), Gate())
    assert len(pages.done) == 1
    assert [entry["event"] for entry in logs] == ["periodic-job-failed"]
