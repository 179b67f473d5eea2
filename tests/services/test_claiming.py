"""Claims under the draft and under the deployed protocol: docs/explanation/protocols.md and
docs/explanation/held-message.md."""

import json
from dataclasses import replace

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, InputError, RequestConflict
from legacy_queue.domain.messages import message_signature, message_text
from legacy_queue.services.tasks.claims import ClaimProof
from tests.domain.sample_tasks import ALICE, BOB, CLAIM_TIMEOUT, HOUR, MS, SECOND
from tests.services.fake_ports import CallRecorder, FaultAt
from tests.services.harness import POLL_VISIBILITY, PROVISIONER, QUEUE, SECRET, WORKER_TYPE, Harness, Logs

AGAIN = 10 * SECOND


def test_the_credentials_of_a_claim_are_for_its_run_and_expire_15_minutes_after_taken_until(
    harness: Harness,
) -> None:
    task_id = harness.create(scopes=["a:scope", "another:*"])
    credentials = harness.claim(harness.receive_one())["credentials"]
    # date -u -d 2030-01-02T03:24:05Z +%s
    assert credentials["clientId"] == f"task-client/{task_id}/0/on/group/alice/until/1893554645"
    certificate = json.loads(credentials["certificate"])
    assert certificate["issuer"] == "queue"
    assert certificate["scopes"] == [
        f"queue:claim-task:{task_id}/0",
        f"queue:reclaim-task:{task_id}/0",
        f"queue:resolve-task:{task_id}/0",
        f"queue:create-artifact:{task_id}/0",
        "a:scope",
        "another:*",
    ]
    assert certificate["start"] == 1893553445678 - 15 * 60_000
    assert certificate["expiry"] == 1893554645678 + 15 * 60_000


def test_a_claim_holds_its_message_for_the_next_run_until_taken_until(harness: Harness) -> None:
    task_id = harness.create()
    message = harness.receive_one()
    harness.claim(message)
    (held,) = harness.messages()
    assert harness.task(task_id).held == held.lease
    assert held.lease.message_id == message.lease.message_id
    assert harness.offered_runs() == [(1, CLAIM_TIMEOUT)]

    harness.clock.advance(CLAIM_TIMEOUT - MS)
    assert harness.receive() == []
    harness.clock.advance(MS)
    next_message = harness.receive_one()
    assert (next_message.task_id, next_message.run_id) == (task_id, 1)


@pytest.mark.parametrize("has_receipt", [True, False])
def test_a_wrong_signature_is_refused_and_changes_nothing(harness: Harness, has_receipt: bool) -> None:
    task_id = harness.create()
    message = harness.receive_one()
    before, messages = harness.task(task_id), harness.messages()
    calls = CallRecorder()
    another = message_signature("eWIgwMgxSfeXQ36iBbOxiQ", 0, SECRET)
    proof = replace(message.proof if has_receipt else ClaimProof(), signature=another)
    with pytest.raises(AuthorizationFailed, match=f"does not belong to task {task_id} run 0") as error:
        harness.replica(calls).claims.claim(before, 0, ALICE, proof)
    assert error.value.status == 403
    assert [name for name in calls.names if not name.startswith("worker.")] == []
    assert (harness.task(task_id), harness.messages()) == (before, messages)


def test_a_conflict_without_a_signature_does_not_delete_the_message(harness: Harness) -> None:
    """Without a signature, the receipt may belong to the only message of another task."""
    running = harness.claimed()
    waiting = harness.create()
    stolen = harness.receive_one()
    with pytest.raises(RequestConflict):
        harness.services.claims.claim(
            harness.task(running), 0, BOB, ClaimProof(stolen.lease.message_id, stolen.lease.receipt)
        )
    harness.claim(stolen, BOB)
    assert harness.states(waiting) == ["running by bob"]


@pytest.mark.parametrize("text", ["no work message", message_text("eWIgwMgxSfeXQ36iBbOxiQ", 0, SECRET)])
@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_claim_with_the_message_of_another_task_is_refused_and_changes_nothing(
    harness: Harness, state: str, text: str
) -> None:
    task_id = harness.create()
    own = harness.receive_one()
    if state == "running":
        harness.claim(own, BOB)
    other = harness.storage.work_queues.put(QUEUE, text, HOUR, 0 * HOUR)
    before, messages = harness.task(task_id), harness.messages()
    proof = ClaimProof(other.message_id, other.receipt, own.signature)
    with pytest.raises(RequestConflict, match=f"does not belong to task {task_id}"):
        harness.claim(own, ALICE, proof=proof)
    assert (harness.task(task_id), harness.messages()) == (before, messages)


def test_a_refused_claim_is_a_conflict_even_if_its_message_cannot_be_deleted(
    harness: Harness, logs: Logs
) -> None:
    task_id = harness.create(retries=0)
    harness.claim(harness.receive_one())
    harness.clock.advance(CLAIM_TIMEOUT)
    message = harness.receive_one()
    services = harness.replica(FaultAt(0, of="remove", before=ValueError("a defect")))
    with pytest.raises(RequestConflict):
        harness.claim(message, BOB, services=services)
    assert harness.states(task_id) == ["exception claim-expired"]
    assert "stale-message-not-deleted" in [entry["event"] for entry in logs]


# pools that must present their message


@pytest.fixture
def strict() -> Harness:
    return Harness(required=[f"{PROVISIONER}/{WORKER_TYPE}"])


def test_a_claim_without_full_proof_is_refused_with_an_error_that_says_what_is_missing(
    strict: Harness,
) -> None:
    task_id = strict.create()
    message = strict.receive_one()
    with pytest.raises(InputError, match=r": this claim lacks receipt\."):
        strict.claim(message, proof=replace(message.proof, receipt=None))
    with pytest.raises(InputError, match=r": this claim lacks messageId, receipt, signature\."):
        strict.claim(message, proof=ClaimProof())
    assert strict.states(task_id) == ["pending"]


def test_however_many_claims_are_refused_the_run_is_offered_once_in_10_seconds(strict: Harness) -> None:
    strict.create()
    message = strict.receive_one()
    for _ in range(20):
        with pytest.raises(InputError):
            strict.claim(message, proof=ClaimProof())
    strict.delete(message)  # workers delete the message after any 4xx
    assert strict.offered_runs() == [(0, AGAIN)]
    strict.clock.advance(AGAIN)
    with pytest.raises(InputError):
        strict.claim(message, proof=ClaimProof())
    assert strict.offered_runs() == [(0, 0 * SECOND), (0, AGAIN)]


def test_a_refused_claim_on_another_run_or_a_resolved_task_offers_nothing(strict: Harness) -> None:
    task_id = strict.claimed()
    for run_id, offered in ((0, [(1, CLAIM_TIMEOUT)]), (3, [(1, CLAIM_TIMEOUT)]), (0, [])):
        if not offered:
            strict.complete(task_id)
        with pytest.raises(InputError):
            strict.services.claims.claim(strict.task(task_id), run_id, BOB, ClaimProof())
        assert strict.offered_runs() == offered


def test_a_run_is_not_offered_again_within_10_seconds_of_the_deadline(strict: Harness) -> None:
    task_id = strict.create(deadline="2030-01-02T03:14:15.678Z")  # 10 minutes and 10 seconds
    strict.clock.advance(POLL_VISIBILITY * 2)
    message = strict.receive_one()
    with pytest.raises(InputError):
        strict.claim(message, proof=ClaimProof())
    strict.delete(message)
    assert strict.messages() == []
    assert strict.states(task_id) == ["pending"]
