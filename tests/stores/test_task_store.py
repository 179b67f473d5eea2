import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from legacy_queue.domain.definition import MAX_DEFINITION, TaskDefinition
from legacy_queue.domain.ids import MAX_RUNS, slugid
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.task import Run, Task, Worker
from legacy_queue.domain.times import format_time
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.stores import Storage, StoredTask, TaskStore
from tests.domain.tasks import with_last_run, with_new_run

from .paging import pages, remove_all_expired

CREATED = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
ATTEMPTS = 8


def new_task(payload: Any = None) -> Task:
    task_id = slugid()
    body = {
        "provisionerId": "provisioner",
        "workerType": "worker-Type_1",
        "created": "2030-01-02T03:04:05.678Z",
        "deadline": "2030-01-03T03:04:05.678Z",
        "payload": payload or {},
        "metadata": {
            "name": "n",
            "description": "d",
            "owner": "o@example.com",
            "source": "https://example.com",
        },
    }
    definition = TaskDefinition.from_wire(task_id, body, CREATED)
    return with_new_run(Task(task_id, definition, definition.retries), "scheduled", CREATED)


def outcomes(act: Callable[[], StoredTask]) -> list[str]:
    """What becomes of doing the same from several threads at once."""

    def attempt(_: int) -> str:
        try:
            act()
        except (AlreadyExists, Changed) as refusal:
            return type(refusal).__name__
        return "stored"

    with ThreadPoolExecutor(ATTEMPTS) as threads:
        return sorted(threads.map(attempt, range(ATTEMPTS)))


def test_a_task_may_wait_for_thousands_of_dependencies(storage: Storage) -> None:
    definition = new_task().definition
    dependencies = [slugid() for _ in range(10_000)]
    definition = TaskDefinition({**definition.wire, "dependencies": dependencies})
    task = Task(slugid(), definition, definition.retries)
    stored = storage.tasks.insert(replace(task, waits_for=tuple(dependencies)))
    for number in (1, 9_899, 9_900, 10_000):  # 100 and fewer are stored in another way
        waits_for = tuple(dependencies[number:])
        stored = storage.tasks.replace(stored, replace(stored.task, waits_for=waits_for))
        loaded = storage.tasks.load(task.task_id)
        assert loaded
        assert loaded.task.waits_for == waits_for


def test_loading_a_task_that_was_never_stored_returns_none(storage: Storage) -> None:
    assert storage.tasks.load(slugid()) is None


def test_a_stored_task_is_loaded_as_it_was_stored(storage: Storage) -> None:
    task = new_task()
    stored = storage.tasks.insert(task)
    assert stored.task == task
    assert storage.tasks.load(task.task_id) == stored


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "Grüße, 世界, \U0001f600, \x00\x1f\x7f\u2028\ufffe"},
        {"lone surrogate": "\ud800"},
        {"numbers": [12345678901234567890123, -1e-7, 1e300, 0, True, None]},
        {"": {"": []}, "PartitionKey": "x", "odata.etag": "y", "a.b/c#d?e": "z"},
    ],
    ids=["text", "surrogate", "numbers", "names"],
)
def test_any_json_comes_back_unchanged(storage: Storage, payload: dict[str, Any]) -> None:
    task = new_task(payload)
    storage.tasks.insert(task)
    loaded = storage.tasks.load(task.task_id)
    assert loaded is not None
    assert loaded.task.definition.wire["payload"] == payload


