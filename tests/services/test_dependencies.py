"""Tasks that wait for others: docs/explanation/http-contract.md#dependencies."""

from collections.abc import Callable
from typing import Any

import pytest

from legacy_queue.domain.errors import InputError, RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.stores import Dependent
from tests.services.bench import (
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Calls,
    Crash,
    failing,
    task_body,
)

DAY = 24 * HOUR


@pytest.fixture
def bench() -> Bench:
    return Bench()


def dependents(bench: Bench, task_id: str) -> list[str]:
    return [one.task_id for one in bench.storage.dependencies.dependents(task_id, "", 999)]


def test_a_task_waits_for_all_of_its_dependencies(bench: Bench) -> None:
    first, second = bench.create(), bench.create()
    waiting = bench.create(dependencies=[first, second])
    assert bench.task(waiting).state == "unscheduled"
    bench.run(first)
    bench.run_timers()
    assert (bench.task(waiting).state, bench.task(waiting).waits_for) == ("unscheduled", (second,))
    bench.events()
    bench.run(second)
    bench.run_timers()
    assert bench.states(waiting) == ["pending"]
    assert waiting in [message.task_id for message in bench.receive()]
    assert ("task-pending", waiting, 0) in bench.events()


@pytest.mark.parametrize(
    ("requires", "state", "goes_on"),
    [
        ("all-completed", "completed", True),
        ("all-completed", "failed", False),
        ("all-completed", "exception", False),
        ("all-resolved", "completed", True),
        ("all-resolved", "failed", True),
        ("all-resolved", "exception", True),
    ],
)
def test_what_a_task_requires_of_its_dependencies(
    bench: Bench, requires: str, state: str, goes_on: bool
) -> None:
    required = bench.create()
    early = bench.create(dependencies=[required], requires=requires)
    if state == "exception":
        bench.services.tasks.cancel(required)
    else:
        bench.run(required, state)
    bench.run_timers()
    late = bench.create(dependencies=[required], requires=requires)
    for task_id in (early, late):
        assert bench.task(task_id).state == ("pending" if goes_on else "unscheduled")


def test_a_retried_run_releases_nobody(bench: Bench) -> None:
    required = bench.claimed()
    waiting = bench.create(dependencies=[required], requires="all-resolved")
    bench.shut_down(required)
    bench.run_timers(MINUTE)
    assert bench.task(waiting).state == "unscheduled"


def test_a_diamond_comes_together(bench: Bench) -> None:
    top = bench.create()
    left, right = bench.create(dependencies=[top]), bench.create(dependencies=[top])
    bottom = bench.create(dependencies=[left, right])
    for task_id in (top, left, right):
        assert bench.task(bottom).state == "unscheduled"
        bench.run(task_id)
        bench.run_timers()
    assert bench.states(bottom) == ["pending"]
    told = bench.events()
    assert told.count(("task-pending", bottom, 0)) == 1


def test_a_task_may_have_100_dependencies_and_100_dependents(bench: Bench) -> None:
    required = [bench.create() for _ in range(100)]
    waiting = [bench.create(dependencies=required[:1]) for _ in range(150)]
    last = bench.create(dependencies=required)
    for task_id in required:
        bench.run(task_id)
        bench.run_timers()
    assert {bench.task(task_id).state for task_id in (*waiting, last)} == {"pending"}


def test_a_task_whose_dependencies_are_completed_is_pending_at_once(bench: Bench) -> None:
    required = bench.create()
    bench.run(required)
    bench.events()
    task_id = bench.create(dependencies=[required])
    assert bench.states(task_id) == ["pending"]
    assert bench.events() == [("task-defined", task_id, None), ("task-pending", task_id, 0)]


def test_a_task_that_depends_on_itself_waits_until_it_is_scheduled(bench: Bench) -> None:
    task_id = slugid()
    bench.services.tasks.create(task_id, task_body(dependencies=[task_id]))
    assert dependents(bench, task_id) == [task_id]
    bench.run_timers(HOUR)
    assert bench.task(task_id).state == "unscheduled"
    assert bench.services.tasks.schedule(task_id).state == "pending"


@pytest.mark.parametrize("requires", ["all-completed", "all-resolved"])
def test_a_task_that_depends_on_itself_is_not_written_again_when_it_is_resolved(
    bench: Bench, requires: str
) -> None:
    task_id, other = slugid(), bench.create()
    body = task_body(dependencies=[other, task_id], requires=requires)
    bench.services.tasks.create(task_id, body)
    bench.services.tasks.schedule(task_id)
    bench.run(task_id)
    stored = bench.storage.tasks.load(task_id)
    waiting = bench.create(dependencies=[task_id])
    bench.run_timers()
    bench.sweep(HOUR)
    assert bench.storage.tasks.load(task_id) == stored
    assert bench.task(waiting).state == "pending"


def nothing_left(bench: Bench, task_id: str, group: str, *required: str) -> None:
    assert bench.storage.tasks.load(task_id) is None
    assert bench.storage.groups.load(group) is None
    assert [dependents(bench, one) for one in required] == [[] for _ in required]
    bench.run_timers()
    assert task_id not in [timer.task_id for timer, _ in bench.timers()]
    assert bench.events() == []


