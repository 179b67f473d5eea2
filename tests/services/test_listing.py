"""Lists of tasks. A page begins behind a taskId: tasks that are added do not shift it."""

from collections.abc import Callable

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Task
from legacy_queue.services.pages import Page
from tests.services.harness import Harness, task_body


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


def test_a_refused_task_is_not_listed(harness: Harness) -> None:
    group = slugid()
    member, other = harness.create(taskGroupId=group), harness.create()
    with pytest.raises(RequestConflict):
        harness.services.tasks.create(other, task_body(taskGroupId=group))
    assert ids(page(harness, "group", group)) == [member]
