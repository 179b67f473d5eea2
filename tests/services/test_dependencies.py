"""Tasks that depend on others: docs/explanation/http-contract.md#task-status."""

import pytest

from legacy_queue.domain.errors import InputError
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.stores import Dependent
from tests.domain.sample_tasks import DAY, HOUR, MINUTE, NOW, SECOND, task_body
from tests.services.fake_ports import CallRecorder, FaultAt
from tests.services.harness import Harness


def dependents(harness: Harness, task_id: str) -> list[str]:
    return [dependent.task_id for dependent in harness.storage.dependencies.dependents(task_id, "", 999)]


def test_a_task_whose_dependency_expires_before_its_deadline_is_refused_and_nothing_is_stored(
    harness: Harness,
) -> None:
    soon = harness.create(deadline=format_time(NOW + HOUR), expires=format_time(NOW + DAY - SECOND))
    later = harness.create(deadline=format_time(NOW + HOUR), expires=format_time(NOW + DAY))
    for required in (soon, later):
        harness.run(required)
    harness.do_work(MINUTE)
    harness.events()
    task_id = slugid()
    body = task_body(deadline=format_time(NOW + DAY), dependencies=[later, soon])
    with pytest.raises(InputError, match=f"dependencies: {soon} expires at 2030-01-03T03:04:04") as error:
        harness.services.tasks.create(task_id, body)
    assert later not in str(error.value)
    assert harness.storage.tasks.load(task_id) is None
    assert harness.storage.groups.load(task_id) is None
    assert dependents(harness, soon) == dependents(harness, later) == []
    harness.do_work(5 * SECOND)
    assert [row.names for row in harness.processes()] == [[]]
    assert harness.events() == []
    harness.services.tasks.create(task_id, {**body, "dependencies": [later]})


def test_a_task_becomes_pending_when_its_dependencies_meet_its_requirement(harness: Harness) -> None:
    for requires, state, then in (
        ("all-completed", "completed", "pending"),
        ("all-completed", "failed", "unscheduled"),
        ("all-resolved", "failed", "pending"),
    ):
        required = harness.create()
        early = harness.create(dependencies=[required], requires=requires)
        harness.run(required, state)
        harness.do_work()
        late = harness.create(dependencies=[required], requires=requires)
        assert [harness.task(task_id).state for task_id in (early, late)] == [then, then]


def test_the_dependents_of_a_task_are_read_in_pages_and_only_for_that_task(harness: Harness) -> None:
    required, calls = harness.create(), CallRecorder()
    expires = NOW + 2 * DAY
    for _ in range(299):  # rows whose tasks have expired
        harness.storage.dependencies.add(required, Dependent(slugid(), "all-completed"), expires)
    waiting = harness.create(dependencies=[required])
    harness.services = harness.replica(calls)
    harness.run(required)
    harness.do_work()
    assert harness.states(waiting) == ["pending"]
    assert calls.names.count("dependency.dependents") == 4
    calls.names.clear()
    task_id = harness.create()
    harness.run(task_id)
    harness.do_work()
    assert [name for name in calls.names if name.startswith("dependency.")] == ["dependency.has_any"]


def test_each_dependency_costs_two_reads_and_one_row(harness: Harness) -> None:
    required, calls = harness.create(), CallRecorder()
    harness.replica(calls).tasks.create(slugid(), task_body(dependencies=[required]))
    assert calls.names == [
        "load",
        "process.write",
        "join",
        "insert",
        "broker.publish",
        "dependency.add",
        "load",
    ]


def test_a_dependency_that_is_resolved_while_the_task_is_created_satisfies_the_task(harness: Harness) -> None:
    required, task_id = harness.create(), slugid()
    meanwhile = FaultAt(0, of="insert", before=lambda: (harness.run(required), harness.do_work()))
    task = harness.replica(meanwhile).tasks.create(task_id, task_body(dependencies=[required]))
    assert (task.state, dependents(harness, required)) == ("pending", [task_id])
    events = dict.fromkeys(event for event in harness.events() if event[1] == task_id)
    assert [*events] == [("task-defined", task_id, None), ("task-pending", task_id, 0)]


def test_a_defined_task_that_names_itself_as_a_dependency_depends_on_itself_only_once(
    harness: Harness,
) -> None:
    task_id = slugid()
    task = harness.services.tasks.define(task_id, task_body(dependencies=[task_id]))
    assert task.definition.dependencies == (task_id,)
