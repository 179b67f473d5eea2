"""Claims under the draft and under the deployed protocol: docs/explanation/protocols.md and
docs/explanation/held-message.md.

Expected signatures come from openssl, which signs ``<taskId>/<runId>`` with the secret.
"""

import base64
import json
import subprocess
from dataclasses import replace
from datetime import timedelta

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, RequestConflict, ResourceNotFound
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import Lease
from legacy_queue.ports.queue import MessageNotFound, PopReceiptMismatch
from legacy_queue.services.claims import Presented
from tests.services.bench import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    OLD_SECRET,
    POLL_VISIBILITY,
    PROVISIONER,
    SECOND,
    SECRET,
    WORKER_TYPE,
    Bench,
    Calls,
    Message,
    task_body,
)

MS = timedelta(milliseconds=1)
NOTHING = Presented()


def by_openssl(task_id: str, run_id: int, secret: bytes) -> str:
    command = ["openssl", "dgst", "-sha256", "-hmac", secret.decode(), "-binary"]
    made = subprocess.run(command, input=f"{task_id}/{run_id}".encode(), capture_output=True, check=True)
    return base64.b64encode(made.stdout).decode()


def test_a_message_is_signed_with_the_first_secret() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    assert message.signature == by_openssl(task_id, 0, SECRET)
    bench.claim(message)
    bench.clock.advance(CLAIM_TIMEOUT)
    assert bench.receive_one().signature == by_openssl(task_id, 1, SECRET)


def test_a_claim_answers_what_the_worker_needs() -> None:
    bench = Bench()
    task_id = bench.create(scopes=["a:scope"])
    answer = bench.claim(bench.receive_one())
    assert answer["status"] == bench.task(task_id).status()
    assert answer["task"] == bench.task(task_id).wire
    assert (answer["runId"], answer["workerGroup"], answer["workerId"]) == (0, "group", "alice")
    assert answer["takenUntil"] == "2030-01-02T03:24:05.678Z"
    assert answer["status"]["runs"][0]["takenUntil"] == answer["takenUntil"]


def test_the_credentials_of_a_claim_are_for_this_run_and_end_shortly_after_it() -> None:
    bench = Bench()
    task_id = bench.create(scopes=["a:scope", "another:*"])
    credentials = bench.claim(bench.receive_one())["credentials"]
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


def test_a_scope_that_the_task_shares_with_its_claim_is_named_once() -> None:
    bench = Bench()
    task_id = slugid()
    scopes = ["a:scope", f"queue:claim-task:{task_id}/0"]
    bench.services.tasks.create(task_id, task_body(scopes=scopes))
    certificate = json.loads(bench.claim(bench.receive_one())["credentials"]["certificate"])
    assert len(certificate["scopes"]) == len(set(certificate["scopes"])) == 5


def test_a_claim_turns_the_message_into_that_of_the_next_run_until_it_ends() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    bench.claim(message)
    (held,) = bench.messages()
    assert bench.task(task_id).held == held.lease
    assert held.lease.message_id == message.lease.message_id
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]

    bench.clock.advance(CLAIM_TIMEOUT - MS)
    assert bench.receive() == []
    bench.clock.advance(MS)
    next_message = bench.receive_one()
    assert (next_message.task_id, next_message.run_id) == (task_id, 1)


def test_a_claim_that_ends_within_a_second_is_held_for_all_of_it() -> None:
    bench = Bench()
    bench.create()
    message = bench.receive_one()
    bench.claim(message)
    bench.clock.advance(SECOND - MS)
    bench.services.claims.reclaim(message.task_id, 0)
    taken_until = bench.task(message.task_id).runs[0].taken_until
    (held,) = bench.messages()
    assert taken_until
    assert taken_until <= held.next_visible < taken_until + SECOND


def test_a_claim_without_a_message_puts_its_own() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    bench.claim(message, presented=NOTHING)
    bench.delete(message)
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]
    assert bench.messages()[0].lease == bench.task(task_id).held
    bench.clock.advance(CLAIM_TIMEOUT)
    assert bench.receive_one().run_id == 1


def test_a_worker_of_the_deployed_protocol_that_forgets_to_delete_harms_nothing() -> None:
    bench = Bench()
    task_id = bench.create()
    bench.claim(bench.receive_one(), presented=NOTHING)
    bench.clock.advance(POLL_VISIBILITY)
    with pytest.raises(RequestConflict, match="run 0 is running"):
        bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["running by alice"]
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1]


