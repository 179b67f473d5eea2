"""What a task store remembers is never older than what was written here meanwhile."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from legacy_queue.domain.task import Task
from legacy_queue.ports.table import Row, Value
from legacy_queue.stores import StoredTask, TaskStore
from tests.domain.tasks import with_last_run
from tests.memory_server import MemoryTable

from .test_task_store import CREATED, new_task


class SlowTable(MemoryTable):
    """Something happens between what it does and its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] = lambda: None

    def _answered(self) -> None:
        act, self.meanwhile = self.meanwhile, lambda: None
        act()

    def get(self, partition: str, key: str) -> Row | None:
        row = super().get(partition, key)
        self._answered()
        return row

    def merge(self, partition: str, key: str, values: Mapping[str, Value], etag: str | None = None) -> str:
        written = super().merge(partition, key, values, etag)
        self._answered()
        return written


def ended(task: Task) -> Task:
    return with_last_run(task, state="completed", reason_resolved="completed", resolved=CREATED)


def test_a_read_that_began_before_a_write_does_not_replace_the_remembered_task() -> None:
    table = SlowTable()
    tasks, task = TaskStore(table), new_task()
    stored = tasks.insert(task)
    table.meanwhile = lambda: tasks.replace(stored, ended(task))
    old = tasks.load(task.task_id)
    assert old
    assert (old.task, tasks.recall(task.task_id)) == (
        task,
        StoredTask(ended(task), current_etag(table, task)),
    )


def test_the_older_of_two_writes_answered_in_reverse_order_is_not_remembered() -> None:
    table = SlowTable()
    tasks, task = TaskStore(table), new_task()
    stored = tasks.insert(task)

    def write_again() -> None:
        newer = TaskStore(table).load(task.task_id)
        assert newer
        tasks.replace(newer, replace(newer.task, waits_for=("x",)))

    table.meanwhile = write_again
    tasks.replace(stored, ended(task))
    recalled = tasks.recall(task.task_id)
    assert recalled is None or recalled.etag == current_etag(table, task)


def current_etag(table: MemoryTable, task: Task) -> str:
    row = table.get(task.task_id, "task")
    assert row
    return row.etag
