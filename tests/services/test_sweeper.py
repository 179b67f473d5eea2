"""What no message leads to any more is found in the tables: docs/explanation/recovery.md#sweeper."""

from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.services.claims import Presented
from tests.services.bench import (
    ALICE,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    HandEvent,
    failing,
    task_body,
)

DAY = 24 * HOUR


@pytest.fixture
def bench() -> Bench:
    return Bench()


def lose_messages(bench: Bench) -> None:
    for message in bench.receive():
        bench.delete(message)


def test_a_run_whose_message_was_lost_is_offered_after_10_minutes_20_40_and_so_on(bench: Bench) -> None:
    bench.create()
    offered = []
    for minutes in range(1, 171):
        lose_messages(bench)
        bench.sweep(MINUTE)
        if bench.messages():
            offered.append(minutes)
    assert len(offered) == 5
    for at, wanted in zip(offered, (10, 20, 40, 80, 160), strict=True):
        assert wanted <= at <= wanted + 10


def test_what_waits_with_its_message_is_offered_again_too_and_runs_once(bench: Bench) -> None:
    task_id = bench.create()
    bench.sweep(11 * MINUTE)
    assert [run_id for run_id, _ in bench.runs_to_come()] == [0, 0]
    first, _ = bench.receive()
    bench.claim(first)
    bench.complete(task_id)
    assert bench.states(task_id) == ["completed completed"]


def test_nothing_is_offered_in_its_first_ten_minutes(bench: Bench) -> None:
    bench.create()
    lose_messages(bench)
    bench.sweep(9 * MINUTE)
    assert bench.messages() == []


def test_a_retry_is_offered_ten_minutes_after_it_became_pending(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.clock.advance(15 * MINUTE)
    bench.sweep()
    bench.shut_down(task_id)
    lose_messages(bench)
    bench.sweep(9 * MINUTE)
    bench.sweep(12 * MINUTE)
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1]


def test_a_claim_whose_timer_and_message_were_lost_is_ended_ten_minutes_late(bench: Bench) -> None:
    task_id = bench.claimed()
    task = bench.task(task_id)
    assert task.held
    bench.storage.work_queues.remove(task.work_queue, task.held)
    bench.lose_process()
    bench.sweep(CLAIM_TIMEOUT + 9 * MINUTE)
    assert bench.states(task_id) == ["running by alice"]
    bench.sweep(11 * MINUTE)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1]


def test_a_claim_that_is_extended_is_left_alone(bench: Bench) -> None:
    task_id = bench.claimed()
    for _ in range(8):
        bench.sweep(15 * MINUTE)
        bench.services.claims.reclaim(task_id, 0)
    assert bench.states(task_id) == ["running by alice"]


def defined(bench: Bench) -> str:
    task_id = slugid()
    bench.services.tasks.define(task_id, task_body(deadline=format_time(NOW + HOUR)))
    return task_id


def claimed(bench: Bench) -> str:
    """Up to its deadline."""
    task_id = bench.claimed(deadline=format_time(NOW + HOUR))
    for _ in range(3):
        bench.clock.advance(15 * MINUTE)
        bench.services.claims.reclaim(task_id, 0)
    return task_id


@pytest.mark.parametrize(
    "create",
    [
        defined,
        lambda bench: bench.create(deadline=format_time(NOW + HOUR)),
        claimed,
    ],
    ids=["unscheduled", "pending", "running"],
)
def test_a_task_whose_deadline_timer_was_lost_is_ended_within_twenty_minutes(
    bench: Bench, create: Callable[[Bench], str]
) -> None:
    task_id = create(bench)
    bench.lose_process()
    bench.sweep(NOW + HOUR - SECOND - bench.clock.now())
    assert bench.states(task_id)[-1:] != ["exception deadline-exceeded"]
    for _ in range(2):
        bench.sweep(10 * MINUTE)
    assert bench.states(task_id)[-1:] == ["exception deadline-exceeded"]
    bench.run_timers()
    assert bench.events()[-1] == ("task-group-resolved", task_id, None)


@pytest.mark.parametrize("is_away", [False, True])
def test_a_resolution_that_nobody_was_told_of_is_told(bench: Bench, is_away: bool) -> None:
    """Also where the broker is away when the sweeper finds it."""
    group = slugid()
    task_id = bench.create(taskGroupId=group)
    waiting = bench.create(dependencies=[task_id])
    bench.run(task_id)
    bench.lose_process()
    bench.events()
    bench.sweep(9 * MINUTE)
    bench.run_timers()
    assert bench.states(waiting) == []
    bench.broker.room = 0 if is_away else None
    bench.sweep(11 * MINUTE)
    bench.run_timers()
    bench.broker.room = None
    bench.run_timers(2 * SECOND)
    told = bench.events()
    assert ("task-group-resolved", group, None) in told
    assert ("task-pending", waiting, 0) in told
    assert [run_id for run_id, _ in bench.runs_to_come()].count(0) >= 1
    assert bench.storage.groups.all_active("", 9)[0] == []


