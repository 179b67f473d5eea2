"""What each call costs in storage operations, counted where they leave the process.

The budget is that of docs/explanation/architecture.md#what-a-call-costs: *shared* is what concurrent calls
write together. tests/simulation/test_scale.py shows that a cycle costs as many requests on Azurite.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Table
from tests.domain.tasks import ALICE, MINUTE, task_body
from tests.services.harness import PREFIX, PROVISIONER, WORKER_TYPE, Harness
from tests.services.ports import Intercept, call_through, intercept_port
from tests.system.processes import wait_until

TIMER = "timers.put"
TIMERS = "timers.batch"  # of several calls
CLAIMED = ["tasks.merge", "work.update"]


class Metered:
    """An account that records each operation on a table or a queue: ``tasks.merge``, ``work.put``, ..."""

    def __init__(self, account: StorageAccount, intercept: Intercept) -> None:
        self._account, self._intercept = account, intercept
        self.names: list[str] = []

    def table(self, name: str) -> Table:
        return intercept_port(self._account.table(name), self._operate, f"{name.removeprefix(PREFIX)}.")

    def queue(self, name: str) -> Queue:
        return intercept_port(self._account.queue(name), self._operate, "work.")

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


class Process(Harness):
    """A server that has served before: its queues are in its caches."""

    def __init__(self, intercept: Intercept = call_through) -> None:
        super().__init__()
        self.metered = Metered(self.account, intercept)
        self.services = self.replica(caches_tasks=True, account=cast(StorageAccount, self.metered))
        self.complete(self.claimed())
        self.run_timers()
        self.costs()

    def costs(self) -> list[str]:
        return self.metered.take()

    def follow_up(self) -> list[str]:
        """The operations of the resolver, without a tick of the timers."""
        self.services.resolver.handle_all()
        return self.costs()


@pytest.fixture
def process() -> Process:
    return Process()


def test_each_call_of_a_life_costs_two_operations_and_the_first_two_shared_ones(process: Process) -> None:
    task_id = process.create()
    assert (process.costs(), process.follow_up()) == (["groups.batch", "tasks.insert", TIMER, "work.put"], [])
    process.claim(process.receive_one())
    assert (process.costs(), process.follow_up()) == (CLAIMED, [])
    process.services.claims.reclaim(task_id, 0)
    assert process.costs() == CLAIMED
    process.complete(task_id)
    assert process.costs() == ["tasks.merge", "work.delete"]
    assert process.follow_up() == ["dependencies.get", "groups.delete", "groups.page"]


def test_a_later_claim_costs_a_read_and_a_shared_timer_more(process: Process) -> None:
    process.create()
    message = process.receive_one()
    process.run_timers(MINUTE)
    process.costs()
    process.claim(message)
    assert process.costs() == sorted([*CLAIMED, TIMER, "workers.get"])


def test_claim_work_costs_one_receive_more_for_a_batch(process: Process) -> None:
    def claim(tasks: int) -> list[str]:
        for _ in range(tasks):
            process.create(priority="highest")
        process.costs()
        claim_work = process.services.claim_work
        answer = claim_work.claim(PROVISIONER, WORKER_TYPE, ALICE, tasks, lambda: False)
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
    process.create(taskGroupId=group)
    process.costs()
    create = process.services.tasks.create
    with ThreadPoolExecutor(16) as threads:
        holds.set()
        calls = [threads.submit(create, slugid(), task_body(taskGroupId=group)) for _ in range(16)]
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
    assert (costs.count("tasks.insert"), costs.count("work.put")) == (16, 16)
