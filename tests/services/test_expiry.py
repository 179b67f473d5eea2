"""What enforces takenUntil: the held message, extended by reclaims, polled once a claim has ended."""

from datetime import timedelta

import pytest

from legacy_queue.domain.errors import RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.messages import message_text
from legacy_queue.services.claims import Presented
from tests.memory_server import HandClock
from tests.services.bench import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    POLL_VISIBILITY,
    PROVISIONER,
    SECOND,
    SECRET,
    WORKER_TYPE,
    Bench,
    Calls,
)

MS = timedelta(milliseconds=1)
DEPLOYED = Presented()


def test_a_reclaim_extends_the_claim_and_keeps_the_message_hidden() -> None:
    bench = Bench()
    task_id = bench.claimed()
    (held,) = bench.messages()
    bench.clock.advance(15 * MINUTE)
    answer = bench.services.claims.reclaim(task_id, 0)
    assert answer["takenUntil"] == "2030-01-02T03:39:05.678Z"
    assert answer["status"]["runs"][0]["takenUntil"] == answer["takenUntil"]
    assert answer["credentials"]["clientId"].endswith("/until/1893555545")
    assert "task" not in answer
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]
    (extended,) = bench.messages()
    assert extended.lease == bench.task(task_id).held
    assert extended.lease.message_id == held.lease.message_id
    assert extended.lease.receipt != held.lease.receipt

    bench.clock.advance(CLAIM_TIMEOUT - MS)
    assert bench.receive() == []
    bench.clock.advance(MS)
    assert bench.receive_one().run_id == 1


def test_a_task_reclaimed_for_hours_keeps_its_run() -> None:
    bench = Bench()
    task_id = bench.claimed()
    for _ in range(20):
        bench.clock.advance(CLAIM_TIMEOUT - MINUTE)
        assert bench.receive() == []
        bench.services.claims.reclaim(task_id, 0)
    assert bench.complete(task_id).state == "completed"
    assert bench.messages() == []


def test_a_reclaim_costs_two_operations_where_the_task_is_remembered() -> None:
    bench = Bench()
    calls = Calls()
    services = bench.replica(calls, remembers=True)
    task_id = bench.create()
    bench.claim(bench.receive_one(), services=services)
    calls.names.clear()
    services.claims.reclaim(task_id, 0)
    assert calls.names == ["hide", "replace"]


def test_a_claim_that_has_ended_is_lost_though_nobody_has_taken_over() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="the claim on run 0 ended"):
        bench.services.claims.reclaim(task_id, 0)
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_run_that_was_never_claimed_is_not_reclaimed() -> None:
    bench = Bench()
    task_id = bench.create()
    with pytest.raises(RequestConflict, match="run 0 is pending"):
        bench.services.claims.reclaim(task_id, 0)
    with pytest.raises(ResourceNotFound, match="no run 1"):
        bench.services.claims.reclaim(task_id, 1)


@pytest.mark.parametrize("presented", [None, DEPLOYED])
def test_a_dead_workers_task_is_run_by_the_next_who_polls(presented: Presented | None) -> None:
    bench = Bench()
    task_id = bench.claimed(ALICE)
    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    answer = bench.claim(message, BOB, presented=presented)
    if presented:
        bench.delete(message)
    assert answer["runId"] == 1
    first, second = answer["status"]["runs"]
    assert (first["state"], first["reasonResolved"], first["workerId"]) == (
        "exception",
        "claim-expired",
        "alice",
    )
    assert (second["state"], second["reasonCreated"], second["workerId"]) == ("running", "retry", "bob")
    assert answer["status"]["retriesLeft"] == 4
    assert bench.runs_to_come() == [(2, CLAIM_TIMEOUT)]

    for late in (bench.services.claims.reclaim, bench.complete):
        with pytest.raises(RequestConflict, match="run 0 is exception"):
            late(task_id, 0)
    assert bench.complete(task_id, 1).state == "completed"


