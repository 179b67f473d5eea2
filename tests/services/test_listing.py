"""Lists of tasks. A page begins behind a taskId: tasks that are added do not shift it."""

import threading
from collections.abc import Callable
from typing import cast

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Task
from legacy_queue.services.pages import Page
from legacy_queue.stores import StoredTask, TaskStore
from tests.services.harness import HOUR, Crash, FaultAt, Harness, failing, task_body
from tests.services.ports import DelegatingTasks

DAY = 24 * HOUR


@pytest.fixture
def harness() -> Harness:
    return Harness()


def id_of(task: Task) -> bytes:
    return task.task_id.encode()


def ids(listed: Page[str]) -> list[str]:
    return [item.decode() for item in listed.items]


def create(harness: Harness, kind: str, about: str) -> str:
    return harness.create(taskGroupId=about) if kind == "group" else harness.create(dependencies=[about])


def page(
    harness: Harness,
    kind: str,
    about: str,
    after: str = "",
    limit: int = 1000,
    render: Callable[[Task], bytes] = id_of,
) -> Page[str]:
    listing = harness.services.listing
    return (listing.group if kind == "group" else listing.dependents)(about, after, limit, render)


@pytest.fixture(params=["group", "dependents"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def about(harness: Harness, kind: str) -> str:
    return slugid() if kind == "group" else harness.create()


def test_tasks_are_listed_in_the_order_of_their_ids_with_their_current_state(
    harness: Harness, kind: str, about: str
) -> None:
    tasks = [create(harness, kind, about) for _ in range(30)]
    create(harness, kind, harness.create())
    harness.services.tasks.cancel(tasks[0])
    listed = page(harness, kind, about)
    assert ids(listed) == sorted(tasks)
    assert listed.after is None
    states = page(harness, kind, about, render=lambda task: task.state.encode())
    assert list(states.items) == [harness.task(task_id).state.encode() for task_id in sorted(tasks)]


def test_added_tasks_do_not_shift_a_page(harness: Harness, kind: str, about: str) -> None:
    before = [create(harness, kind, about) for _ in range(20)]
    first = page(harness, kind, about, limit=10)
    assert first.after
    rest = ids(page(harness, kind, about, first.after))
    added = [create(harness, kind, about) for _ in range(20)]
    now = ids(page(harness, kind, about, first.after))
    assert [task_id for task_id in now if task_id not in added] == rest
    assert ids(first) + rest == sorted(before)


def test_a_task_that_depends_on_itself_is_among_its_dependents(harness: Harness) -> None:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body())
    assert ids(page(harness, "dependents", task_id)) == [task_id]
    other = harness.create(dependencies=[task_id])
    assert ids(page(harness, "dependents", task_id)) == sorted([task_id, other])


def test_a_task_that_was_satisfied_when_it_was_created_is_listed(harness: Harness) -> None:
    required = harness.create()
    harness.run(required)
    task_id = harness.create(dependencies=[required])
    assert ids(page(harness, "dependents", required)) == [task_id]


def test_a_refused_task_is_not_listed(harness: Harness) -> None:
    group = slugid()
    member, other = harness.create(taskGroupId=group), harness.create()
    with pytest.raises(RequestConflict):
        harness.services.tasks.create(other, task_body(taskGroupId=group))
    assert ids(page(harness, "group", group)) == [member]


@pytest.mark.parametrize("exists", [True, False])
def test_a_member_row_without_its_task_is_not_listed(harness: Harness, exists: bool) -> None:
    group = slugid()
    member = harness.create(taskGroupId=group)
    body, task_id = task_body(taskGroupId=group), harness.create() if exists else slugid()
    with pytest.raises(Crash):
        harness.replica(FaultAt(0, of="insert", before=failing(Crash()))).tasks.create(task_id, body)
    assert len(harness.storage.groups.members(group, "", 9)) == 2
    assert ids(page(harness, "group", group)) == [member]


class CountedTasks(DelegatingTasks):
    """Lets four reads happen at once, never fewer; at most ``max_concurrent`` were under way.

    A read of the group's founder is not counted and does not wait.
    """

    def __init__(self, tasks: TaskStore, founder: str) -> None:
        super().__init__(tasks)
        self._founder = founder
        self._four, self._lock = threading.Barrier(4), threading.Lock()
        self._under_way = self.max_concurrent = 0

    def load(self, task_id: str) -> StoredTask | None:
        if task_id == self._founder:
            return self.tasks.load(task_id)
        with self._lock:
            self._under_way += 1
            self.max_concurrent = max(self.max_concurrent, self._under_way)
        self._four.wait(30)
        with self._lock:
            self._under_way -= 1
        return self.tasks.load(task_id)


def test_a_list_reads_four_tasks_at_a_time(harness: Harness) -> None:
    about = slugid()
    tasks = [create(harness, "group", about) for _ in range(24)]
    counted: list[CountedTasks] = []

    def wrapped(tasks: TaskStore) -> TaskStore:
        counted.append(CountedTasks(tasks, about))
        return cast(TaskStore, counted[0])

    listing = harness.replica(wrap_tasks=wrapped).listing
    assert ids(listing.group(about, "", 1000, id_of)) == sorted(tasks)
    assert counted[0].max_concurrent == 4


def test_requested_tasks_are_listed_in_their_order() -> None:
    harness = Harness()
    tasks = [harness.create() for _ in range(4)]
    requested = [tasks[2], slugid(), *tasks[:2], tasks[3]]

    def listed(after: str) -> tuple[list[str], str | None]:
        page = harness.services.listing.tasks(requested, after, 3, lambda task: task.task_id.encode())
        return [item.decode() for item in page.items], page.after

    assert listed("") == ([tasks[2], tasks[0]], "2")
    assert listed("2") == ([tasks[1], tasks[3]], None)
    assert listed("4") == ([], None)
