"""claimWork: docs/explanation/protocols.md#claimwork."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.task import Worker
from legacy_queue.domain.worker_record import worker_path
from legacy_queue.services.claim_work.work_poller import POLL_LEASE
from legacy_queue.services.services import Services
from tests.domain.sample_tasks import ALICE, BOB, CLAIM_TIMEOUT, HOUR, MINUTE, MS, SECOND, task_body
from tests.services.fake_ports import CallRecorder, FaultAt
from tests.services.harness import PREFIX, PROVISIONER, QUEUE, SECRET, WORKER_TYPE, Harness
from tests.system.processes import wait_until

NO_DELAY = timedelta(0)


each_error = pytest.mark.parametrize("error", [ServiceUnavailable("away"), ValueError("a bug")], ids=repr)


def disconnects_after(checks: int) -> Callable[[], bool]:
    """A client whose disconnection the server notices at this check, counted from 0."""
    answers = iter([False] * checks)
    return lambda: next(answers, True)


def claim_work(
    services: Services,
    count: int = 1,
    worker: Worker = ALICE,
    is_disconnected: Callable[[], bool] = lambda: False,
    worker_type: str = WORKER_TYPE,
    max_wait: timedelta | None = None,
) -> list[str]:
    claim = services.claim_work.claim
    answer = claim(PROVISIONER, worker_type, worker, count, is_disconnected, max_wait=max_wait)
    return [claim["status"]["taskId"] for claim in answer["tasks"]]


def finds_nothing(harness: Harness, **changes: Any) -> bool:
    """Whether a worker gets no work although it waits a little."""
    return claim_work(harness.replica(claim_work_wait=50 * MS), **changes) == []


@contextmanager
def waiting(services: Services, *workers: Worker) -> Iterator[list[str]]:
    """Each worker waits for work in a thread. When the block ends, all have their answers.

    The list gets the taskIds that they claim.
    """
    claimed: list[str] = []
    with ThreadPoolExecutor(len(workers)) as threads:
        answers = [threads.submit(claim_work, services, 1, worker) for worker in workers]
        yield claimed
        for answer in answers:
            claimed += answer.result(60)


def test_a_new_task_wakes_waiting_requests() -> None:
    """The clock stands still, so an empty queue is polled again only for the new task."""
    harness, calls = Harness(), CallRecorder()
    services = harness.services = harness.replica(calls)
    with waiting(services, ALICE, BOB) as claimed:
        wait_until(lambda: services.poller.waiting() == 2 and calls.names.count("receive") >= 7)
        tasks = [harness.create(), harness.create()]
    assert sorted(claimed) == sorted(tasks)


def test_a_duplicate_message_is_replaced_by_another_task(harness: Harness) -> None:
    first = harness.create()
    harness.storage.work_queues.put(QUEUE, harness.messages()[0].text, HOUR, NO_DELAY)
    others = [harness.create() for _ in range(2)]
    assert claim_work(harness.services, count=2) == [first, others[0]]
    assert harness.states(others[1]) == ["pending"]


def test_a_worker_whose_quarantine_begins_while_it_waits_gets_no_work(harness: Harness) -> None:
    task_id, alice = harness.create(), worker_path(PROVISIONER, WORKER_TYPE, ALICE)
    harness.services.workers.declare(alice, {})

    def begin() -> None:
        harness.services.workers.quarantine(alice, harness.clock.now() + HOUR)
        harness.clock.advance(5 * SECOND)

    begins = FaultAt(6, of="receive", after=begin)
    assert claim_work(harness.replica(begins)) == []
    assert begins.happened
    assert harness.states(task_id) == ["pending"]
    assert claim_work(harness.services, worker=BOB) == [task_id]


@each_error
@pytest.mark.parametrize("step", ["receive", "worker.load"])
def test_if_a_step_fails_after_a_task_was_claimed_the_worker_still_gets_the_task(
    harness: Harness, step: str, error: Exception
) -> None:
    """One message is a duplicate, so the request polls again for another task, and that fails."""
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
            harness.clock.advance(6 * SECOND)  # so that the worker's quarantine is read again
        return answer

    claimed = claim_work(harness.replica(intercept), count=2)
    assert has_claimed
    assert [*claimed, *claim_work(harness.services, worker=BOB, max_wait=NO_DELAY)] == tasks


@pytest.mark.parametrize("checks", [0, 1, 2])
def test_a_disconnected_client_leaves_the_task_pending(harness: Harness, checks: int) -> None:
    """The poller checks before it passes a message on. claimWork checks before and after it claims."""
    task_id = harness.create(retries=0)
    assert claim_work(harness.services, is_disconnected=disconnects_after(checks)) == []
    assert harness.states(task_id) == ["pending"]
    assert harness.task(task_id).retries_left == 0
    assert claim_work(harness.services, worker=BOB) == [task_id]
    assert harness.states(task_id) == ["running by bob"]


@each_error
def test_if_a_claim_cannot_be_released_only_this_claim_has_to_expire(
    harness: Harness, error: Exception
) -> None:
    tasks = [harness.create(priority="highest"), harness.create(priority="lowest")]
    away = FaultAt(2, of="replace", before=error)
    services = harness.replica(away)
    assert claim_work(services, 2, is_disconnected=disconnects_after(3)) == []
    assert away.happened
    assert sorted(harness.states(task)[0] for task in tasks) == ["pending", "running by alice"]
    harness.do_work(CLAIM_TIMEOUT + 2 * MINUTE)
    assert sorted(harness.states(task)[-1] for task in tasks) == ["pending", "pending"]


def test_waiting_clients_are_answered_when_the_server_begins_to_stop(harness: Harness) -> None:
    with waiting(harness.services, ALICE, BOB) as claimed:
        wait_until(lambda: harness.services.poller.waiting() == 2)
        harness.services.background().begin_stop()
    assert claimed == []
    harness.create()
    assert claim_work(harness.services) == []


def test_the_client_gets_an_error_of_the_storage(harness: Harness) -> None:
    services = harness.replica(FaultAt(0, of="receive", before=ServiceUnavailable("away")))
    with pytest.raises(ServiceUnavailable):
        claim_work(services)


@each_error
def test_if_one_task_cannot_be_claimed_the_worker_gets_the_others(harness: Harness, error: Exception) -> None:
    tasks = [harness.create(priority="highest"), harness.create(priority="lowest")]
    services = harness.replica(FaultAt(0, of="replace", before=error))
    claimed = claim_work(services, 2)
    assert len(claimed) == 1
    harness.clock.advance(max(POLL_LEASE, CLAIM_TIMEOUT))
    assert {*claimed, *claim_work(harness.services, 2, BOB)} == {*tasks}


def test_a_message_that_is_visible_too_early_is_hidden_for_two_seconds(harness: Harness) -> None:
    task_id = harness.claimed()
    text = message_text(task_id, 1, SECRET)
    lease = harness.task(task_id).held
    assert lease
    # now the message is visible too early, as if the storage's clock were ahead
    harness.storage.work_queues.hide(QUEUE, lease, text, NO_DELAY)
    assert finds_nothing(harness, worker=BOB)
    assert harness.offered_runs() == [(1, 2 * SECOND)]
    assert harness.states(task_id) == ["running by alice"]


def test_a_message_signed_with_an_unknown_secret_is_removed(harness: Harness) -> None:
    task_id = harness.create()
    harness.delete(harness.receive_one())
    harness.storage.work_queues.put(QUEUE, message_text(task_id, 0, b"not-a-secret-of-ours"), HOUR, NO_DELAY)
    assert finds_nothing(harness)
    assert (harness.states(task_id), harness.messages()) == (["pending"], [])


def test_a_pending_task_is_offered_even_if_the_clock_was_set_back(harness: Harness) -> None:
    task_id = harness.create()
    harness.clock.advance(-HOUR)
    assert claim_work(harness.services) == [task_id]


# several processes on one storage: each notices the messages of the others


def test_a_waiting_poll_gets_a_task_that_another_process_wrote_to_the_same_file(
    tmp_path: Path, harness: Harness
) -> None:
    """The clock stands still, so that no poll is due without the message."""
    file = StorageFile(tmp_path)
    file.prepare()
    accounts = [EmbeddedAccount(file, harness.clock, "http://127.0.0.1:1", PREFIX) for _ in range(2)]
    here, there = (harness.replica(account=account, claim_work_wait=60 * SECOND) for account in accounts)
    there.offer_watch.check()  # here no request waits
    here.background()  # this starts a thread that checks
    task_id = slugid()
    with waiting(here, ALICE) as claimed:
        wait_until(here.poller.waiting)

        def stays() -> bool:
            """Whether the file did not change between two checks. Its upkeep may have written to it."""
            version = accounts[0].version
            assert version
            before = version()
            for _ in range(2):
                harness.clock.advance(SECOND)
                here.offer_watch.check()
            return version() == before

        wait_until(stays)
        there.tasks.create(task_id, task_body(harness.clock.now()))
        here.offer_watch.check()  # too soon after the last check
        harness.clock.advance(timedelta(milliseconds=2))
        here.offer_watch.check()
    assert claimed == [task_id]
    for account in accounts:
        account.close()


def test_a_waiting_poll_gets_the_last_task_that_another_process_announced_before_it_stopped(
    harness: Harness,
) -> None:
    here, there = (harness.replica(claim_work_wait=60 * SECOND, announces_offers=True) for _ in range(2))
    task_id = slugid()
    with waiting(here, ALICE) as claimed:
        wait_until(here.poller.waiting)
        for server in (there, here):
            server.offer_watch.check()
        there.tasks.create(task_id, task_body())
        there.background().stop()
        here.offer_watch.check()
    assert claimed == [task_id]
