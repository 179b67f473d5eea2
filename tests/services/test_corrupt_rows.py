"""A task that cannot be read is in nobody's way: in lists, chores, timers, polls, among dependents."""

from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.workers import Known, Path
from legacy_queue.ports import Corrupt
from legacy_queue.services.core import Core
from legacy_queue.stores import StoredTask, TaskStore
from tests.services.bench import (
    ALICE,
    BOB,
    MINUTE,
    PROVISIONER,
    WORKER_TYPE,
    At,
    Bench,
    failing,
)
from tests.services.ports import TasksOf

NO_TIME = timedelta(0)
CORRUPT = Corrupt("the row cannot be read")


class CorruptTasks(TasksOf):
    """Of these taskIds, none can be read."""

    def __init__(self, tasks: TaskStore, corrupt: set[str]) -> None:
        super().__init__(tasks)
        self._corrupt = corrupt

    def load(self, task_id: str) -> StoredTask | None:
        if task_id in self._corrupt:
            raise CORRUPT
        return self.tasks.load(task_id)


def server(bench: Bench, corrupt: set[str]) -> Core:
    """One that finds these tasks corrupt; what is added later too."""
    return bench.server(wrapped=lambda tasks: CorruptTasks(tasks, corrupt))


def name_of(task: Any) -> bytes:
    return str(task.task_id).encode()


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_lists_leave_it_out(limit: int) -> None:
    bench = Bench()
    required, group = bench.create(), slugid()
    tasks = sorted(bench.create(taskGroupId=group, dependencies=[required]) for _ in range(5))
    listing = server(bench, {tasks[2]}).services.listing
    for ask, about in ((listing.group, group), (listing.dependents, required)):
        found, after = [], ""
        while after is not None:
            page = ask(about, after, limit, name_of)
            found += [item.decode() for item in page.items]
            after = page.after
        assert found == [*tasks[:2], *tasks[3:]]


def test_others_that_depend_on_the_same_task_go_on() -> None:
    bench = Bench()
    required = bench.create()
    waiting = sorted(bench.create(dependencies=[required]) for _ in range(5))
    core = server(bench, {waiting[0], waiting[2]})
    bench.claim(bench.receive_one())
    bench.complete(required, services=core.services)
    bench.run_timers(server=core)
    states = [bench.task(task_id).state for task_id in waiting]
    assert states == ["unscheduled", "pending", "unscheduled", "pending", "pending"]
    bench.run_timers(timedelta(days=2), core)


def test_its_timer_is_dropped_at_once(logs: list[MutableMapping[str, Any]]) -> None:
    bench = Bench()
    corrupt, other = bench.claimed(), bench.claimed()
    core = server(bench, {corrupt})
    bench.run_timers(timedelta(days=2), core)
    assert bench.task(other).state == "exception"
    assert bench.timers() == []
    assert [one["event"] for one in logs if one["log_level"] != "info"] == []


def test_a_sweep_goes_on_behind_a_task_that_depends_on_it(logs: list[MutableMapping[str, Any]]) -> None:
    bench = Bench()
    required = bench.create()
    for _ in range(3):
        bench.create(dependencies=[required])
    others = [bench.create() for _ in range(3)]
    core = server(bench, {required})
    for message in bench.receive():
        bench.delete(message)
    bench.sweep(11 * MINUTE, core)
    offered = {message.task_id for message in bench.receive()}
    assert offered == set(others)
    assert logs == []


@pytest.mark.parametrize("error", [CORRUPT, ValueError("a defect")])
def test_a_sweep_of_groups_goes_on_behind_it(error: Exception, logs: list[MutableMapping[str, Any]]) -> None:
    bench = Bench()
    for _ in range(3):
        bench.storage.groups.join(slugid(), slugid(), "-", bench.clock.now() + timedelta(days=1))
    core = bench.server(At(0, of="load", before=failing(error)))
    bench.sweep(11 * MINUTE, core)
    bench.run_timers(server=core)
    assert len(bench.storage.groups.all_active("", 100)[0]) == 1
    assert [one["event"] for one in logs] == ["not-swept"] * (error is not CORRUPT)


def test_a_sweep_of_groups_ends_while_storage_is_away() -> None:
    bench = Bench()
    bench.storage.groups.join(slugid(), slugid(), "-", bench.clock.now() + timedelta(days=1))
    core = bench.server(At(0, of="load", before=failing(ServiceUnavailable("storage is away"))))
    with pytest.raises(ServiceUnavailable):
        bench.sweep(11 * MINUTE, core)


def test_claim_work_drops_its_message_and_claims_the_others(logs: list[MutableMapping[str, Any]]) -> None:
    bench = Bench()
    tasks = [bench.create() for _ in range(3)]
    claim_work = server(bench, {tasks[1]}).services.claim_work
    claimed = claim_work.claim(PROVISIONER, WORKER_TYPE, ALICE, 3, lambda: False)["tasks"]
    assert {one["status"]["taskId"] for one in claimed} == {tasks[0], tasks[2]}
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1, 1]
    assert [one["event"] for one in logs] == ["work-message-dropped"]


def test_a_worker_is_quarantined_though_its_worker_type_cannot_be_read() -> None:
    bench = Bench()
    replica = bench.replica(At(1, of="worker.load", before=failing(CORRUPT)))
    worker: Path = (PROVISIONER, WORKER_TYPE, "group", "alice")
    until = bench.clock.now() + MINUTE
    assert "quarantineUntil" in replica.workers.quarantine(worker, until)
    assert replica.workers.is_quarantined(PROVISIONER, WORKER_TYPE, ALICE)


def test_a_group_is_listed_though_its_own_row_cannot_be_read() -> None:
    bench = Bench()
    task_id = bench.create()
    group_id = bench.task(task_id).definition.task_group_id
    fault = At(0, of="load", before=failing(CORRUPT))
    replica = bench.replica(fault)
    assert replica.groups.find(group_id) is None
    assert fault.happened
    assert replica.listing.group(group_id, "", 9, name_of).items == [task_id.encode()]


def test_activity_of_a_worker_that_cannot_be_read_keeps_no_other_from_being_written(
    logs: list[MutableMapping[str, Any]],
) -> None:
    bench = Bench()
    fault = At(2, of="worker.load", before=failing(CORRUPT))
    workers = bench.replica(fault).workers
    for worker in (ALICE, BOB):
        workers.seen(PROVISIONER, WORKER_TYPE, worker)
    workers.flush()
    assert fault.happened
    assert logs == []
    pool: Path = (PROVISIONER, WORKER_TYPE)
    stored = bench.storage.workers.list(pool, (), 9)
    assert [known.path for known in stored] == [Known.new((*pool, "group", "bob"), bench.clock.now()).path]