def test_a_missing_dependency_is_refused_by_name_and_nothing_is_left(bench: Bench) -> None:
    there, missing, task_id = bench.create(), slugid(), slugid()
    bench.run(there)
    bench.run_timers(MINUTE)
    bench.events()
    with pytest.raises(InputError, match=f"{missing} does not exist"):
        bench.services.tasks.create(task_id, task_body(dependencies=[there, missing]))
    nothing_left(bench, task_id, task_id, there, missing)


def test_a_dependency_that_expires_before_the_deadline_is_refused_and_nothing_is_left(bench: Bench) -> None:
    soon = bench.create(deadline=format_time(NOW + HOUR), expires=format_time(NOW + DAY - SECOND))
    later = bench.create(deadline=format_time(NOW + HOUR), expires=format_time(NOW + DAY))
    for one in (soon, later):
        bench.run(one)
    bench.run_timers(MINUTE)
    bench.events()
    task_id = slugid()
    body = task_body(deadline=format_time(NOW + DAY), dependencies=[later, soon])
    with pytest.raises(InputError, match=f"dependencies: {soon} expires at 2030-01-03T03:04:04") as error:
        bench.services.tasks.create(task_id, body)
    assert later not in str(error.value)
    nothing_left(bench, task_id, task_id, soon, later)
    bench.services.tasks.create(task_id, {**body, "dependencies": [later]})


def test_of_many_missing_dependencies_ten_are_named(bench: Bench) -> None:
    missing = [slugid() for _ in range(13)]
    with pytest.raises(InputError, match="and 3 more") as error:
        bench.create(dependencies=missing)
    assert [one in str(error.value) for one in missing] == [True] * 10 + [False] * 3


def resolved_at(call: str) -> Callable[[Bench, str], Any]:
    return lambda bench, required: At(0, of=call, before=lambda: (bench.run(required), bench.run_timers()))


@pytest.mark.parametrize("call", ["join", "timer.put", "insert", "broker.publish", "dependency.add"])
def test_a_dependency_that_is_resolved_while_the_task_is_created_is_not_overlooked(
    bench: Bench, call: str
) -> None:
    required, task_id = bench.create(), slugid()
    meanwhile = resolved_at(call)(bench, required)
    body = task_body(dependencies=[required], taskGroupId=slugid())
    task = bench.replica(meanwhile).tasks.create(task_id, body)
    assert meanwhile.happened
    assert dependents(bench, required) == [task_id]
    assert task.state == "pending"
    assert bench.task(task_id) == task
    of_it = [event for event in bench.events() if event[1] == task_id]
    assert of_it == [("task-defined", task_id, None), ("task-pending", task_id, 0)]


@pytest.mark.parametrize("call", ["insert", "broker.publish", "dependency.add"])
def test_it_is_found_by_the_timer_where_the_server_dies_before_it_looks_again(
    bench: Bench, call: str
) -> None:
    required, task_id = bench.create(), slugid()
    dies = At(0, of=call, after=failing(Crash()))
    with pytest.raises(Crash):
        bench.replica(dies).tasks.create(task_id, task_body(dependencies=[required]))
    bench.run(required)
    bench.run_timers()
    bench.run_timers(MINUTE)
    assert bench.states(task_id) == ["pending"]
    assert dependents(bench, required) == [task_id]
    of_it = list(dict.fromkeys(event for event in bench.events() if event[1] == task_id))
    assert of_it == [("task-defined", task_id, None), ("task-pending", task_id, 0)]


def test_a_task_that_waits_for_nobody_is_listed_though_the_server_died(bench: Bench) -> None:
    required, task_id = bench.create(), slugid()
    bench.run(required)
    dies = At(0, of="insert", after=failing(Crash()))
    with pytest.raises(Crash):
        bench.replica(dies).tasks.create(task_id, task_body(dependencies=[required]))
    bench.run_timers(MINUTE)
    assert dependents(bench, required) == [task_id]


def test_a_timer_of_a_resolution_that_comes_twice_releases_once(bench: Bench) -> None:
    required = bench.create()
    waiting = bench.create(dependencies=[required])
    bench.run(required)
    bench.double_timers()
    bench.run_timers()
    bench.run(waiting)
    bench.double_timers()
    bench.run_timers(MINUTE)
    bench.events()
    bench.run_timers(MINUTE)
    assert bench.states(waiting) == ["completed completed"]
    assert not [one for one in bench.events() if one[0] in ("task-pending", "task-running")]


def test_a_dependency_that_is_rerun_does_not_take_back_what_it_released(bench: Bench) -> None:
    required = bench.create()
    early = bench.create(dependencies=[required])
    bench.run(required)
    bench.services.tasks.rerun(required)
    bench.run_timers()  # the resolution is told after the rerun
    assert bench.task(early).state == "pending"
    late = bench.create(dependencies=[required])
    assert bench.task(late).state == "unscheduled"
    bench.run(required)
    bench.run_timers()
    assert bench.task(late).state == "pending"