def test_the_same_worker_may_take_over_from_itself() -> None:
    bench = Bench()
    task_id = bench.claimed(ALICE)
    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    first = bench.claim(message, ALICE)
    assert bench.claim(message, ALICE)["takenUntil"] == first["takenUntil"]
    assert bench.states(task_id) == ["exception claim-expired", "running by alice"]


def test_a_worker_that_was_late_but_alone_may_still_report() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT + MINUTE)
    polled = bench.receive_one()
    assert bench.complete(task_id).state == "completed"
    with pytest.raises(RequestConflict, match="resolved as completed"):
        bench.claim(polled, BOB)
    assert bench.messages() == []


def test_retries_run_out() -> None:
    bench = Bench()
    task_id = bench.claimed(ALICE, retries=1)
    bench.clock.advance(CLAIM_TIMEOUT)
    bench.claim(bench.receive_one(), BOB)
    bench.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="its claim expired and no retries are left") as error:
        bench.claim(bench.receive_one(), ALICE)
    assert error.value.details["status"]["state"] == "exception"
    assert bench.states(task_id) == ["exception claim-expired", "exception claim-expired"]
    assert bench.task(task_id).retries_left == 0
    assert bench.messages() == []


def test_retries_run_out_for_a_worker_of_the_deployed_protocol_too() -> None:
    bench = Bench()
    task_id = bench.claimed(retries=0)
    bench.clock.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    with pytest.raises(RequestConflict):
        bench.claim(message, presented=DEPLOYED)
    bench.delete(message)
    assert bench.states(task_id) == ["exception claim-expired"]
    assert bench.messages() == []


def test_a_task_has_50_runs_at_most() -> None:
    bench = Bench()
    task_id = bench.create(retries=49)
    for run_id in range(50):
        assert bench.claim(bench.receive_one())["runId"] == run_id
        bench.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="no retries are left"):
        bench.claim(bench.receive_one())
    assert bench.states(task_id) == ["exception claim-expired"] * 50
    assert bench.messages() == []


def stray(bench: Bench, task_id: str, run_id: int = 1) -> None:
    """A double that is visible now, such as a crash leaves."""
    task = bench.task(task_id)
    queue = task.work_queue
    bench.storage.work_queues.put(queue, message_text(task_id, run_id, SECRET), HOUR, 0 * SECOND)


def test_a_stray_double_is_a_conflict_and_withdrawn() -> None:
    bench = Bench()
    task_id = bench.claimed()
    stray(bench, task_id)
    with pytest.raises(RequestConflict, match="stray double"):
        bench.claim(bench.receive_one(), BOB)
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]
    assert bench.states(task_id) == ["running by alice"]


def test_after_the_claim_ended_a_double_is_as_good_as_the_held_message() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT)
    stray(bench, task_id)
    first, second = bench.receive()
    bench.claim(second, BOB)
    with pytest.raises(RequestConflict, match="run 1 is running"):
        bench.claim(first, ALICE)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]
    assert bench.runs_to_come() == [(2, CLAIM_TIMEOUT)]


@pytest.mark.parametrize("presented", [None, DEPLOYED])
def test_a_held_message_that_comes_before_its_time_is_kept(presented: Presented | None) -> None:
    """This server's clock is 30 seconds behind the storage's."""
    bench = Bench()
    behind = HandClock(NOW - 30 * SECOND)
    services = bench.replica(clock=behind)
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT)
    behind.advance(CLAIM_TIMEOUT)
    message = bench.receive_one()
    before = bench.task(task_id), bench.messages()
    with pytest.raises(ServiceUnavailable, match="try again then"):
        bench.claim(message, BOB, services, presented)
    assert (bench.task(task_id), bench.messages()) == before

    behind.advance(30 * SECOND)
    bench.claim(message, BOB, services, presented)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_server_whose_clock_is_behind_does_not_end_claims_early() -> None:
    bench = Bench()
    services = bench.replica(clock=HandClock(NOW - 30 * SECOND))
    task_id = bench.create()
    bench.claim(bench.receive_one(), services=services)
    taken_until = bench.task(task_id).runs[0].taken_until
    (held,) = bench.messages()
    assert taken_until
    assert held.next_visible >= taken_until


