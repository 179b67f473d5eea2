import random
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

import pytest

from legacy_queue.domain.definition import MAX_DEFINITION, TaskDefinition
from legacy_queue.domain.ids import MAX_RUNS, slugid
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.times import format_time
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.stores import Storage, TaskStore
from tests.domain.sample_tasks import DAY, MS, NOW, TASK_ID, task_body, with_last_run, with_new_run

from .paging import pages, remove_all_expired


def new_task(payload: Any = None) -> Task:
    task_id = slugid()
    definition = TaskDefinition.from_wire(task_id, task_body(payload=payload or {}), NOW)
    return with_new_run(Task(task_id, definition, definition.retries), "scheduled", NOW)


def test_every_field_of_the_largest_possible_task_is_read_back_unchanged(
    storage: Storage, other: Storage
) -> None:
    payload = {
        "text": "Grüße, 世界, \U0001f600, \x00\x1f\x7f\u2028\ufffe",
        "numbers": [2**63 - 1, -1e-7, 1e300, 0, True, None],
        "": {"": [], "PartitionKey": "x", "odata.etag": "y", "a.b/c#d?e": "z"},
        "noise": random.Random(1).randbytes(MAX_DEFINITION // 2 - 1000).hex(),
    }
    ended = with_last_run(
        new_task(payload),
        state="exception",
        reason_resolved="intermittent-task",
        worker=Worker("g" * 22, "w" * 22),
        taken_until=NOW + MS,
        started=NOW + 2 * MS,
        resolved=NOW + 999 * MS,
    )
    task = replace(
        ended,
        retries_left=3,
        runs=tuple(replace(ended.runs[0], run_id=run_id) for run_id in range(MAX_RUNS)),
        held=MessageLease("3fa85f64-5717-4562-b3fc-2c963f66afa6", "AgAAAAMAAAAAAAAA+/+/zwE="),
        newest_blob='"a%/b\\' * 204,
    ).with_priority("high", NOW)
    storage.tasks.replace(storage.tasks.insert(replace(task, retries_left=4), ""), task)
    loaded = other.tasks.load(task.task_id)
    assert loaded
    assert loaded.task == task


def test_a_barred_task_id_cannot_be_used_and_no_task_is_found_under_it(
    storage: Storage, other: Storage
) -> None:
    task = new_task()
    assert storage.tasks.prevent_creation(task.task_id, NOW + 30 * DAY)
    assert other.tasks.prevent_creation(task.task_id, NOW + 30 * DAY)
    with pytest.raises(AlreadyExists):
        other.tasks.insert(task, "")
    assert other.tasks.load(task.task_id) is None
    assert unresolved(storage.tasks, 1000) == []
    remove_all_expired(storage.tasks, NOW + 30 * DAY)
    assert storage.tasks.prevent_creation(task.task_id, NOW)
    remove_all_expired(storage.tasks, NOW + 31 * DAY)
    assert storage.tasks.insert(task, "").task == task
    assert not other.tasks.prevent_creation(task.task_id, NOW)


def test_a_task_names_the_write_that_last_had_effects(storage: Storage, other: Storage) -> None:
    stored = storage.tasks.insert(new_task(), "first/1")
    seen = other.tasks.load(stored.task.task_id)
    assert seen
    unchanged = other.tasks.replace(seen, replace(seen.task, newest_blob="a blob"))
    changed = other.tasks.replace(unchanged, with_last_run(seen.task, state="failed"), "other/7")
    back = storage.tasks.load(stored.task.task_id)
    assert back
    written = [version.written for version in (stored, seen, unchanged, changed, back)]
    assert written == ["first/1"] * 3 + ["other/7"] * 2


def test_a_process_that_takes_over_finds_all_unresolved_and_unpublished_tasks(storage: Storage) -> None:
    """A resolved task with unpublished events counts too. A search finds it by its state."""
    unsettled = [task_in("unscheduled"), task_in("running")]
    marked = [replace(task_in(state), is_unpublished=True) for state in ("pending", "completed", "failed")]
    for number, task in enumerate([*unsettled, *marked, task_in("completed")]):
        storage.tasks.insert(task, f"p/{number}")
    found = list(chain.from_iterable(pages(lambda after: storage.tasks.unsettled(after, 2))))
    assert {(each.task_id, each.is_unpublished) for each in found} == {
        *((task.task_id, False) for task in unsettled),
        *((task.task_id, True) for task in marked),
    }
    due = {each.task_id: (each.due, each.written) for each in found}
    assert due[unsettled[0].task_id] == (unsettled[0].definition.deadline, "p/0")
    assert due[marked[1].task_id] == (None, "p/3")
    failed, _ = storage.tasks.search("failed", "", "", 10)
    assert [each.task for each in failed] == [marked[2]]
    stored = storage.tasks.load(marked[1].task_id)
    assert stored
    storage.tasks.replace(stored, replace(stored.task, is_unpublished=False))
    completed, _ = storage.tasks.search("completed", "", "", 10)
    assert len(completed) == 2


def task_in(state: str, expires: datetime = NOW + 30 * DAY) -> Task:
    task = new_task()
    task = replace(task, definition=TaskDefinition({**task.definition.wire, "expires": format_time(expires)}))
    return replace(task, runs=()) if state == "unscheduled" else with_last_run(task, state=state)


def unresolved(tasks: TaskStore, limit: int) -> list[str]:
    found = list(pages(lambda after: tasks.unresolved(after, limit)))
    assert all(len(page) <= limit for page in found)
    return [stored.task.task_id for page in found for stored in page]


def test_tasks_are_removed_once_they_are_resolved_and_have_expired(storage: Storage) -> None:
    states = ("completed", "failed", "exception", "unscheduled", "pending", "running")
    tasks = [task_in(state, NOW + MS * n) for n in range(3) for state in states]
    for task in tasks:
        storage.tasks.insert(task, "")
    remove_all_expired(storage.tasks, NOW + MS)
    kept = [task.task_id for task in tasks if storage.tasks.load(task.task_id)]
    assert kept == [task.task_id for task in tasks[3:]]
    late = storage.tasks.load(tasks[4].task_id)
    assert late
    storage.tasks.replace(late, with_last_run(late.task, state="exception"))
    remove_all_expired(storage.tasks, NOW + MS)
    assert storage.tasks.load(tasks[4].task_id) is None


def test_a_search_by_state_lists_the_newest_task_first_if_the_storage_knows_the_age(storage: Storage) -> None:
    states = ["unscheduled", "pending", "running", "completed", "failed", "exception"]
    stored = {storage.tasks.insert(task_in(state), "").task.task_id: state for state in states}
    storage.tasks.prevent_creation(TASK_ID, NOW + DAY)

    def found(state: str) -> list[str]:
        listed = pages(lambda after: storage.tasks.search(state, "", after, 2))
        return [one.task.task_id for page in listed for one in page]

    in_order = [*stored][::-1] if storage.tasks.knows_age else sorted(stored)
    unresolved_ids = [task_id for task_id in in_order if stored[task_id] in states[:3]]
    assert found("all") == in_order
    assert found("unresolved") == unresolved_ids
    assert [stored[task_id] for task_id in found("failed")] == ["failed"]
    assert unresolved(storage.tasks, 2) == sorted(unresolved_ids)


def test_a_removed_task_leaves_the_cache_and_cannot_be_changed(storage: Storage) -> None:
    stored = storage.tasks.insert(task_in("completed", NOW), "")
    storage.tasks.remove_expired(NOW + DAY, "", 10)
    assert storage.tasks.recall(stored.task.task_id) is None
    with pytest.raises(Changed):
        storage.tasks.replace(stored, stored.task)
    assert storage.tasks.load(stored.task.task_id) is None
    storage.tasks.insert(stored.task, "")
