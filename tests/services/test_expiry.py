"""takenUntil is enforced by the held message: reclaims extend it, and it is polled after the claim."""

from datetime import timedelta

import pytest

from legacy_queue.domain.errors import RequestConflict, ServiceUnavailable
from legacy_queue.services.claims import ClaimProof
from tests.memory_server import FakeClock
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    MINUTE,
    NOW,
    SECOND,
    CallRecorder,
    Harness,
    visible_at,
)

MS = timedelta(milliseconds=1)
DEPLOYED = ClaimProof()


def test_a_reclaim_of_a_cached_task_costs_two_operations() -> None:
    harness = Harness()
    calls = CallRecorder()
    services = harness.replica(calls, caches_tasks=True)
    task_id = harness.create()
    harness.claim(harness.receive_one(), services=services)
    calls.names.clear()
    services.claims.reclaim(task_id, 0)
    assert calls.names == ["hide", "replace"]


@pytest.mark.parametrize("proof", [None, DEPLOYED])
def test_the_next_worker_that_polls_runs_the_task_of_a_dead_worker(proof: ClaimProof | None) -> None:
    harness = Harness()
    task_id = harness.claimed(ALICE)
    harness.clock.advance(CLAIM_TIMEOUT)
    message = harness.receive_one()
    answer = harness.claim(message, BOB, proof=proof)
    if proof:
        harness.delete(message)
    assert answer["runId"] == 1
    first, second = answer["status"]["runs"]
    assert (first["state"], first["reasonResolved"], first["workerId"]) == (
        "exception",
        "claim-expired",
        "alice",
    )
    assert (second["state"], second["reasonCreated"], second["workerId"]) == ("running", "retry", "bob")
    assert answer["status"]["retriesLeft"] == 4
    assert harness.offered_runs() == [(2, CLAIM_TIMEOUT)]

    for late in (harness.services.claims.reclaim, harness.complete):
        with pytest.raises(RequestConflict, match="run 0 is exception"):
            late(task_id, 0)
    assert harness.complete(task_id, 1).state == "completed"


def test_a_claim_after_the_last_retry_resolves_the_task() -> None:
    harness = Harness()
    task_id = harness.claimed(ALICE, retries=1)
    harness.clock.advance(CLAIM_TIMEOUT)
    harness.claim(harness.receive_one(), BOB)
    harness.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="its claim expired and no retries are left") as error:
        harness.claim(harness.receive_one(), ALICE)
    assert error.value.details["status"]["state"] == "exception"
    assert harness.states(task_id) == ["exception claim-expired", "exception claim-expired"]
    assert harness.task(task_id).retries_left == 0
    assert harness.messages() == []


@pytest.mark.parametrize("proof", [None, DEPLOYED])
def test_a_held_message_received_too_early_is_kept(proof: ClaimProof | None) -> None:
    """This server's clock is 30 seconds behind the storage's."""
    harness = Harness()
    behind = FakeClock(NOW - 30 * SECOND)
    services = harness.replica(clock=behind)
    task_id = harness.claimed()
    harness.clock.advance(CLAIM_TIMEOUT)
    behind.advance(CLAIM_TIMEOUT)
    message = harness.receive_one()
    before = harness.task(task_id), harness.messages()
    with pytest.raises(ServiceUnavailable, match="try again then"):
        harness.claim(message, BOB, services, proof)
    assert (harness.task(task_id), harness.messages()) == before

    behind.advance(30 * SECOND)
    harness.claim(message, BOB, services, proof)
    assert harness.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_server_whose_clock_is_behind_does_not_end_claims_early() -> None:
    harness = Harness()
    services = harness.replica(clock=FakeClock(NOW - 30 * SECOND))
    task_id = harness.create()
    harness.claim(harness.receive_one(), services=services)
    taken_until = harness.task(task_id).runs[0].taken_until
    (held,) = harness.messages()
    assert taken_until
    assert visible_at(held) >= taken_until


@pytest.mark.parametrize("milliseconds", range(0, 4000, 250))
def test_near_the_deadline_a_message_is_held_until_the_claim_ends_or_not_at_all(milliseconds: int) -> None:
    harness = Harness()
    task_id = harness.create(deadline="2030-01-02T03:24:08.000Z")  # 2.322 s longer than a claim
    message = harness.receive_one()
    harness.clock.advance(milliseconds * MS)
    harness.claim(message)
    task = harness.task(task_id)
    taken_until = task.runs[0].taken_until
    assert taken_until
    assert taken_until == harness.clock.now() + CLAIM_TIMEOUT
    for held in harness.messages():
        assert held.lease == task.held
        assert taken_until <= visible_at(held) < held.expires <= task.definition.deadline
    assert bool(task.held) is bool(harness.messages())


def test_a_reclaim_beyond_the_deadline_deletes_the_held_message() -> None:
    harness = Harness()
    task_id = harness.claimed(deadline="2030-01-02T03:34:05.678Z")
    harness.clock.advance(15 * MINUTE)
    answer = harness.services.claims.reclaim(task_id, 0)
    assert answer["takenUntil"] == "2030-01-02T03:39:05.678Z"
    assert harness.messages() == []
    assert harness.task(task_id).held is None


def test_a_shutdown_near_the_deadline_offers_the_retry() -> None:
    harness = Harness()
    task_id = harness.claimed(deadline="2030-01-02T03:24:05.678Z")
    harness.shut_down(task_id)
    harness.claim(harness.receive_one(), BOB)
    assert harness.states(task_id) == ["exception worker-shutdown", "running by bob"]