def test_a_claim_with_a_stale_receipt_puts_its_own_message() -> None:
    bench = Bench()
    task_id = bench.create()
    stale = bench.receive_one()
    bench.clock.advance(POLL_VISIBILITY)
    fresh = bench.receive_one()
    bench.claim(stale, ALICE)
    held = bench.task(task_id).held
    assert held
    assert held.message_id != stale.lease.message_id
    with pytest.raises(RequestConflict):
        bench.claim(fresh, BOB)
    assert [one.lease for one in bench.messages()] == [held]


def test_a_claim_whose_message_is_gone_puts_its_own() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    bench.delete(message)
    bench.claim(message)
    assert [one.lease for one in bench.messages()] == [bench.task(task_id).held]


def test_a_message_id_without_its_receipt_is_as_good_as_none() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    bench.claim(message, presented=Presented(message.lease.message_id, None, message.signature))
    assert len(bench.messages()) == 2
    assert bench.states(task_id) == ["running by alice"]


def test_a_worker_that_deletes_its_message_after_a_draft_claim_harms_nothing() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    bench.claim(message)
    with pytest.raises(PopReceiptMismatch):  # Azure's 400
        bench.delete(message)
    bench.clock.advance(CLAIM_TIMEOUT)
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def lose_held_message(bench: Bench, task_id: str) -> None:
    task = bench.task(task_id)
    assert task.held
    bench.storage.work_queues.remove(task.work_queue, task.held)
    assert bench.messages() == []


def test_a_lost_held_message_is_put_again_by_a_reclaim() -> None:
    bench = Bench()
    task_id = bench.claimed()
    lose_held_message(bench, task_id)
    bench.services.claims.reclaim(task_id, 0)
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]


def test_a_claim_whose_held_message_was_lost_is_ended_by_its_timer() -> None:
    bench = Bench()
    task_id = bench.claimed()
    lose_held_message(bench, task_id)
    bench.run_timers(CLAIM_TIMEOUT + SECOND)
    assert bench.states(task_id) == ["exception claim-expired", "pending"]
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_claim_by_name_takes_over_where_the_held_message_was_lost_and_nothing_resolves() -> None:
    bench = Bench()
    task_id = bench.claimed()
    lose_held_message(bench, task_id)
    bench.clock.advance(23 * HOUR)
    assert bench.receive() == []
    assert bench.states(task_id) == ["running by alice"]
    bench.claim(Message(task_id, 1, by_openssl(task_id, 1, SECRET), Lease("lost", "lost")), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


@pytest.mark.parametrize("signature", ["", "nonsense", by_openssl("eWIgwMgxSfeXQ36iBbOxiQ", 0, SECRET)])
@pytest.mark.parametrize("has_receipt", [True, False])
def test_a_signature_that_is_wrong_changes_nothing(signature: str, has_receipt: bool) -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    before, messages = bench.task(task_id), bench.messages()
    calls = Calls()
    presented = replace(message.presented if has_receipt else NOTHING, signature=signature)
    with pytest.raises(AuthorizationFailed, match=f"not that of task {task_id} run 0") as error:
        bench.replica(calls).claims.claim(before, 0, ALICE, presented)
    assert error.value.status == 403
    assert calls.names == []
    assert (bench.task(task_id), bench.messages()) == (before, messages)


def test_the_signature_of_another_run_or_task_is_wrong() -> None:
    bench = Bench()
    bench.create()
    message = bench.receive_one()
    bench.create()
    other = bench.receive_one()
    with pytest.raises(AuthorizationFailed):
        bench.claim(message, run_id=1)
    with pytest.raises(AuthorizationFailed):
        bench.claim(message, presented=other.presented)


def test_a_message_forged_by_somebody_with_storage_access_is_refused() -> None:
    bench = Bench()
    task_id = bench.create(scopes=["secret:scope"])
    message = bench.receive_one()
    forged = replace(message, signature=base64.b64encode(b"x" * 32).decode())
    with pytest.raises(AuthorizationFailed):
        bench.claim(forged, BOB)
    assert bench.states(task_id) == ["pending"]
    bench.claim(message, ALICE)


def test_a_secret_is_rotated_while_workers_hold_messages_of_the_old_one() -> None:
    bench = Bench(secrets=[OLD_SECRET])
    task_id = bench.create()
    message = bench.receive_one()
    assert message.signature == by_openssl(task_id, 0, OLD_SECRET)
    rotated = bench.replica(secrets=[SECRET, OLD_SECRET])
    bench.claim(message, services=rotated)
    bench.clock.advance(CLAIM_TIMEOUT)
    next_message = bench.receive_one()
    assert next_message.signature == by_openssl(task_id, 1, SECRET)
    bench.claim(next_message, services=rotated)
    assert bench.states(task_id) == ["exception claim-expired", "running by alice"]


def test_a_secret_that_is_listed_no_more_verifies_nothing() -> None:
    bench = Bench(secrets=[OLD_SECRET])
    bench.create()
    with pytest.raises(AuthorizationFailed):
        bench.claim(bench.receive_one(), services=bench.replica(secrets=[SECRET]))


def test_the_receipt_of_a_message_that_somebody_else_polled_gives_nobody_a_second_run() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    bench.claim(message, BOB)  # with what was stolen from Alice
    with pytest.raises(RequestConflict):
        bench.claim(message, ALICE)
    assert bench.states(task_id) == ["running by bob"]
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]


