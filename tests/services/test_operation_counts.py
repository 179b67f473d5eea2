"""How many storage operations each call costs, counted where they leave the process.

docs/explanation/architecture.md#what-a-call-costs has the same numbers. A *shared* operation is one that
concurrent calls make together. tests/simulation/test_scale.py shows that a cycle costs as many requests on
Azurite.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import Queue
from legacy_queue.ports.table import Table
from tests.domain.sample_tasks import ALICE, MINUTE
from tests.services.fake_ports import Intercept, call_through, intercept_port
from tests.services.harness import PREFIX, PROVISIONER, WORKER_TYPE, Harness
from tests.system.processes import wait_until

NAMED = "processes.put"  # writes the row of the process, which names the task
CLAIMED = ["tasks.merge", "work.update"]


class Metered:
    """An account that records each operation on a table or queue, such as ``tasks.merge`` or ``work.put``."""

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
        self.names.append(name)
        return self._intercept(name, call)

    def take(self) -> list[str]:
        """The operations since the last call, sorted."""
        names, self.names = sorted(self.names), []
        return names


class Process(Harness):
    """A server that has served a while, so that its queues are in its caches."""

    def __init__(self, intercept: Intercept = call_through) -> None:
        super().__init__()
        self.metered = Metered(self.account, intercept)
        self.services = self.replica(caches_tasks=True, account=cast(StorageAccount, self.metered))
        self.complete(self.claimed())
        self.do_work()
        self.costs()

    def costs(self) -> list[str]:
        return self.metered.take()

    def follow_up(self) -> list[str]:
        """The operations of the resolver. The process does not renew its row meanwhile."""
        self.services.resolver.handle_all()
        return self.costs()


@pytest.fixture
def process() -> Process:
    return Process()


def test_each_call_of_a_tasks_cycle_costs_two_operations_of_its_own(process: Process) -> None:
    task_id = process.create()
    assert (process.costs(), process.follow_up()) == (["groups.insert", "tasks.insert", "work.put"], [])
    process.claim(process.receive_one())
    assert (process.costs(), process.follow_up()) == ([NAMED, *CLAIMED], [])
    process.services.claims.reclaim(task_id, 0)
    assert process.costs() == CLAIMED
    process.complete(task_id)
    assert process.costs() == ["tasks.merge", "work.delete"]
    assert process.follow_up() == ["dependencies.get", "groups.merge"]


def test_after_a_minute_a_claim_costs_another_read_and_a_report_another_shared_write(
    process: Process,
) -> None:
    task_id = process.create()
    message = process.receive_one()
    process.do_work(MINUTE)
    process.costs()
    process.claim(message)
    assert process.costs() == [NAMED, *CLAIMED, "workers.get"]
    process.do_work(MINUTE)
    process.costs()
    process.complete(task_id)
    assert process.costs() == [NAMED, "tasks.merge", "work.delete"]


def test_claim_work_costs_one_receive_for_the_whole_batch(process: Process) -> None:
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
        assert claim(tasks) == sorted([*[NAMED, *CLAIMED] * tasks, "work.receive"])


def test_concurrent_claims_share_the_writes_of_the_row_of_the_process() -> None:
    """Calls that come during one write share the next."""
    holds, may_go = threading.Event(), threading.Event()

    def held_up(name: str, call: Callable[[], Any]) -> Any:
        if holds.is_set() and name == NAMED:
            assert may_go.wait(60)
        return call()

    process = Process(held_up)
    for _ in range(16):
        process.create()
    messages = process.receive()
    process.costs()
    with ThreadPoolExecutor(16) as threads:
        holds.set()
        calls = [threads.submit(process.claim, message) for message in messages]
        try:
            wait_until(lambda: process.services.processes.waiting == 15)
        finally:
            holds.clear()
            may_go.set()
        for call in calls:
            call.result(60)
    assert process.costs() == sorted([NAMED, NAMED, *CLAIMED * 16])
