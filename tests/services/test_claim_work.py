"""claimWork: docs/explanation/protocols.md#claimwork."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.task import Worker
from legacy_queue.services.claim_work.work_poller import POLL_LEASE
from legacy_queue.services.composition import Services
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    PROVISIONER,
    QUEUE,
    SECOND,
    SECRET,
    WORKER_TYPE,
    CallRecorder,
    FaultAt,
    Harness,
    failing,
    task_body,
)
from tests.system.processes import wait_until

MS = timedelta(milliseconds=1)
NO_DELAY = timedelta(0)


def connected() -> bool:
    return False


def disconnects_after(checks: int) -> Callable[[], bool]:
    """A client that the server finds disconnected at the check of that number, from 0."""
    answers = iter([False] * checks)
    return lambda: next(answers, True)


def claim_work(
    services: Services,
    count: int = 1,
    worker: Worker = ALICE,
    is_disconnected: Callable[[], bool] = connected,
    worker_type: str = WORKER_TYPE,
    max_wait: timedelta | None = None,
) -> Sequence[Mapping[str, Any]]:
    answer = services.claim_work.claim(
        PROVISIONER, worker_type, worker, count, is_disconnected, max_wait=max_wait
    )
    assert set(answer) == {"tasks"}
    return list(answer["tasks"])


def finds_nothing(harness: Harness, **changes: Any) -> bool:
    """Whether a worker that waits a little gets no work."""
    return claim_work(harness.replica(claim_work_wait=50 * MS), **changes) == []


@contextmanager
def waiting(
    services: Services, *workers: Worker, worker_type: str = WORKER_TYPE
) -> Iterator[list[Mapping[str, Any]]]:
    """Each worker waits for work in a thread. At the end all have answers, and the list has their claims."""
    claims: list[Mapping[str, Any]] = []

    def wait(worker: Worker) -> None:
        claims.extend(claim_work(services, worker=worker, worker_type=worker_type))

    threads = [threading.Thread(target=wait, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    yield claims
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_new_task_wakes_waiting_requests() -> None:
    """The clock stands still: no empty queue is polled again by itself."""
    harness, calls = Harness(), CallRecorder()
    services = harness.services = harness.replica(calls)
    with waiting(services, ALICE, BOB) as claims:
        wait_until(lambda: services.pollers.waiting() == 2 and calls.names.count("receive") >= 7)
        tasks = {harness.create(), harness.create()}
    assert {claim["status"]["taskId"] for claim in claims} == tasks


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), ValueError("a bug")], ids=["away", "a bug"])
@pytest.mark.parametrize("step", ["receive", "worker.load"])
def test_a_step_that_fails_after_a_claim_hides_no_claim(
    harness: Harness, step: str, error: Exception
) -> None:
    """A duplicate message leaves room: its request polls again."""
    tasks = [harness.create()]
    harness.storage.work_queues.put(QUEUE, harness.messages()[0].text, HOUR, NO_DELAY)
    tasks.append(harness.create())
    has_claimed = False

    def intercept(name: str, call: Callable[[], Any]) -> Any:
        nonlocal has_claimed
        if has_claimed and name == step:
            raise error
        answer = call()
        if name == "replace":
            has_claimed = True
            harness.clock.advance(6 * SECOND)  # what is known of a quarantine is older than five seconds
        return answer

    claims = claim_work(harness.replica(intercept), count=2)
    assert has_claimed
    claims = [*claims, *claim_work(harness.services, worker=BOB, max_wait=NO_DELAY)]
    assert [claim["status"]["taskId"] for claim in claims] == tasks


@pytest.mark.parametrize("checks", [0, 1, 2, 3])
def test_a_disconnected_client_leaves_the_task_pending(harness: Harness, checks: int) -> None:
    """The poller checks before and after its poll; claimWork checks before and after it claims."""
    task_id = harness.create(retries=0)
    assert claim_work(harness.services, is_disconnected=disconnects_after(checks)) == []
    assert harness.states(task_id) == ["pending"]
    assert harness.task(task_id).retries_left == 0
    (claim,) = claim_work(harness.services, worker=BOB)
    assert (claim["status"]["taskId"], claim["runId"]) == (task_id, 0)


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), ValueError("a bug")], ids=["away", "a bug"])
def test_a_claim_that_cannot_be_released_expires_and_others_are_released(
    harness: Harness, error: Exception
) -> None:
    tasks = [harness.create(priority="highest"), harness.create(priority="lowest")]
    away = FaultAt(2, of="replace", before=failing(error))
    services = harness.replica(away)
    assert claim_work(services, 2, is_disconnected=disconnects_after(4)) == []
    assert away.happened
    assert sorted(harness.states(task)[0] for task in tasks) == ["pending", "running by alice"]
    harness.run_timers(CLAIM_TIMEOUT + 2 * MINUTE)
    assert sorted(harness.states(task)[-1] for task in tasks) == ["pending", "pending"]


def test_waiting_clients_are_answered_when_the_stop_begins(harness: Harness) -> None:
    with waiting(harness.services, ALICE, BOB) as claims:
        wait_until(lambda: harness.services.pollers.waiting() == 2)
        harness.services.background().begin_stop()
    assert claims == []
    harness.create()
    assert claim_work(harness.services) == []


def test_a_failure_of_storage_reaches_the_client(harness: Harness) -> None:
    services = harness.replica(FaultAt(0, of="receive", before=failing(ServiceUnavailable("away"))))
    with pytest.raises(ServiceUnavailable):
        claim_work(services)


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), ValueError("a bug")], ids=["away", "a bug"])
def test_a_task_that_cannot_be_claimed_leaves_the_others_claimed(harness: Harness, error: Exception) -> None:
    tasks = [harness.create(priority="highest"), harness.create(priority="lowest")]
    services = harness.replica(FaultAt(0, of="replace", before=failing(error)))
    claims = claim_work(services, 2)
    assert len(claims) == 1
    harness.clock.advance(max(POLL_LEASE, CLAIM_TIMEOUT))
    claims = [*claims, *claim_work(harness.services, 2, BOB)]
    assert {claim["status"]["taskId"] for claim in claims} == set(tasks)


def test_a_message_that_is_visible_too_early_is_hidden_for_two_seconds(harness: Harness) -> None:
    task_id = harness.claimed()
    text = message_text(task_id, 1, SECRET)
    lease = harness.task(task_id).held
    assert lease
    harness.storage.work_queues.hide(QUEUE, lease, text, NO_DELAY)  # storage's clock is ahead
    assert finds_nothing(harness, worker=BOB)
    assert harness.offered_runs() == [(1, 2 * SECOND)]
    assert harness.states(task_id) == ["running by alice"]


def test_pollers_of_idle_worker_types_are_forgotten_but_not_one_that_a_request_is_about_to_use(
    harness: Harness,
) -> None:

    def ask_for_many_others() -> None:
        others = threading.enumerate()
        for number in range(1100):
            claim_work(services, worker_type=f"type-{number}", max_wait=NO_DELAY)
        for poller in set(threading.enumerate()) - set(others):
            poller.join(60)
        claim_work(services, worker_type="one-more", max_wait=NO_DELAY)
        assert services.pollers.count() < 1000

    services = harness.replica(
        FaultAt(0, of="worker.load", before=ask_for_many_others), claim_work_wait=MINUTE
    )
    with waiting(services, ALICE) as claims:
        assert wait_until(services.pollers.waiting)
        services.tasks.create(slugid(), task_body(harness.clock.now()))
    assert len(claims) == 1


def test_a_message_signed_with_an_unknown_secret_is_removed(harness: Harness) -> None:
    task_id = harness.create()
    harness.delete(harness.receive_one())
    harness.storage.work_queues.put(QUEUE, message_text(task_id, 0, b"not-a-secret-of-ours"), HOUR, NO_DELAY)
    assert finds_nothing(harness)
    assert (harness.states(task_id), harness.messages()) == (["pending"], [])


def test_a_task_that_is_pending_is_offered_after_the_clock_was_set_back(harness: Harness) -> None:
    task_id = harness.create()
    harness.clock.advance(-HOUR)
    [claim] = claim_work(harness.services)
    assert claim["status"]["taskId"] == task_id
