"""What ends a claim that nobody extends: "Timers" in design/protocol.md."""

from datetime import timedelta

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.timers import Timer
from legacy_queue.domain.times import format_time
from legacy_queue.services.claims import Presented
from tests.services.bench import (
    ALICE,
    BOB,
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
MS = timedelta(milliseconds=1)
AT_ONCE = timedelta(0)
MARGIN = CLAIM_TIMEOUT / 20  # for a clock that is ahead
BY_NAME = Presented()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_claim_that_ends_is_expired_and_the_retry_there_at_once(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.run_timers(CLAIM_TIMEOUT - SECOND)
    assert bench.states(task_id) == ["running by alice"]
    bench.events()
    bench.run_timers(2 * SECOND)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]
    assert bench.task(task_id).retries_left == 4
    assert bench.runs_to_come() == [(1, AT_ONCE)]
    assert bench.events() == [("task-pending", task_id, 1)]
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_the_retry_of_a_claim_whose_held_message_is_lost_gets_a_fresh_one(bench: Bench) -> None:
    task_id = bench.claimed()
    task = bench.task(task_id)
    assert task.held
    bench.storage.work_queues.remove(task.definition.work_queue, task.held)
    bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.runs_to_come() == [(1, AT_ONCE)]


def test_a_claim_that_ends_without_retries_ends_the_task(bench: Bench) -> None:
    task_id = bench.claimed(retries=0)
    bench.events()
    bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.states(task_id) == ["exception claim-expired"]
    assert bench.messages() == []
    assert bench.events() == [("task-exception", task_id, 0), ("task-group-resolved", task_id, None)]
    assert bench.timers("claims") == bench.timers("resolved") == []


def test_retries_run_out_by_timers_alone(bench: Bench) -> None:
    task_id = bench.create(retries=2)
    for run_id in range(3):
        bench.services.claims.claim(bench.task(task_id), run_id, ALICE, BY_NAME)
        bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.states(task_id) == ["exception claim-expired"] * 3


def test_an_extended_claim_puts_its_timer_off_without_a_put_for_each_reclaim(bench: Bench) -> None:
    task_id = bench.claimed()
    calls = Calls()
    services = bench.replica(calls)
    for _ in range(5):
        bench.run_timers(10 * MINUTE)
        services.claims.reclaim(task_id, 0)
    assert "timer.put" not in calls.names
    ((timer, left),) = bench.timers("claims")
    assert (timer.untold, timer.due) == ((), bench.clock.now() + left - MARGIN)
    bench.run_timers(CLAIM_TIMEOUT - SECOND)
    assert bench.states(task_id) == ["running by alice"]
    bench.run_timers(2 * SECOND + MARGIN)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]


def test_the_timer_of_a_run_that_was_resolved_is_done_with(bench: Bench) -> None:
    for end in (bench.complete, bench.shut_down):
        task_id = bench.claimed()
        end(task_id)
        before = bench.task(task_id)
        bench.run_timers(CLAIM_TIMEOUT + SECOND)
        assert bench.task(task_id) == before
        assert bench.timers("claims") == []
        bench.services.tasks.cancel(task_id)
        bench.receive()


def test_a_doubled_timer_expires_a_claim_once(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.core.timers.settle_all(HOUR)
    bench.double_timers("claims")
    bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]
    assert bench.task(task_id).retries_left == 4
    bench.claim(bench.receive_one(), BOB)
    bench.run_timers(MINUTE)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_timer_that_fires_early_waits_for_the_end_of_the_claim(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.core.timers.settle_all(HOUR)
    bench.clock.advance(MINUTE)
    bench.hasten_timers("claims")
    bench.run_timers()
    assert bench.states(task_id) == ["running by alice"]
    ((timer, left),) = bench.timers("claims")
    assert timer.due == NOW + CLAIM_TIMEOUT
    assert left == CLAIM_TIMEOUT - MINUTE + MARGIN


def test_a_timer_that_fires_early_for_a_resolved_task_is_done_with(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.complete(task_id)
    bench.hasten_timers("claims")
    bench.core.watchers["claims"].look(lambda act, items: [act(item) for item in items])
    assert bench.timers("claims") == []


def test_a_timer_that_comes_late_finds_what_others_did(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.core.timers.settle_all(HOUR)
    bench.clock.advance(CLAIM_TIMEOUT)
    bench.claim(bench.receive_one(), BOB)
    bench.run_timers(HOUR / 6)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]
    assert len(bench.timers("claims")) == 1


def test_a_lost_timer_leaves_the_claim_to_the_held_message(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.lose_timers("claims")
    bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.states(task_id) == ["running by alice"]
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_the_claim_of_a_retry_that_was_never_written_has_nothing_to_end(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.core.timers.settle_all(HOUR)
    bench.lose_timers("claims")
    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    with pytest.raises(Crash):
        bench.claim(message, BOB, bench.replica(At(0, of="timer.put", after=failing(Crash()))))
    bench.run_timers(MINUTE)
    assert bench.states(task_id) == ["running by alice"]
    bench.run_timers(CLAIM_TIMEOUT)
    assert bench.states(task_id) == ["running by alice"]
    assert bench.timers("claims") == []


def test_a_claim_that_ends_with_its_task_is_ended_by_the_deadline(bench: Bench) -> None:
    task_id = bench.create(deadline=format_time(NOW + 10 * MINUTE))
    bench.claim(bench.receive_one())
    bench.run_timers(10 * MINUTE + SECOND)
    assert bench.states(task_id) == ["exception deadline-exceeded"]
    assert bench.task(task_id).retries_left == 5


def test_the_timer_of_a_task_that_has_expired_is_done_with(bench: Bench) -> None:
    bench.claimed()
    bench.core.timers.settle_all(HOUR)
    bench.storage.tasks.remove_expired(NOW + 900 * DAY, "", 999)
    for _ in range(20):
        bench.run_timers(2 * DAY)
    for queue in ("claims", "deadlines", "resolved"):
        assert bench.timers(queue) == []


@pytest.mark.parametrize("queue", ["claims", "resolved"])
def test_a_timer_that_names_no_run_is_done_with(bench: Bench, queue: str) -> None:
    timer = Timer(queue, bench.create(), NOW, due=NOW)
    bench.storage.own_queues.put(queue, timer.text(), AT_ONCE)
    bench.run_timers()
    assert bench.timers(queue) == []


def test_claims_expire_when_somebody_polls_though_nothing_resolves(bench: Bench) -> None:
    """The promise of the draft: every watcher and chore is off."""
    server = bench.server(resolves=False)
    assert (dict(server.watchers), server.chores) == ({}, None)
    task_id = slugid()
    server.services.tasks.create(task_id, task_body(retries=1))
    bench.claim(bench.receive_one(), ALICE, server.services)
    bench.run_timers(CLAIM_TIMEOUT - MS, server)
    assert bench.receive() == []
    bench.run_timers(MS, server)
    bench.claim(bench.receive_one(), BOB, server.services)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]
    bench.run_timers(CLAIM_TIMEOUT, server)
    with pytest.raises(RequestConflict, match="no retries are left"):
        bench.claim(bench.receive_one(), ALICE, server.services)
    assert bench.states(task_id) == ["exception claim-expired", "exception claim-expired"]