def test_a_failed_dependency_releases_once_it_is_rerun_and_completes(bench: Bench) -> None:
    required = bench.create()
    waiting = bench.create(dependencies=[required])
    bench.run(required, "failed")
    bench.run_timers()
    assert bench.task(waiting).state == "unscheduled"
    bench.services.tasks.rerun(required)
    bench.run(required)
    bench.run_timers()
    assert bench.task(waiting).state == "pending"


def test_a_resolution_of_the_first_run_counts_as_it_was_though_the_rerun_failed(bench: Bench) -> None:
    required = bench.create()
    waiting = bench.create(dependencies=[required])
    bench.run(required, "completed")
    bench.services.tasks.rerun(required)
    bench.run(required, "failed")
    bench.run_timers()
    assert bench.task(waiting).state == "pending"


def test_creating_a_waiting_task_again_answers_as_it_is(bench: Bench) -> None:
    required, task_id = bench.create(), slugid()
    body = task_body(dependencies=[required])
    first = bench.services.tasks.create(task_id, body)
    assert bench.services.tasks.create(task_id, body) == first
    bench.run(required)
    bench.run_timers()
    again = bench.services.tasks.create(task_id, body)
    assert (again.state, again.runs) == ("pending", bench.task(task_id).runs)


def test_creating_it_again_sees_what_was_overlooked(bench: Bench) -> None:
    """Its dependency was resolved, and the message that would tell so was lost."""
    required, task_id = bench.create(), slugid()
    body = task_body(dependencies=[required])
    bench.services.tasks.create(task_id, body)
    bench.run(required)
    assert bench.services.tasks.create(task_id, body).state == "pending"


def test_a_refused_definition_of_a_task_that_there_is_leaves_its_dependencies_as_they_are(
    bench: Bench,
) -> None:
    kept, other, task_id = bench.create(), bench.create(), slugid()
    bench.services.tasks.create(task_id, task_body(dependencies=[kept]))
    timers = bench.timers()
    with pytest.raises(RequestConflict, match="dependencies differs"):
        bench.services.tasks.create(task_id, task_body(dependencies=[kept, other]))
    assert (dependents(bench, kept), dependents(bench, other)) == ([task_id], [])
    bench.run_timers()
    assert bench.timers() == timers
    bench.run(kept)
    bench.run_timers()
    assert bench.states(task_id) == ["pending"]


def test_a_dependent_that_does_not_exist_holds_up_no_other(bench: Bench) -> None:
    required = bench.create()
    bench.storage.dependencies.add(required, Dependent("-" * 22, "all-completed"), NOW + DAY)
    waiting = bench.create(dependencies=[required])
    bench.run(required)
    bench.run_timers()
    assert bench.states(waiting) == ["pending"]


def test_a_dependent_past_its_deadline_is_not_scheduled(bench: Bench) -> None:
    required = bench.create()
    waiting = bench.create(dependencies=[required], deadline=format_time(NOW + HOUR))
    bench.clock.advance(HOUR)
    bench.run(required)
    bench.core.resolver.handle_all()
    assert (bench.task(waiting).state, bench.task(waiting).waits_for) == ("unscheduled", ())
    bench.run_timers(SECOND)
    assert bench.states(waiting) == ["exception deadline-exceeded"]


def test_ten_thousand_dependents_are_released_and_cost_the_other_tasks_nothing(bench: Bench) -> None:
    required, calls = bench.create(), Calls()
    expires = NOW + 2 * DAY
    for _ in range(9_999):  # rows of tasks that have expired
        bench.storage.dependencies.add(required, Dependent(slugid(), "all-completed"), expires)
    waiting = bench.create(dependencies=[required])
    server = bench.server(calls)
    bench.complete_by(server, required)
    assert bench.states(waiting) == ["pending"]
    assert calls.names.count("dependency.dependents") == 101
    calls.names.clear()
    bench.complete_by(server, bench.create())
    assert [name for name in calls.names if name.startswith("dependency.")] == ["dependency.has_any"]


def test_a_process_that_dies_among_many_dependents_leaves_none_behind(bench: Bench) -> None:
    required = bench.create()
    waiting = [bench.create(dependencies=[required]) for _ in range(130)]
    dying = bench.server(At(60, of="replace", before=failing(Crash())))
    with pytest.raises(Crash):
        bench.complete_by(dying, required)
    states = [bench.task(one).state for one in waiting]
    assert 0 < states.count("pending") < 130
    bench.run_timers(MINUTE)
    assert {bench.task(one).state for one in waiting} == {"pending"}


def test_what_creating_with_a_dependency_costs(bench: Bench) -> None:
    required, calls = bench.create(), Calls()
    bench.replica(calls).tasks.create(slugid(), task_body(dependencies=[required]))
    assert calls.names == ["load", "timer.put", "insert", "broker.publish", "dependency.add", "load"]


def test_a_task_that_waits_is_claimed_by_nobody(bench: Bench) -> None:
    waiting = bench.create(dependencies=[bench.create()])
    assert waiting not in [message.task_id for message in bench.receive()]
    bench.run_timers(CLAIM_TIMEOUT)
    assert waiting not in [message.task_id for message in bench.receive()]
