"""A corrupt task does not stop lists, periodic jobs, timers, polls or other dependents."""

from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any, cast

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.ports import Corrupt
from legacy_queue.services.composition import Services
from legacy_queue.stores import StoredTask, TaskStore
from tests.services.harness import ALICE, MINUTE, PROVISIONER, WORKER_TYPE, FaultAt, Harness, failing
from tests.services.ports import DelegatingTasks

CORRUPT = Corrupt("the row cannot be read")


class CorruptTasks(DelegatingTasks):
    """These tasks cannot be read."""

    def __init__(self, tasks: TaskStore, corrupt: set[str]) -> None:
        super().__init__(tasks)
        self._corrupt = corrupt

    def load(self, task_id: str) -> StoredTask | None:
        if task_id in self._corrupt:
            raise CORRUPT
        return self.tasks.load(task_id)


def server(harness: Harness, corrupt: set[str]) -> Services:
    """Services for which these tasks are corrupt, and tasks that are added later too."""
    return harness.replica(wrap_tasks=lambda tasks: cast(TaskStore, CorruptTasks(tasks, corrupt)))


def name_of(task: Any) -> bytes:
    return str(task.task_id).encode()


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_lists_leave_out_a_corrupt_task(harness: Harness, limit: int) -> None:
    required, group = harness.create(), slugid()
    tasks = sorted(harness.create(taskGroupId=group, dependencies=[required]) for _ in range(5))
    listing = server(harness, {tasks[2]}).listing
    for ask, about in ((listing.group, group), (listing.dependents, required)):
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = ask(about, after, limit, name_of)
            found += [item.decode() for item in page.items]
            after = page.after
        assert found == [*tasks[:2], *tasks[3:]]


def test_the_timer_of_a_corrupt_task_is_dropped(
    harness: Harness, logs: list[MutableMapping[str, Any]]
) -> None:
    corrupt, other = harness.claimed(), harness.claimed()
    services = server(harness, {corrupt})
    harness.run_timers(timedelta(days=2), services)
    assert harness.task(other).state == "exception"
    assert harness.timers() == []
    assert [entry["event"] for entry in logs if entry["log_level"] != "info"] == []


@pytest.mark.parametrize("error", [CORRUPT, ValueError("a defect")])
def test_a_sweep_of_groups_goes_on_after_a_task_that_fails(
    harness: Harness, error: Exception, logs: list[MutableMapping[str, Any]]
) -> None:
    for _ in range(3):
        harness.storage.groups.join(slugid(), slugid(), "-", harness.clock.now() + timedelta(days=1))
    services = harness.replica(FaultAt(0, of="load", before=failing(error)))
    harness.sweep(11 * MINUTE, services)
    harness.run_timers(services=services)
    assert len(harness.storage.groups.all_active("", 100)[0]) == 1
    assert [entry["event"] for entry in logs] == ["sweep-failed"] * (error is not CORRUPT)


def test_claim_work_drops_the_message_of_a_corrupt_task_and_claims_the_others(
    harness: Harness,
    logs: list[MutableMapping[str, Any]],
) -> None:
    tasks = [harness.create() for _ in range(3)]
    claim_work = server(harness, {tasks[1]}).claim_work
    claimed = claim_work.claim(PROVISIONER, WORKER_TYPE, ALICE, 3, lambda: False)["tasks"]
    assert {claim["status"]["taskId"] for claim in claimed} == {tasks[0], tasks[2]}
    assert [run_id for run_id, _ in harness.offered_runs()] == [1, 1]
    assert [entry["event"] for entry in logs] == ["work-message-dropped"]


def test_a_group_whose_row_is_corrupt_is_listed(harness: Harness) -> None:
    task_id = harness.create()
    group_id = harness.task(task_id).definition.task_group_id
    fault = FaultAt(0, of="load", before=failing(CORRUPT))
    replica = harness.replica(fault)
    assert replica.groups.find(group_id) is None
    assert fault.happened
    assert replica.listing.group(group_id, "", 9, name_of).items == [task_id.encode()]