def test_a_receipt_without_its_signature_is_not_withdrawn_with_a_conflict() -> None:
    """It may be that of another task's message, whose only one it is."""
    bench = Bench()
    running = bench.claimed()
    waiting = bench.create()
    stolen = bench.receive_one()
    with pytest.raises(RequestConflict):
        bench.services.claims.claim(
            bench.task(running), 0, BOB, Presented(stolen.lease.message_id, stolen.lease.receipt)
        )
    bench.claim(stolen, BOB)
    assert bench.states(waiting) == ["running by bob"]


def test_a_message_deleted_twice_is_gone() -> None:
    bench = Bench()
    bench.create()
    message = bench.receive_one()
    bench.delete(message)
    with pytest.raises(MessageNotFound):
        bench.delete(message)


def test_the_same_worker_claiming_again_gets_the_same_claim() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    first = bench.claim(message)
    messages = bench.messages()
    bench.clock.advance(MINUTE)
    for presented in (message.presented, NOTHING):
        again = bench.claim(message, presented=presented)
        for name in ("status", "runId", "workerGroup", "workerId", "takenUntil", "task"):
            assert again[name] == first[name]
        assert again["credentials"]["clientId"] == first["credentials"]["clientId"]
    assert bench.messages() == messages
    assert bench.states(task_id) == ["running by alice"]


def test_the_second_worker_gets_a_conflict() -> None:
    bench = Bench()
    bench.create()
    message = bench.receive_one()
    bench.claim(message, ALICE, presented=NOTHING)
    with pytest.raises(RequestConflict, match="run 0 is running") as error:
        bench.claim(message, BOB, presented=NOTHING)
    assert error.value.details["status"]["runs"][0]["workerId"] == "alice"


def test_a_run_that_there_is_not_is_not_found() -> None:
    bench = Bench()
    task_id = bench.create()
    message = bench.receive_one()
    with pytest.raises(ResourceNotFound, match="no run 5"):
        bench.claim(message, presented=Presented(message.lease.message_id, message.lease.receipt), run_id=5)
    bench.claim(message)
    assert bench.states(task_id) == ["running by alice"]


def test_a_claim_costs_no_read_where_the_task_is_remembered() -> None:
    """Schedule the timer, hold the message, write the task:
    docs/explanation/architecture.md#what-a-call-costs.
    """
    bench = Bench()
    calls = Calls()
    services = bench.replica(calls, remembers=True)
    services.tasks.recall(bench.create())
    services.workers.is_quarantined(PROVISIONER, WORKER_TYPE, ALICE)  # asks once in 5 s
    calls.names.clear()
    bench.claim(bench.receive_one(), services=services)
    assert calls.names == ["timer.put", "hide", "replace", "broker.publish"]


def test_a_claim_without_signature_takes_the_message_of_another_task() -> None:
    bench = Bench()
    one, two = bench.create(), bench.create()
    messages = {message.task_id: message for message in bench.receive()}
    lease = messages[one].lease
    bench.claim(messages[two], presented=Presented(lease.message_id, lease.receipt))
    bench.delete(messages[one])  # its lease is still good: nobody changed it
    assert bench.states(one) == ["pending"]
