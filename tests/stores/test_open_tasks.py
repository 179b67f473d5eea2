"""The pending and running tasks. They are read from the table, then each write of the store updates them."""

from collections.abc import Sequence
from dataclasses import replace

from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.task import Task, Worker
from legacy_queue.stores import OpenTasks, Storage, TaskStore
from legacy_queue.stores.open_tasks import MAX_WRITES
from tests.domain.sample_tasks import SECOND, with_last_run
from tests.memory_server import MemoryTable

from .test_task_store import new_task

QUEUE = "provisioner/worker-Type_1"


def read(tasks: TaskStore, open_tasks: OpenTasks | None = None) -> OpenTasks:
    open_tasks, after = open_tasks or tasks.begin_open_tasks(), ""
    while (following := tasks.read_into(open_tasks, after)) is not None:
        after = following
    return open_tasks


def claimed(task: Task) -> Task:
    run = task.runs[-1]
    return with_last_run(task, state="running", worker=Worker("g", "w"), started=run.scheduled + SECOND)


def listed(open_tasks: OpenTasks, state: str) -> Sequence[str]:
    return [position.partition("/")[2] for position in open_tasks.positions(QUEUE, state, "", 10)]


def test_pending_and_running_tasks_are_read_with_their_task_queue_and_time(storage: Storage) -> None:
    pending, running, done, waiting = (new_task() for _ in range(4))
    for task in (pending, running, done, replace(waiting, runs=())):
        storage.tasks.insert(task, "")
    for task, changed in ((running, claimed(running)), (done, with_last_run(done, state="completed"))):
        stored = storage.tasks.load(task.task_id)
        assert stored
        storage.tasks.replace(stored, changed)
    open_tasks = read(storage.tasks)
    assert open_tasks.counts(QUEUE) == (1, 1)
    assert open_tasks.messages_needed(QUEUE) == 1, "a claim that lasts to the deadline holds no message"
    assert open_tasks.positions(QUEUE, "pending", "", 9) == [f"2030-01-02T03:04:05.678Z/{pending.task_id}"]
    assert open_tasks.positions(QUEUE, "running", "", 9) == [f"2030-01-02T03:04:06.678Z/{running.task_id}"]
    assert open_tasks.positions(QUEUE, "pending", open_tasks.positions(QUEUE, "pending", "", 9)[0], 9) == []
    assert open_tasks.counts("provisioner/another") == (0, 0)


def test_each_write_of_the_store_updates_the_open_tasks() -> None:
    tasks, task = TaskStore(MemoryTable()), new_task()
    open_tasks = read(tasks)
    stored = tasks.insert(task, "")
    assert (open_tasks.counts(QUEUE), listed(open_tasks, "pending")) == ((1, 0), [task.task_id])
    stored = tasks.replace(stored, replace(claimed(task), held=MessageLease("id", "receipt")))
    assert (open_tasks.messages_needed(QUEUE), read(tasks).messages_needed(QUEUE)) == (1, 1)
    open_tasks = read(tasks)
    assert (open_tasks.counts(QUEUE), listed(open_tasks, "running")) == ((0, 1), [task.task_id])
    tasks.replace(stored, with_last_run(task, state="completed"))
    assert open_tasks.messages_needed(QUEUE) == 0
    assert (open_tasks.counts(QUEUE), listed(open_tasks, "running")) == ((0, 0), [])


def test_an_outdated_page_does_not_overwrite_a_concurrent_write() -> None:
    table = MemoryTable()
    tasks, others, task = TaskStore(table), TaskStore(table), new_task()
    others.insert(task, "")
    open_tasks = tasks.begin_open_tasks()
    open_tasks.record_write(with_last_run(task, state="completed"))
    assert read(tasks, open_tasks).counts(QUEUE) == (0, 0)


def test_after_too_many_writes_the_open_tasks_are_full_until_the_table_was_read() -> None:
    task, open_tasks = new_task(), OpenTasks()
    for number in range(MAX_WRITES + 1):
        open_tasks.record_write(Task(f"task-{number}", task.definition, 5))
    found = [open_tasks.is_full]
    open_tasks.read([], is_last=True)
    assert [*found, open_tasks.is_full] == [False, True]
    open_tasks.record_write(task)
    assert open_tasks.counts(QUEUE) == (0, 0)
