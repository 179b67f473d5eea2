"""Worker types that must present their message: refused, they leave the run to be offered again."""

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, InputError, RequestConflict
from legacy_queue.domain.messages import message_signature
from legacy_queue.domain.times import format_time
from legacy_queue.domain.workers import worker_path
from legacy_queue.services.claims import Presented
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
    Message,
)
from tests.services.invariants import check

AGAIN = 10 * SECOND
FIELDS = {"message_id": "messageId", "receipt": "receipt", "signature": "signature"}


@pytest.fixture
def bench() -> Bench:
    return Bench(required=[f"{PROVISIONER}/{WORKER_TYPE}"])


def without(message: Message, *fields: str) -> Presented:
    given = {"message_id": message.lease.message_id, "receipt": message.lease.receipt}
    given["signature"] = message.signature
    return Presented(**{name: value for name, value in given.items() if name not in fields})


def test_a_worker_that_presents_its_message_may_claim(bench: Bench) -> None:
    assert bench.states(bench.claimed()) == ["running by alice"]


@pytest.mark.parametrize("fields", [("message_id",), ("receipt",), ("signature",), tuple(FIELDS)])
def test_what_is_missing_is_named_and_nothing_claimed(bench: Bench, fields: tuple[str, ...]) -> None:
    task_id = bench.create()
    message = bench.receive_one()
    with pytest.raises(InputError) as error:
        bench.claim(message, presented=without(message, *fields))
    assert f": this claim lacks {', '.join(FIELDS[name] for name in fields)}. " in str(error.value)
    assert error.value.status == 400
    assert bench.states(task_id) == ["pending"]


def test_claims_that_are_refused_again_and_again_multiply_the_message(bench: Bench) -> None:
    bench.create()
    message = bench.receive_one()
    for _ in range(20):
        with pytest.raises(InputError):
            bench.claim(message, presented=Presented())
    assert len(bench.messages()) == 2
    bench.clock.advance(AGAIN)
    with pytest.raises(InputError):
        bench.claim(message, presented=Presented())
    assert len(bench.messages()) == 3


def test_other_worker_types_may_leave_it_out(bench: Bench) -> None:
    task_id = bench.create(workerType="another")
    bench.services.claims.claim(bench.task(task_id), 0, ALICE, Presented())
    assert bench.states(task_id) == ["running by alice"]


def test_a_wrong_signature_is_refused_as_such_and_offers_nothing(bench: Bench) -> None:
    task_id = bench.create()
    calls = Calls()
    with pytest.raises(AuthorizationFailed):
        bench.replica(calls).claims.claim(bench.task(task_id), 0, ALICE, Presented(signature="wrong"))
    assert calls.names == []


def test_a_refused_run_is_offered_again_after_10_seconds(bench: Bench) -> None:
    task_id = bench.create()
    message = bench.receive_one()
    with pytest.raises(InputError):
        bench.claim(message, presented=Presented())
    bench.delete(message)  # as a worker does with any 4xx
    assert bench.runs_to_come() == [(0, AGAIN)]
    bench.clock.advance(AGAIN - SECOND)
    assert bench.receive() == []
    bench.clock.advance(SECOND)
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["running by bob"]


def test_a_message_presented_without_its_signature_is_left_alone(bench: Bench) -> None:
    bench.create()
    message = bench.receive_one()
    with pytest.raises(InputError):
        bench.claim(message, presented=without(message, "signature"))
    bench.delete(message)
    assert bench.runs_to_come() == [(0, AGAIN)]


def test_a_worker_that_is_always_refused_does_not_spin(bench: Bench) -> None:
    task_id = bench.create()
    refusals = 0
    while bench.clock.now() < NOW + 2 * MINUTE:
        for message in bench.receive():
            with pytest.raises(InputError):
                bench.claim(message, presented=Presented())
            bench.delete(message)
            refusals += 1
        bench.clock.advance(SECOND)
    assert refusals == 12
    assert len(bench.messages()) == 1
    assert bench.states(task_id) == ["pending"]


def test_a_refused_worker_leaves_an_expired_claim_to_the_next(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT)
    held = bench.receive_one()
    with pytest.raises(InputError):
        bench.claim(held, BOB, presented=Presented())
    bench.delete(held)
    assert bench.runs_to_come() == [(1, AGAIN)]
    bench.clock.advance(AGAIN)
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_refused_worker_leaves_a_claim_that_lasts_with_a_message_for_its_end(bench: Bench) -> None:
    """Its clock, or the storage's, is ahead: it deletes the held message before its time."""
    task_id = bench.claimed()
    bench.clock.advance(CLAIM_TIMEOUT - MINUTE)
    message = Message(task_id, 1, "", bench.task(task_id).held)
    with pytest.raises(InputError):
        bench.claim(message, BOB, presented=Presented())
    bench.delete(message)
    assert bench.runs_to_come() == [(1, MINUTE)]
    check(bench, task_id, after_faults=True)


@pytest.mark.parametrize("run_id", [0, 3])
def test_a_refused_claim_on_a_run_that_does_not_wait_offers_nothing(bench: Bench, run_id: int) -> None:
    task_id = bench.claimed()
    with pytest.raises(InputError):
        bench.services.claims.claim(bench.task(task_id), run_id, BOB, Presented())
    assert bench.runs_to_come() == [(1, CLAIM_TIMEOUT)]


def test_a_refused_claim_on_a_resolved_task_offers_nothing(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.complete(task_id)
    with pytest.raises(InputError):
        bench.services.claims.claim(bench.task(task_id), 0, BOB, Presented())
    assert bench.messages() == []


def test_nothing_is_offered_again_that_would_outlive_the_deadline(bench: Bench) -> None:
    task_id = bench.create(deadline="2030-01-02T03:14:15.678Z")  # 10 minutes and 10 seconds
    bench.clock.advance(POLL_VISIBILITY * 2)
    message = bench.receive_one()
    with pytest.raises(InputError):
        bench.claim(message, presented=Presented())
    bench.delete(message)
    assert bench.messages() == []
    assert bench.states(task_id) == ["pending"]


def test_a_message_is_not_hidden_past_its_own_end(bench: Bench) -> None:
    """Azure refuses that; a claim may end after the deadline, where the message ends."""
    task_id = bench.create(deadline=format_time(NOW + 10 * MINUTE))
    message = bench.receive_one()
    bench.claim(message)
    presented = Presented(
        message.lease.message_id, message.lease.receipt, message_signature(task_id, 1, SECRET)
    )
    bob = worker_path(PROVISIONER, WORKER_TYPE, BOB)
    bench.services.workers.declare(bob, {})
    bench.services.workers.quarantine(bob, NOW + HOUR)
    calls = Calls()
    with pytest.raises(RequestConflict, match="is quarantined"):
        bench.replica(calls).claims.claim(bench.task(task_id), 1, BOB, presented)
    assert not {"hide", "put"} & {name.removeprefix("work_queues.") for name in calls.names}
