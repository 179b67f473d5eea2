"""takenUntil is enforced by the held message: reclaims extend it, and it is polled after the claim."""

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.services.claims import ClaimProof
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    CallRecorder,
    Harness,
)

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
    task_id = harness.claimed(ALICE, retries=0)
    harness.clock.advance(CLAIM_TIMEOUT)
    with pytest.raises(RequestConflict, match="its claim expired and no retries are left"):
        harness.claim(harness.receive_one(), BOB)
    assert harness.states(task_id) == ["exception claim-expired"]
    assert harness.messages() == []