def test_a_definition_of_the_maximum_size_is_stored_with_all_its_runs(storage: Storage) -> None:
    noise = random.Random(1).randbytes(MAX_DEFINITION // 2 - 1000).hex()
    task = new_task({"noise": noise})
    worker = Worker("g" * 22, "w" * 22)
    run = replace(
        task.runs[0],
        state="exception",
        reason_resolved="intermittent-task",
        worker=worker,
        taken_until=CREATED,
        started=CREATED,
        resolved=CREATED,
    )
    task = replace(task, runs=tuple(replace(run, run_id=run_id) for run_id in range(MAX_RUNS)))
    storage.tasks.insert(task)
    loaded = storage.tasks.load(task.task_id)
    assert loaded is not None
    assert loaded.task == task


def test_every_field_of_a_task_comes_back_unchanged(storage: Storage) -> None:
    task = replace(
        new_task(),
        retries_left=3,
        runs=(
            Run(
                0,
                "exception",
                "scheduled",
                CREATED,
                reason_resolved="claim-expired",
                worker=Worker("group", "worker"),
                taken_until=CREATED + timedelta(milliseconds=1),
                started=CREATED + timedelta(milliseconds=2),
                resolved=CREATED + timedelta(milliseconds=999),
            ),
            Run(1, "pending", "retry", CREATED + timedelta(seconds=1)),
        ),
        held=MessageLease("3fa85f64-5717-4562-b3fc-2c963f66afa6", "AgAAAAMAAAAAAAAA+/+/zwE="),
        waits_for=tuple(slugid() for _ in range(100)),
        newest_blob='"a%/b\\' * 204,
    )
    storage.tasks.insert(task)
    loaded = storage.tasks.load(task.task_id)
    assert loaded is not None
    assert loaded.task == task


def test_a_task_is_inserted_only_once(storage: Storage) -> None:
    task = new_task()
    storage.tasks.insert(task)
    with pytest.raises(AlreadyExists):
        storage.tasks.insert(replace(task, retries_left=0))
    loaded = storage.tasks.load(task.task_id)
    assert loaded is not None
    assert loaded.task == task


def test_a_barred_task_cannot_be_stored_and_is_not_there(storage: Storage, other: Storage) -> None:
    task = new_task()
    assert storage.tasks.bar(task.task_id, CREATED + timedelta(days=30))
    assert other.tasks.bar(task.task_id, CREATED + timedelta(days=30))
    with pytest.raises(AlreadyExists):
        other.tasks.insert(task)
    assert other.tasks.load(task.task_id) is None
    assert task.task_id not in [one.task.task_id for one in unresolved(storage.tasks, 1000)]
    remove_all_expired(storage.tasks, CREATED + timedelta(days=30))
    assert storage.tasks.bar(task.task_id, CREATED)
    remove_all_expired(storage.tasks, CREATED + timedelta(days=31))
    assert storage.tasks.insert(task).task == task


def test_a_task_that_is_there_is_not_barred(storage: Storage, other: Storage) -> None:
    stored = storage.tasks.insert(new_task())
    assert not other.tasks.bar(stored.task.task_id, CREATED + timedelta(days=30))
    assert other.tasks.load(stored.task.task_id) == stored


def test_one_of_several_concurrent_inserts_succeeds(storage: Storage) -> None:
    task = new_task()
    found = outcomes(lambda: storage.tasks.insert(task))
    assert found == [*["AlreadyExists"] * (ATTEMPTS - 1), "stored"]


def test_one_of_several_concurrent_changes_succeeds(storage: Storage) -> None:
    task = new_task()
    stored = storage.tasks.insert(task)
    changed = replace(task, retries_left=4)
    assert outcomes(lambda: storage.tasks.replace(stored, changed)) == ["Changed"] * (ATTEMPTS - 1) + [
        "stored"
    ]


def test_a_changed_task_is_loaded_as_it_was_changed(storage: Storage) -> None:
    task = new_task()
    stored = storage.tasks.insert(task)
    held = with_last_run(
        replace(task, held=MessageLease("id", "receipt")), state="running", taken_until=CREATED
    )
    stored = storage.tasks.replace(stored, held)
    assert storage.tasks.load(task.task_id) == stored
    waiting = replace(held, waits_for=(slugid(), slugid()), newest_blob="a blob")
    stored = storage.tasks.replace(stored, waiting)
    assert storage.tasks.load(task.task_id) == stored
    let_go = with_new_run(replace(waiting, held=None, waits_for=()), "retry", CREATED)
    stored = storage.tasks.replace(stored, let_go)
    assert stored.task == let_go
    assert storage.tasks.load(task.task_id) == stored


def test_a_change_of_an_outdated_version_is_refused(storage: Storage) -> None:
    task = new_task()
    first = storage.tasks.insert(task)
    second = storage.tasks.replace(first, replace(task, retries_left=4))
    with pytest.raises(Changed):
        storage.tasks.replace(first, replace(task, retries_left=3))
    assert storage.tasks.load(task.task_id) == second


def test_writing_the_same_again_still_counts_as_a_change(storage: Storage) -> None:
    task = new_task()
    first = storage.tasks.insert(task)
    storage.tasks.replace(first, task)
    with pytest.raises(Changed):
        storage.tasks.replace(first, task)


def test_a_change_of_a_missing_task_is_refused(storage: Storage) -> None:
    stored = storage.tasks.insert(new_task())
    gone = new_task()
    with pytest.raises(Changed):
        storage.tasks.replace(replace(stored, task=gone), gone)


def test_a_task_that_another_process_wrote_is_not_marked_as_own(storage: Storage, other: Storage) -> None:
    stored = storage.tasks.insert(new_task())
    seen = other.tasks.load(stored.task.task_id)
    assert seen
    assert not seen.is_own
    changed = other.tasks.replace(seen, with_last_run(seen.task, state="failed"))
    assert changed.is_own
    back = storage.tasks.load(stored.task.task_id)
    assert back
    assert not back.is_own


def test_the_check_of_an_account_can_be_repeated(storage: Storage) -> None:
    storage.account.check()
    storage.account.check()


def task_in(state: str, expires: datetime = CREATED + timedelta(days=30)) -> Task:
    task = new_task()
    wire = {**task.definition.wire, "expires": format_time(expires)}
    task = replace(task, definition=TaskDefinition(wire), runs=())
    return (
        task
        if state == "unscheduled"
        else with_last_run(with_new_run(task, "scheduled", CREATED), state=state)
    )


def unresolved(tasks: TaskStore, limit: int) -> list[StoredTask]:
    found = list(pages(lambda after: tasks.unresolved(after, limit)))
    assert all(len(page) <= limit for page in found)
    return [stored for page in found for stored in page]


def test_the_unresolved_are_the_unscheduled_pending_and_running_tasks(storage: Storage) -> None:
    states = ["unscheduled", "pending", "running", "completed", "failed", "exception"]
    stored = [storage.tasks.insert(task_in(state)) for state in states * 3]
    found = unresolved(storage.tasks, 100)
    assert sorted(found, key=lambda one: one.task.task_id) == sorted(
        (one for one in stored if one.task.state in states[:3]), key=lambda one: one.task.task_id
    )


def test_a_resolved_task_leaves_the_unresolved_and_a_rerun_returns_it(storage: Storage) -> None:
    stored = storage.tasks.insert(task_in("running"))
    stored = storage.tasks.replace(stored, with_last_run(stored.task, state="failed"))
    assert unresolved(storage.tasks, 10) == []
    stored = storage.tasks.replace(stored, with_new_run(stored.task, "rerun", CREATED))
    assert unresolved(storage.tasks, 10) == [stored]


def test_unresolved_tasks_come_in_pages_that_any_process_continues(storage: Storage, other: Storage) -> None:
    wanted = {storage.tasks.insert(task_in("pending")).task.task_id for _ in range(7)}
    stores = itertools.cycle([storage, other])
    found = list(pages(lambda after: next(stores).tasks.unresolved(after, 2)))
    assert all(len(page) <= 2 for page in found)
    ids = [stored.task.task_id for page in found for stored in page]
    assert sorted(ids) == sorted(wanted)
    assert [stored.task.task_id for stored in unresolved(other.tasks, 3)] == ids


def test_tasks_that_come_and_go_between_pages_hide_no_others(storage: Storage) -> None:
    there = {storage.tasks.insert(task_in("pending")).task.task_id for _ in range(6)}
    found = []
    for page in pages(lambda after: storage.tasks.unresolved(after, 2)):
        found += [stored.task.task_id for stored in page]
        if len(found) < len(there):
            storage.tasks.insert(task_in("pending"))
            gone = page[0]
            storage.tasks.replace(gone, with_last_run(gone.task, state="completed"))
    assert there <= set(found)
    assert len(found) == len(set(found))


def test_tasks_are_removed_once_they_are_resolved_and_have_expired(storage: Storage) -> None:
    tick = timedelta(milliseconds=1)
    states = ("completed", "failed", "exception", "unscheduled", "pending", "running")
    tasks = [task_in(state, CREATED + tick * n) for n in range(3) for state in states]
    for task in tasks:
        storage.tasks.insert(task)
    remove_all_expired(storage.tasks, CREATED + tick)
    kept = [task.task_id for task in tasks if storage.tasks.load(task.task_id)]
    assert kept == [task.task_id for task in tasks[3:]]
    late = storage.tasks.load(tasks[4].task_id)
    assert late
    storage.tasks.replace(late, with_last_run(late.task, state="exception"))
    remove_all_expired(storage.tasks, CREATED + tick)
    assert storage.tasks.load(tasks[4].task_id) is None


def test_a_removal_keeps_its_limit_and_any_process_continues_it(storage: Storage, other: Storage) -> None:
    tasks = [task_in("completed", CREATED) for _ in range(5)]
    for task in tasks:
        storage.tasks.insert(task)
    left, after = [], ""
    stores = itertools.cycle([storage, other])
    for _ in range(3):
        after = next(stores).tasks.remove_expired(CREATED + timedelta(days=1), after, 2) or ""
        left.append(sum(storage.tasks.load(task.task_id) is not None for task in tasks))
    assert left == [3, 1, 0]


def test_several_processes_can_remove_expired_tasks_concurrently(storage: Storage, other: Storage) -> None:
    tasks = [task_in("completed", CREATED) for _ in range(20)]
    for task in tasks:
        storage.tasks.insert(task)
    with ThreadPoolExecutor(2) as threads:
        now = CREATED + timedelta(days=1)
        list(threads.map(lambda one: remove_all_expired(one.tasks, now, 5), (storage, other)))
    assert not any(storage.tasks.load(task.task_id) for task in tasks)


def test_task_ids_are_listed_in_order_of_unresolved_or_of_all_tasks(storage: Storage) -> None:
    states = ["unscheduled", "pending", "running", "completed", "failed", "exception"]
    stored = {storage.tasks.insert(task_in(state)).task.task_id: state for state in states}
    all_ids = sorted(stored)
    unresolved_ids = [task_id for task_id in all_ids if stored[task_id] in states[:3]]
    assert storage.tasks.ids("", 9, resolved_too=True) == all_ids
    assert storage.tasks.ids(all_ids[1], 2, resolved_too=True) == all_ids[2:4]
    assert storage.tasks.ids("", 9, resolved_too=False) == unresolved_ids
    assert storage.tasks.ids(unresolved_ids[-1], 9, resolved_too=False) == []


def test_a_removed_task_is_forgotten_and_cannot_be_changed(storage: Storage) -> None:
    stored = storage.tasks.insert(task_in("completed", CREATED))
    storage.tasks.remove_expired(CREATED + timedelta(days=1), "", 10)
    assert storage.tasks.recall(stored.task.task_id) is None
    with pytest.raises(Changed):
        storage.tasks.replace(stored, stored.task)
    assert storage.tasks.load(stored.task.task_id) is None
    storage.tasks.insert(stored.task)


def test_a_task_that_this_process_wrote_is_marked_as_own(storage: Storage) -> None:
    stored = storage.tasks.insert(new_task())
    changed = storage.tasks.replace(stored, with_last_run(stored.task, state="failed"))
    read_again = storage.tasks.load(stored.task.task_id)
    assert read_again
    assert (stored.is_own, changed.is_own, read_again.is_own) == (True, True, True)
