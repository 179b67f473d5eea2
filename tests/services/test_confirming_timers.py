"""A timer is armed before the write and confirmed after its last consequence."""

from collections.abc import Callable
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timers import FIRST_FIRES_AFTER
from tests.services.bench import (
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    At,
    Bench,
    Calls,
    failing,
    one_by_one,
    task_body,
)

DAY = 24 * HOUR
A_WHILE = FIRST_FIRES_AFTER / 2  # until a confirmed timer is moved


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_timer_is_armed_before_the_write_and_moved_a_while_after(bench: Bench) -> None:
    bench.create()
    ((timer, left),) = bench.timers("deadlines")
    assert (timer.untold, left) == (("task-defined", "task-pending"), FIRST_FIRES_AFTER)
    bench.run_timers(A_WHILE - SECOND)
    assert bench.timers("deadlines")[0][1] == FIRST_FIRES_AFTER - A_WHILE + SECOND
    bench.run_timers(SECOND)
    ((timer, left),) = bench.timers("deadlines")
    assert timer.untold == ()
    assert DAY - A_WHILE <= left < DAY - A_WHILE + SECOND


def test_the_end_of_a_process_confirms_all_that_it_has_armed(bench: Bench) -> None:
    bench.claimed()
    bench.core.timers.settle_all(HOUR)
    for queue in ("claims", "deadlines"):
        assert [timer.untold for timer, _ in bench.timers(queue)] == [()]


def test_a_confirmed_timer_tells_nothing_again(bench: Bench) -> None:
    bench.claimed()
    bench.events()
    bench.run_timers(CLAIM_TIMEOUT - SECOND)
    assert bench.events() == []


def test_a_timer_that_only_sees_a_transition_through_is_withdrawn(bench: Bench) -> None:
    bench.shut_down(bench.claimed())
    assert len(bench.timers("deadlines")) == 2
    bench.run_timers(A_WHILE)
    assert [timer.due for timer, _ in bench.timers("deadlines")] == [NOW + DAY]


def test_timers_of_what_this_process_knows_to_be_resolved_are_withdrawn(bench: Bench) -> None:
    server = bench.server(remembers=True)
    task_id = slugid()
    server.services.tasks.create(task_id, task_body())
    bench.claim(bench.receive_one(), services=server.services)
    bench.complete(task_id, services=server.services)
    bench.run_timers(A_WHILE, server)
    for queue in ("claims", "deadlines", "resolved"):
        assert bench.timers(queue) == []


def test_the_claim_timer_of_a_run_that_was_retried_is_withdrawn(bench: Bench) -> None:
    server = bench.server(remembers=True)
    task_id = slugid()
    server.services.tasks.create(task_id, task_body())
    bench.claim(bench.receive_one(), services=server.services)
    bench.shut_down(task_id, services=server.services)
    bench.run_timers(A_WHILE, server)
    assert bench.timers("claims") == []
    assert len(bench.timers("deadlines")) == 1


def test_the_claim_timer_of_a_run_that_is_not_known_yet_is_kept(bench: Bench) -> None:
    server = bench.server(remembers=True)
    task_id = bench.create()
    server.services.tasks.load(task_id)
    remembered = server.services.tasks.recall(task_id)
    bench.claim(bench.receive_one(), services=server.services)
    assert remembered.state == "pending"
    bench.run_timers(A_WHILE, server)
    assert [timer.untold for timer, _ in bench.timers("claims")] == [()]


def test_a_timer_that_fired_before_it_was_confirmed_is_left_to_whoever_has_it(bench: Bench) -> None:
    task_id = bench.create()
    bench.clock.advance(FIRST_FIRES_AFTER)
    bench.storage.own_queues.receive("deadlines", 32, MINUTE)
    assert bench.run_timers() == 0
    bench.run_timers(DAY)
    assert bench.states(task_id) == ["exception deadline-exceeded"]


def test_storage_that_is_away_leaves_a_confirmation_to_the_next_look(bench: Bench) -> None:
    """The timer fires then, and tells again what was told."""
    server = bench.server(At(0, of="timer.hide", before=failing(ServiceUnavailable("away"))))
    for _ in range(2):
        server.services.tasks.create(slugid(), task_body())
    bench.events()
    bench.clock.advance(A_WHILE)
    with pytest.raises(ServiceUnavailable):
        server.timers.settle()
    server.timers.settle()
    assert sorted(timer.untold for timer, _ in bench.timers("deadlines")) == [
        (),
        ("task-defined", "task-pending"),
    ]
    bench.run_timers(A_WHILE)
    assert [event[0] for event in bench.events()] == ["task-defined", "task-pending"]


def test_a_transition_whose_timer_cannot_be_armed_does_not_happen(bench: Bench) -> None:
    task_id = bench.create()
    away = At(0, of="timer.put", before=failing(ServiceUnavailable("storage is away")))
    with pytest.raises(ServiceUnavailable):
        bench.replica(away).tasks.cancel(task_id)
    assert bench.states(task_id) == ["pending"]


def test_a_process_in_a_hurry_leaves_timers_that_tell_again(bench: Bench) -> None:
    def slow(name: str, call: Callable[[], Any]) -> Any:
        if name == "timer.hide":
            bench.clock.advance(SECOND)
        return call()

    server = bench.server(slow)
    for _ in range(70):
        server.services.tasks.create(slugid(), task_body(bench.clock.now()))
    left = server.timers.settle_all(5 * SECOND)
    assert 0 < left < 70
    untold = [timer for timer, _ in bench.timers("deadlines") if timer.untold]
    assert len(untold) == left


def test_no_call_moves_the_timer_of_another(bench: Bench) -> None:
    calls = Calls()
    server = bench.server(calls)
    for _ in range(3):
        server.services.tasks.create(slugid(), task_body())
        bench.clock.advance(A_WHILE)
    assert "timer.hide" not in calls.names


def test_a_timer_that_fires_before_its_process_has_moved_it_repeats_no_event(bench: Bench) -> None:
    task_id = bench.create()
    bench.events()
    bench.clock.advance(FIRST_FIRES_AFTER)
    assert bench.core.watchers["deadlines"].look(one_by_one) == 1
    assert bench.events() == []
    ((timer, left),) = bench.timers("deadlines")
    assert (timer.untold, left) == ((), DAY - FIRST_FIRES_AFTER)
    bench.run_timers(DAY)
    assert bench.states(task_id) == ["exception deadline-exceeded"]


def test_a_timer_that_has_fired_is_not_moved_afterwards(bench: Bench) -> None:
    calls = Calls()
    server = bench.server(calls)
    server.services.tasks.create(slugid(), task_body())
    bench.clock.advance(FIRST_FIRES_AFTER)
    server.watchers["deadlines"].look(one_by_one)
    calls.names.clear()
    server.timers.settle()
    assert calls.names == []
