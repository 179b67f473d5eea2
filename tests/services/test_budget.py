"""What each call costs in storage operations, counted where they leave the process.

The budget is that of docs/explanation/architecture.md#what-a-call-costs: *shared* is what concurrent calls
write together.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Table
from legacy_queue.services.composition import Services
from tests.services.harness import (
    ALICE,
    MINUTE,
    PREFIX,
    PROVISIONER,
    WORKER_TYPE,
    Harness,
    call_through,
    task_body,
)
from tests.services.ports import Intercept, intercept_port
from tests.system.processes import wait_until

TIMER = "timers.put"
TIMERS = "timers.batch"  # of several calls
CREATED = ["tasks.insert", "work.put"]
CLAIMED = ["tasks.merge", "work.update"]
COMPLETED = ["tasks.merge", "work.delete"]


class Metered:
    """An account that records each operation on a table or a queue: ``tasks.merge``, ``work.put``, ..."""

    def __init__(
        self, account: StorageAccount, intercept: Intercept = call_through, prefix: str = PREFIX
    ) -> None:
        self._account, self._intercept, self._prefix = account, intercept, prefix
        self.names: list[str] = []

    def table(self, name: str) -> Table:
        return intercept_port(
            Table, self._account.table(name), self._operate, f"{name.removeprefix(self._prefix)}."
        )

    def queue(self, name: str) -> Queue:
        return intercept_port(Queue, self._account.queue(name), self._operate, "work.")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._account, name)

    def _operate(self, name: str, call: Callable[[], Any]) -> Any:
        if not name.endswith(".now"):  # nothing is sent
            self.names.append(name)
        return self._intercept(name, call)

    def take(self) -> list[str]:
        """The operations since the last call, sorted."""
        names, self.names = sorted(self.names), []
        return names


class Process:
    """A server that has served before: its queues are in its caches."""

    def __init__(self, intercept: Intercept = call_through) -> None:
        self.harness = Harness()
        self.metered = Metered(self.harness.account, intercept)
        self.services: Services = self.harness.replica(
            caches_tasks=True, account=cast(StorageAccount, self.metered)
        )
        self.harness.services = self.services
        self.harness.complete(self.harness.claimed())
        self.harness.run_timers(services=self.services)
        self.costs()

    def costs(self) -> list[str]:
        """The operations since the last call."""
        return self.metered.take()

    def follow_up(self) -> list[str]:
        """The operations of the resolver, without a tick of the timers."""
        self.services.resolver.handle_all()
        return self.costs()


@pytest.fixture
def process() -> Process:
    return Process()


def test_create_task_costs_two_operations_and_a_shared_timer(process: Process) -> None:
    process.harness.create()
    assert process.costs() == [*CREATED[:1], TIMER, *CREATED[1:]]
    assert process.follow_up() == []


@pytest.mark.parametrize("is_later", [False, True])
def test_claim_task_costs_two_operations_and_later_a_read_and_a_shared_timer(
    process: Process, is_later: bool
) -> None:
    process.harness.create()
    message = process.harness.receive_one()
    if is_later:
        process.harness.run_timers(MINUTE, process.services)
    process.costs()
    process.harness.claim(message)
    assert process.costs() == sorted([*CLAIMED, *([TIMER, "workers.get"] if is_later else [])])
    assert process.follow_up() == []


def test_reclaim_task_costs_two_operations(process: Process) -> None:
    task_id = process.harness.claimed()
    process.costs()
    process.services.claims.reclaim(task_id, 0)
    assert process.costs() == CLAIMED


def test_report_completed_costs_two_operations_and_then_two_point_reads(process: Process) -> None:
    task_id = process.harness.claimed()
    process.costs()
    process.harness.complete(task_id)
    assert process.costs() == COMPLETED
    assert process.follow_up() == ["dependencies.get", "groups.get"]


def test_the_end_of_a_member_costs_a_point_read_a_deletion_and_a_query(process: Process) -> None:
    group = slugid()
    process.harness.create(taskGroupId=group)
    process.harness.receive()
    task_id = process.harness.claimed(taskGroupId=group)
    process.harness.complete(task_id)
    process.costs()
    assert process.follow_up() == ["dependencies.get", "groups.delete", "groups.page"]


def test_claim_work_costs_one_receive_more_for_a_batch(process: Process) -> None:
    def claim(tasks: int) -> list[str]:
        for _ in range(tasks):
            process.harness.create(priority="highest")
        process.costs()
        answer: Mapping[str, Any] = process.services.claim_work.claim(
            PROVISIONER, WORKER_TYPE, ALICE, tasks, lambda: False
        )
        assert len(answer["tasks"]) == tasks
        return process.costs()

    claim(1)
    for tasks in (1, 8):
        assert claim(tasks) == sorted([*CLAIMED * tasks, "work.receive"])


def test_concurrent_calls_share_timers_and_group_batches() -> None:
    """Calls that come while a row or a batch is being written share the next."""
    holds, may_go = threading.Event(), threading.Event()

    def held_up(name: str, call: Callable[[], Any]) -> Any:
        if holds.is_set() and name in (TIMER, TIMERS, "groups.batch"):
            assert may_go.wait(60)
        return call()

    process, group = Process(held_up), slugid()
    process.harness.create(taskGroupId=group)
    process.costs()
    with ThreadPoolExecutor(16) as threads:
        holds.set()
        calls = [
            threads.submit(process.services.tasks.create, slugid(), task_body(taskGroupId=group))
            for _ in range(16)
        ]
        try:
            wait_until(lambda: process.services.timers.waiting == 15)
        finally:
            holds.clear()
            may_go.set()
        for call in calls:
            call.result(60)
    costs = process.costs()
    assert (costs.count(TIMER), costs.count(TIMERS)) == (1, 1)
    assert costs.count("groups.batch") <= 16
    assert [costs.count(name) for name in CREATED] == [16, 16]
