"""Pools that must present their message: the run of a refused claim is offered again."""

import pytest

from legacy_queue.domain.errors import InputError, RequestConflict
from legacy_queue.domain.messages import message_signature
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import worker_path
from legacy_queue.services.tasks.claims import ClaimProof
from tests.services.harness import (
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
    CallRecorder,
    Harness,
    Message,
)

AGAIN = 10 * SECOND
FIELDS = {"message_id": "messageId", "receipt": "receipt", "signature": "signature"}


@pytest.fixture
def harness() -> Harness:
    return Harness(required=[f"{PROVISIONER}/{WORKER_TYPE}"])


def without(message: Message, *fields: str) -> ClaimProof:
    proof = {"message_id": message.lease.message_id, "receipt": message.lease.receipt}
    proof["signature"] = message.signature
    return ClaimProof(**{name: value for name, value in proof.items() if name not in fields})


@pytest.mark.parametrize("fields", [("message_id",), ("receipt",), ("signature",), tuple(FIELDS)])
def test_a_claim_without_full_proof_is_refused_by_naming_what_is_missing(
    harness: Harness, fields: tuple[str, ...]
) -> None:
    task_id = harness.create()
    message = harness.receive_one()
    with pytest.raises(InputError) as error:
        harness.claim(message, proof=without(message, *fields))
    assert f": this claim lacks {', '.join(FIELDS[name] for name in fields)}. " in str(error.value)
    assert error.value.status == 400
    assert harness.states(task_id) == ["pending"]


def test_repeatedly_refused_claims_offer_the_run_once_in_10_seconds(harness: Harness) -> None:
    harness.create()
    message = harness.receive_one()
    for _ in range(20):
        with pytest.raises(InputError):
            harness.claim(message, proof=ClaimProof())
    assert len(harness.messages()) == 2
    harness.clock.advance(AGAIN)
    with pytest.raises(InputError):
        harness.claim(message, proof=ClaimProof())
    assert len(harness.messages()) == 3


def test_a_refused_run_is_offered_again_after_10_seconds(harness: Harness) -> None:
    task_id = harness.create()
    message = harness.receive_one()
    with pytest.raises(InputError):
        harness.claim(message, proof=ClaimProof())
    harness.delete(message)  # as a worker does with any 4xx
    assert harness.offered_runs() == [(0, AGAIN)]
    harness.clock.advance(AGAIN - SECOND)
    assert harness.receive() == []
    harness.clock.advance(SECOND)
    harness.claim(harness.receive_one(), BOB)
    assert harness.states(task_id) == ["running by bob"]


def test_a_refused_claim_on_another_run_or_a_resolved_task_offers_nothing(harness: Harness) -> None:
    task_id = harness.claimed()
    for run_id, offered in ((0, [(1, CLAIM_TIMEOUT)]), (3, [(1, CLAIM_TIMEOUT)]), (0, [])):
        if not offered:
            harness.complete(task_id)
        with pytest.raises(InputError):
            harness.services.claims.claim(harness.task(task_id), run_id, BOB, ClaimProof())
        assert harness.offered_runs() == offered


def test_a_run_is_not_offered_again_within_10_seconds_of_the_deadline(harness: Harness) -> None:
    task_id = harness.create(deadline="2030-01-02T03:14:15.678Z")  # 10 minutes and 10 seconds
    harness.clock.advance(POLL_VISIBILITY * 2)
    message = harness.receive_one()
    with pytest.raises(InputError):
        harness.claim(message, proof=ClaimProof())
    harness.delete(message)
    assert harness.messages() == []
    assert harness.states(task_id) == ["pending"]


def test_a_message_is_not_hidden_until_after_it_expires(harness: Harness) -> None:
    """Azure refuses that. A claim may end after the deadline, when the message expires."""
    task_id = harness.create(deadline=format_time(NOW + 10 * MINUTE))
    message = harness.receive_one()
    harness.claim(message)
    proof = ClaimProof(message.lease.message_id, message.lease.receipt, message_signature(task_id, 1, SECRET))
    bob = worker_path(PROVISIONER, WORKER_TYPE, BOB)
    harness.services.workers.declare(bob, {})
    harness.services.workers.quarantine(bob, NOW + HOUR)
    calls = CallRecorder()
    with pytest.raises(RequestConflict, match="is quarantined"):
        harness.replica(calls).claims.claim(harness.task(task_id), 1, BOB, proof)
    assert not {"hide", "put"} & {name.removeprefix("work_queues.") for name in calls.names}