def test_a_claim_outlasts_the_deadline_and_holds_nothing() -> None:
    bench = Bench()
    task_id = bench.create(deadline="2030-01-02T03:05:05.678Z")  # in a minute
    answer = bench.claim(bench.receive_one())
    assert answer["takenUntil"] == "2030-01-02T03:24:05.678Z"
    assert bench.messages() == []
    assert bench.task(task_id).held is None
    bench.clock.advance(30 * SECOND)
    assert bench.services.claims.reclaim(task_id, 0)["takenUntil"] == "2030-01-02T03:24:35.678Z"
    assert bench.messages() == []
    assert bench.complete(task_id).state == "completed"


def test_the_deadline_ends_a_task_whose_claim_outlasts_it() -> None:
    bench = Bench()
    task_id = bench.create(deadline="2030-01-02T03:05:05.678Z")
    bench.claim(bench.receive_one())
    bench.run_timers(MINUTE)
    assert bench.states(task_id) == ["exception deadline-exceeded"]
    assert bench.task(task_id).runs[0].resolved == NOW + MINUTE
    with pytest.raises(RequestConflict, match="only a running run can be reclaimed"):
        bench.services.claims.reclaim(task_id, 0)
    bench.run_timers(CLAIM_TIMEOUT)
    assert bench.timers() == []
    assert bench.states(task_id) == ["exception deadline-exceeded"]


@pytest.mark.parametrize("milliseconds", range(0, 4000, 250))
def test_near_the_deadline_a_message_is_held_until_the_claim_ends_or_not_at_all(milliseconds: int) -> None:
    bench = Bench()
    task_id = bench.create(deadline="2030-01-02T03:24:08.000Z")  # 2.322 s longer than a claim
    message = bench.receive_one()
    bench.clock.advance(milliseconds * MS)
    bench.claim(message)
    task = bench.task(task_id)
    taken_until = task.runs[0].taken_until
    assert taken_until
    assert taken_until == bench.clock.now() + CLAIM_TIMEOUT
    for held in bench.messages():
        assert held.lease == task.held
        assert taken_until <= held.next_visible < held.expires <= task.definition.deadline
    assert bool(task.held) is bool(bench.messages())


def test_near_the_deadline_a_reclaim_gives_up_the_held_message() -> None:
    bench = Bench()
    task_id = bench.claimed(deadline="2030-01-02T03:34:05.678Z")
    bench.clock.advance(15 * MINUTE)
    answer = bench.services.claims.reclaim(task_id, 0)
    assert answer["takenUntil"] == "2030-01-02T03:39:05.678Z"
    assert bench.messages() == []
    assert bench.task(task_id).held is None


def test_near_the_deadline_a_worker_that_shuts_down_still_leaves_a_message() -> None:
    bench = Bench()
    task_id = bench.claimed(deadline="2030-01-02T03:24:05.678Z")
    bench.shut_down(task_id)
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception worker-shutdown", "running by bob"]


def test_nothing_is_claimed_from_the_deadline_on() -> None:
    bench = Bench()
    bench.create(deadline="2030-01-02T03:05:05.678Z")
    message = bench.receive_one()
    bench.clock.advance(MINUTE)
    with pytest.raises(RequestConflict, match=r"its deadline .* has passed"):
        bench.claim(message)
    assert bench.messages() == []


def test_polling_does_not_end_a_claim() -> None:
    bench = Bench(required=[f"{PROVISIONER}/{WORKER_TYPE}"])
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT)
    bench.receive_one()  # and dies
    bench.clock.advance(POLL_VISIBILITY)
    assert bench.states(task_id) == ["running by alice"]
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]