def test_a_dependent_of_which_nobody_knew_is_found(bench: Bench) -> None:
    """Its server died after the task was stored, and the timer was lost, too."""
    required = bench.create()
    waiting = bench.create(dependencies=[required])
    bench.storage.dependencies._table.delete(required, waiting)
    bench.run(required)
    bench.run_timers()
    assert bench.states(waiting) == []
    bench.sweep(11 * MINUTE)
    assert bench.states(waiting) == ["pending"]


def test_a_task_that_waits_for_good_reason_is_left_waiting(bench: Bench) -> None:
    itself = defined(bench)
    waiting = bench.create(dependencies=[bench.create()])
    for _ in range(5):
        bench.sweep(11 * MINUTE)
    assert bench.states(itself) == bench.states(waiting) == []


def test_a_member_of_a_group_that_never_became_a_task_is_removed(bench: Bench) -> None:
    group, task_id = slugid(), slugid()
    other = bench.create()
    bench.storage.groups.join(task_id, group, "-", NOW + DAY)
    bench.storage.groups.join(other, group, "-", NOW + DAY)  # a definition that was refused
    bench.sweep(9 * MINUTE)
    assert len(bench.storage.groups.members(group, "", 9)) == 2
    bench.sweep(11 * MINUTE)
    bench.run_timers()
    assert list(bench.storage.groups.members(group, "", 9)) == []
    assert bench.storage.groups.all_active("", 9)[0] == []
    assert ("task-group-resolved", group, None) not in bench.events()


def test_a_task_that_expires_while_it_is_swept_is_passed_over(bench: Bench) -> None:
    gone = bench.create(deadline=format_time(NOW + MINUTE))
    other = bench.create(deadline=format_time(NOW + MINUTE))
    bench.lose_process()
    expires = At(
        0, of="unresolved", after=lambda: bench.storage.tasks._table.delete(min(gone, other), "task")
    )
    bench.sweep(20 * MINUTE, bench.server(expires))
    assert bench.storage.tasks.load(min(gone, other)) is None
    assert bench.states(max(gone, other)) == ["exception deadline-exceeded"]


def test_a_waiting_task_that_expires_while_it_is_swept_is_passed_over(bench: Bench) -> None:
    gone, other = sorted(bench.create() for _ in range(2))
    for message in bench.receive():
        bench.delete(message)
    expires = At(0, of="unresolved", after=lambda: bench.storage.tasks._table.delete(gone, "task"))
    bench.sweep(20 * MINUTE, bench.server(expires))
    assert [message.task_id for message in bench.receive()] == [other]


def test_a_task_that_cannot_be_swept_keeps_no_other_from_it(
    bench: Bench, logs: list[MutableMapping[str, Any]]
) -> None:
    tasks = sorted(bench.create(deadline=format_time(NOW + MINUTE)) for _ in range(2))
    bench.lose_process()
    fails = At(0, of="timer.put", before=failing(ValueError("a defect")))
    bench.sweep(20 * MINUTE, bench.server(fails))
    assert [bench.task(task_id).state for task_id in tasks] == ["pending", "exception"]
    assert "not-swept" in [one["event"] for one in logs]


def test_a_thousand_tasks_are_swept_page_by_page(bench: Bench) -> None:
    for _ in range(1001):
        bench.create()
    for _ in range(32):
        lose_messages(bench)
    assert bench.messages() == []
    bench.sweep(11 * MINUTE)
    assert len(bench.messages()) == 1001


def test_a_sweep_that_was_interrupted_goes_on_where_it_was(bench: Bench) -> None:
    for _ in range(250):
        bench.create()
    for _ in range(8):
        lose_messages(bench)
    bench.clock.advance(11 * MINUTE)
    server = bench.server(At(130, of="put", before=failing(ServiceUnavailable("storage is away"))))
    with pytest.raises(ServiceUnavailable):
        bench.sweep(server=server)
    assert len(bench.messages()) == 130
    bench.sweep(6 * MINUTE)
    assert len(bench.messages()) == 280  # those of the page that was begun come twice


def test_a_resolved_task_is_not_swept(bench: Bench) -> None:
    task_id = bench.create()
    bench.services.claims.claim(bench.task(task_id), 0, ALICE, Presented())
    bench.complete(task_id)
    bench.run_timers()
    bench.events()
    lose_messages(bench)
    bench.sweep(HOUR + SECOND)
    assert (bench.events(), bench.messages()) == ([], [])


def test_everything_is_looked_through_every_ten_minutes(bench: Bench) -> None:
    passes = []
    for minutes in range(61):
        at = At(0, of="unresolved")
        chores = bench.server(at).chores
        assert chores
        chores.do_due(HandEvent(bench.clock))
        passes += [minutes] if at.happened else []
        bench.clock.advance(MINUTE)
    assert passes == [0, 10, 20, 30, 40, 50, 60]
