"""What ends a task at its deadline: "Timers" in design/protocol.md."""

from collections.abc import Callable

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from tests.services.bench import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    Bench,
    task_body,
)

DAY = 24 * HOUR


@pytest.fixture
def bench() -> Bench:
    return Bench()


def defined(bench: Bench) -> str:
    task_id = slugid()
    bench.services.tasks.define(task_id, task_body(bench.clock.now()))
    return task_id


CREATED: dict[str, Callable[[Bench], str]] = {
    "unscheduled": defined,
    "pending": lambda bench: bench.create(),
    "running": lambda bench: bench.claimed(),
    "retried": lambda bench: bench.shut_down(bench.claimed()).task_id,
}


@pytest.mark.parametrize("create", CREATED.values(), ids=CREATED)
def test_a_task_that_is_not_resolved_ends_at_its_deadline(
    bench: Bench, create: Callable[[Bench], str]
) -> None:
    task_id = create(bench)
    if bench.task(task_id).state == "running":
        for _ in range(95):  # claims, kept up to the end
            bench.run_timers(15 * MINUTE)
            bench.services.claims.reclaim(task_id, 0)
        bench.run_timers(15 * MINUTE - MINUTE)
    else:
        bench.run_timers(DAY - MINUTE)
    before = bench.task(task_id)
    assert not before.is_resolved
    bench.events()
    bench.run_timers(MINUTE - SECOND)
    assert bench.task(task_id) == before
    bench.run_timers(2 * SECOND)
    assert bench.states(task_id)[-1] == "exception deadline-exceeded"
    run_id = max(len(before.runs), 1) - 1
    assert len(bench.task(task_id).runs) == run_id + 1
    told = bench.events()
    assert told[-2:] == [("task-exception", task_id, run_id), ("task-group-resolved", task_id, None)]
    assert bench.timers("deadlines") == []


def test_its_events_name_the_worker_that_had_it(bench: Bench) -> None:
    bench.claimed(deadline=format_time(NOW + MINUTE))
    bench.run_timers(MINUTE + SECOND)
    *_, (_, event), _ = bench.storage.event_log.read("0" * 16, 99)
    assert event.exchange == "task-exception"
    assert event.payload["workerId"] == "alice"


def test_what_is_resolved_stays_as_it_is(bench: Bench) -> None:
    task_id = bench.claimed()
    done = bench.complete(task_id)
    bench.run_timers(DAY + SECOND)
    assert bench.task(task_id) == done
    assert bench.timers("deadlines") == []


def test_what_was_rerun_ends_at_its_deadline(bench: Bench) -> None:
    task_id = bench.create()
    bench.run(task_id)
    bench.run_timers()
    bench.lose_timers("deadlines")
    bench.services.tasks.rerun(task_id)
    bench.run_timers(DAY + SECOND)
    assert bench.states(task_id) == ["completed completed", "exception deadline-exceeded"]


def test_a_doubled_timer_ends_a_task_once(bench: Bench) -> None:
    task_id = bench.create()
    bench.core.timers.settle_all(HOUR)
    bench.double_timers("deadlines")
    bench.events()
    bench.run_timers(DAY + SECOND)
    assert bench.events() == [("task-exception", task_id, 0), ("task-group-resolved", task_id, None)]
    assert len(bench.task(task_id).runs) == 1


def test_an_early_timer_waits_for_the_deadline(bench: Bench) -> None:
    task_id = bench.create()
    bench.core.timers.settle_all(HOUR)
    bench.hasten_timers("deadlines")
    bench.run_timers(HOUR)
    assert bench.states(task_id) == ["pending"]
    bench.run_timers(DAY)
    assert bench.states(task_id) == ["exception deadline-exceeded"]


def test_a_late_timer_ends_a_task_late(bench: Bench) -> None:
    task_id = bench.create()
    bench.run_timers(3 * DAY)
    assert bench.task(task_id).runs[0].resolved == NOW + 3 * DAY


def test_a_task_whose_message_was_lost_ends_at_its_deadline(bench: Bench) -> None:
    task_id = bench.create()
    bench.delete(bench.receive_one())
    bench.run_timers(DAY + SECOND)
    assert bench.states(task_id) == ["exception deadline-exceeded"]


def test_a_deadline_within_seconds_is_kept(bench: Bench) -> None:
    task_id = bench.create(deadline=format_time(NOW + 3 * SECOND))
    bench.run_timers(4 * SECOND)
    assert bench.states(task_id) == ["exception deadline-exceeded"]


def test_no_message_of_a_task_is_left_after_its_deadline(bench: Bench) -> None:
    bench.claimed()
    bench.run_timers(DAY + SECOND)
    assert bench.messages() == []
