"""Claims under the draft and under the deployed protocol: docs/explanation/protocols.md and
docs/explanation/held-message.md.

Expected signatures come from openssl, which signs ``<taskId>/<runId>`` with the secret.
"""

import base64
import json
import subprocess
from collections.abc import MutableMapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, RequestConflict
from legacy_queue.ports.account import StorageAccount
from legacy_queue.services.tasks.claims import ClaimProof
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    POLL_VISIBILITY,
    QUEUE,
    SECRET,
    CallRecorder,
    FaultAt,
    Harness,
    failing,
)
from tests.services.ports import ShowsMessages

MS = timedelta(milliseconds=1)
NO_PROOF = ClaimProof()


def by_openssl(task_id: str, run_id: int, secret: bytes) -> str:
    command = ["openssl", "dgst", "-sha256", "-hmac", secret.decode(), "-binary"]
    made = subprocess.run(command, input=f"{task_id}/{run_id}".encode(), capture_output=True, check=True)
    return base64.b64encode(made.stdout).decode()


def test_the_credentials_of_a_claim_are_for_its_run_and_end_15_minutes_later(harness: Harness) -> None:
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


def test_a_claim_with_a_stale_receipt_puts_a_new_message(harness: Harness) -> None:
    task_id = harness.create()
    stale = harness.receive_one()
    harness.clock.advance(POLL_VISIBILITY)
    fresh = harness.receive_one()
    harness.claim(stale, ALICE)
    held = harness.task(task_id).held
    assert held
    assert held.message_id != stale.lease.message_id
    with pytest.raises(RequestConflict):
        harness.claim(fresh, BOB)
    assert [message.lease for message in harness.messages()] == [held]


@pytest.mark.parametrize("signature", ["", by_openssl("eWIgwMgxSfeXQ36iBbOxiQ", 0, SECRET)])
@pytest.mark.parametrize("has_receipt", [True, False])
def test_a_wrong_signature_is_refused_and_changes_nothing(
    harness: Harness, signature: str, has_receipt: bool
) -> None:
    task_id = harness.create()
    message = harness.receive_one()
    before, messages = harness.task(task_id), harness.messages()
    calls = CallRecorder()
    proof = replace(message.proof if has_receipt else NO_PROOF, signature=signature)
    with pytest.raises(AuthorizationFailed, match=f"not that of task {task_id} run 0") as error:
        harness.replica(calls).claims.claim(before, 0, ALICE, proof)
    assert error.value.status == 403
    assert [name for name in calls.names if not name.startswith("worker.")] == []
    assert (harness.task(task_id), harness.messages()) == (before, messages)


def test_a_conflict_without_a_signature_does_not_delete_the_message(harness: Harness) -> None:
    """It may be the receipt of the only message of another task."""
    running = harness.claimed()
    waiting = harness.create()
    stolen = harness.receive_one()
    with pytest.raises(RequestConflict):
        harness.services.claims.claim(
            harness.task(running), 0, BOB, ClaimProof(stolen.lease.message_id, stolen.lease.receipt)
        )
    harness.claim(stolen, BOB)
    assert harness.states(waiting) == ["running by bob"]


@pytest.mark.parametrize("state", ["pending", "running"])
def test_a_claim_with_the_message_of_another_task_is_refused_and_changes_nothing(
    harness: Harness, state: str
) -> None:
    task_id = harness.create()
    own = harness.receive_one()
    if state == "running":
        harness.claim(own, BOB)
    harness.create()
    other = harness.receive_one()
    before, messages = harness.task(task_id), harness.messages()
    proof = ClaimProof(other.lease.message_id, other.lease.receipt, own.signature)
    with pytest.raises(RequestConflict, match=f"is not one of task {task_id}"):
        harness.claim(own, ALICE, proof=proof)
    assert (harness.task(task_id), harness.messages()) == (before, messages)


def test_a_claim_with_a_message_that_is_no_work_message_is_refused(harness: Harness) -> None:
    harness.create()
    own = harness.receive_one()
    alien = harness.storage.work_queues.put(QUEUE, "no work message", HOUR, 0 * HOUR)
    with pytest.raises(RequestConflict):
        harness.claim(own, proof=replace(own.proof, message_id=alien.message_id, receipt=alien.receipt))


def test_where_azure_hides_the_texts_the_sweep_finds_the_task_whose_message_another_claim_took(
    harness: Harness,
) -> None:
    services = harness.replica(account=cast(StorageAccount, ShowsMessages(harness.account)))
    task_id, other_id = harness.create(), harness.create()
    own, other = harness.receive()
    proof = ClaimProof(other.lease.message_id, other.lease.receipt, own.signature)
    harness.claim(own, services=services, proof=proof)
    harness.delete(own)  # as after each claim of the deployed protocol
    harness.sweep(11 * MINUTE, services)
    assert (own.task_id, harness.receive_one().task_id) == (task_id, other_id)


def test_a_claim_with_a_stolen_receipt_gives_no_second_claim(harness: Harness) -> None:
    task_id = harness.create()
    message = harness.receive_one()
    harness.claim(message, BOB)
    with pytest.raises(RequestConflict):
        harness.claim(message, ALICE)
    assert harness.states(task_id) == ["running by bob"]
    assert harness.offered_runs() == [(1, CLAIM_TIMEOUT)]


def test_a_refused_claim_is_a_conflict_also_if_its_message_cannot_be_deleted(
    harness: Harness,
    logs: list[MutableMapping[str, Any]],
) -> None:
    task_id = harness.create(retries=0)
    harness.claim(harness.receive_one())
    harness.clock.advance(CLAIM_TIMEOUT)
    message = harness.receive_one()
    services = harness.replica(FaultAt(0, of="remove", before=failing(ValueError("a defect"))))
    with pytest.raises(RequestConflict):
        harness.claim(message, BOB, services=services)
    assert harness.states(task_id) == ["exception claim-expired"]
    assert "stale-message-not-deleted" in [entry["event"] for entry in logs]
