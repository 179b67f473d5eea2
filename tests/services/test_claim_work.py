"""claimWork: docs/explanation/protocols.md#claimwork."""

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Worker
from legacy_queue.domain.worker_record import worker_path
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from legacy_queue.services.work_poller import LEASE
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    OLD_SECRET,
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
AT_ONCE = timedelta(0)


def recent_tasks(harness: Harness) -> Sequence[Mapping[str, Any]]:
    path = worker_path(PROVISIONER, WORKER_TYPE, ALICE)
    return list(harness.services.workers.describe(path)["recentTasks"])


def stays() -> bool:
    return False


def hangs_up_after(asked: int) -> Callable[[], bool]:
    """A client that is found gone when it is asked after for the so many-th time, from 0."""
    answers = iter([False] * asked)
    return lambda: next(answers, True)


def claim_work(
    services: Services,
    count: int = 1,
    worker: Worker = ALICE,
    is_gone: Callable[[], bool] = stays,
    worker_type: str = WORKER_TYPE,
    waits: bool = True,
) -> Sequence[Mapping[str, Any]]:
    answer = services.claim_work.claim(PROVISIONER, worker_type, worker, count, is_gone, waits=waits)
    assert set(answer) == {"tasks"}
    return list(answer["tasks"])


def finds_nothing(harness: Harness, **changes: Any) -> bool:
    """Whether a worker that waits a little gets no work."""
    return claim_work(harness.replica(claim_work_wait=50 * MS), **changes) == []


@contextmanager
def waiting(
    services: Services, *workers: Worker, worker_type: str = WORKER_TYPE
) -> Iterator[list[Mapping[str, Any]]]:
    """Each of them waits for work; at the end all have what they got, and it is in the list."""
    got: list[Mapping[str, Any]] = []

    def wait(worker: Worker) -> None:
        got.extend(claim_work(services, worker=worker, worker_type=worker_type))

    threads = [threading.Thread(target=wait, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    yield got
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_claim_differs_from_that_of_claim_task() -> None:
    harness = Harness()
    task_id = harness.create(scopes=["a:scope"])
    (claim,) = claim_work(harness.services)
    assert claim["task"] == harness.task(task_id).wire
    assert claim["status"] == harness.task(task_id).status()
    assert (claim["runId"], claim["workerGroup"], claim["workerId"]) == (0, "group", "alice")
    assert set(claim) == set(harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof()))
    certificate = json.loads(claim["credentials"]["certificate"])
    assert f"queue:claim-task:{task_id}/0" in certificate["scopes"]
    assert "a:scope" in certificate["scopes"]


def test_the_message_is_not_held_as_for_other_claims() -> None:
    harness = Harness()
    task_id = harness.create()
    claim_work(harness.services)
    assert harness.offered_runs() == [(1, CLAIM_TIMEOUT)]
    held = harness.task(task_id).held
    assert held
    assert held.message_id == harness.messages()[0].lease.message_id
    harness.clock.advance(CLAIM_TIMEOUT)
    (claim,) = claim_work(harness.services, worker=BOB)
    assert (claim["runId"], harness.states(task_id)) == (1, ["exception claim-expired", "running by bob"])


def test_a_claim_costs_more_than_one_receive_and_that_of_claim_task() -> None:
    harness = Harness()
    calls = CallRecorder()
    services = harness.replica(calls, caches_tasks=True)
    harness.create(priority="highest")
    harness.create(priority="highest")
    claim_work(services)
    calls.names.clear()
    claim_work(services)
    assert calls.names == ["receive", "load", "timer.put", "hide", "replace", "broker.publish"]


def test_several_tasks_are_not_claimed_at_once() -> None:
    harness = Harness()
    tasks = [harness.create(priority=priority) for priority in ("lowest", "highest", "medium")]
    claims = claim_work(harness.services, 32)
    assert [one["status"]["taskId"] for one in claims] == [tasks[1], tasks[2], tasks[0]]


def test_more_is_claimed_than_was_asked_for() -> None:
    harness = Harness()
    tasks = {harness.create() for _ in range(5)}
    claims = claim_work(harness.services, 3)
    left = claim_work(harness.services, 32, BOB)
    assert (len(claims), len(left)) == (3, 2)
    assert {one["status"]["taskId"] for one in (*claims, *left)} == tasks


def test_a_worker_waits_for_ever() -> None:
    assert finds_nothing(Harness())


def test_a_task_of_another_worker_type_is_claimed() -> None:
    harness = Harness()
    harness.create(workerType="another")
    assert finds_nothing(harness)
    assert len(claim_work(harness.services, worker_type="another")) == 1


def test_work_that_is_offered_does_not_wake_who_waits() -> None:
    harness = Harness()
    with waiting(harness.services, ALICE, BOB) as got:
        tasks = {harness.create(), harness.create()}
    assert {one["status"]["taskId"] for one in got} == tasks


def test_work_that_another_process_offers_is_not_found() -> None:
    harness = Harness()
    with waiting(harness.services, ALICE) as got:
        harness.replica().tasks.create(slugid(), task_body())
        harness.clock.advance(SECOND)
    assert len(got) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64",
        base64.b64encode(b"no JSON").decode(),
        base64.b64encode(b"[]").decode(),
        base64.b64encode(b"{}").decode(),
        base64.b64encode(b'{"taskId": 1, "runId": 0, "signature": "s"}').decode(),
        base64.b64encode(b'{"taskId": "t", "runId": "0", "signature": "s"}').decode(),
        base64.b64encode(b'{"taskId": "t", "runId": true, "signature": "s"}').decode(),
        base64.b64encode(b'{"taskId": "t", "runId": 0, "signature": null}').decode(),
        message_text("VLdaX5vAQ0iW8JIr3sGQZw", 0, b"another-secret-than-any-of-ours"),
        message_text("VLdaX5vAQ0iW8JIr3sGQZw", 0, SECRET),  # there is no such task
    ],
    ids=str,
)
def test_a_message_that_leads_nowhere_is_claimed_or_stays(text: str) -> None:
    harness = Harness()
    harness.storage.work_queues.put(QUEUE, text, HOUR, AT_ONCE)
    assert finds_nothing(harness)
    assert harness.messages() == []


def test_a_forged_message_leads_to_a_task() -> None:
    harness = Harness()
    task_id = harness.create()
    harness.delete(harness.receive_one())
    harness.storage.work_queues.put(QUEUE, message_text(task_id, 0, b"not-a-secret-of-ours"), HOUR, AT_ONCE)
    assert finds_nothing(harness)
    assert (harness.states(task_id), harness.messages()) == (["pending"], [])


def test_a_message_signed_with_an_older_secret_is_refused() -> None:
    harness = Harness()
    task_id = harness.create()
    harness.delete(harness.receive_one())
    harness.storage.work_queues.put(QUEUE, message_text(task_id, 0, OLD_SECRET), HOUR, AT_ONCE)
    assert len(claim_work(harness.services)) == 1


def test_a_message_for_a_run_that_is_far_ahead_stays() -> None:
    harness = Harness()
    task_id = harness.create()
    harness.delete(harness.receive_one())
    harness.storage.work_queues.put(QUEUE, message_text(task_id, 7, SECRET), HOUR, AT_ONCE)
    assert finds_nothing(harness)
    assert (harness.states(task_id), harness.messages()) == (["pending"], [])


def test_a_task_is_claimed_from_a_queue_that_is_not_its_own() -> None:
    harness = Harness()
    task_id = harness.create(workerType="theirs")
    text = message_text(task_id, 0, SECRET)
    harness.storage.work_queues.put(WorkQueue(PROVISIONER, WORKER_TYPE, "highest"), text, HOUR, AT_ONCE)
    assert finds_nothing(harness)
    assert harness.states(task_id) == ["pending"]


@pytest.mark.parametrize("worker", [ALICE, BOB], ids=["the same", "another"])
def test_a_doubled_message_gives_a_run_to_two(worker: Worker) -> None:
    harness = Harness()
    task_id = harness.create()
    text = harness.messages()[0].text
    harness.storage.work_queues.put(QUEUE, text, HOUR, AT_ONCE)
    assert len(claim_work(harness.services)) == 1
    assert finds_nothing(harness, worker=worker)
    assert harness.states(task_id) == ["running by alice"]
    assert harness.offered_runs() == [(1, CLAIM_TIMEOUT)]


def test_a_stale_message_ends_the_wait_for_the_next() -> None:
    harness = Harness()
    resolved = harness.create()
    harness.services.tasks.cancel(resolved)
    harness.storage.work_queues.put(QUEUE, message_text(resolved, 0, SECRET), HOUR, AT_ONCE)
    with waiting(harness.services, ALICE) as got:
        pending = harness.create()
    assert [one["status"]["taskId"] for one in got] == [pending]


@pytest.mark.parametrize("asked", [0, 1, 2, 3])
def test_a_client_that_hangs_up_has_a_claim(asked: int) -> None:
    """Found gone by the poller before and after it polled, before claiming, and after."""
    harness = Harness()
    task_id = harness.create(retries=0)
    assert claim_work(harness.services, is_gone=hangs_up_after(asked)) == []
    assert harness.states(task_id) == ["pending"]
    assert harness.task(task_id).retries_left == 0
    (claim,) = claim_work(harness.services, worker=BOB)
    assert (claim["status"]["taskId"], claim["runId"]) == (task_id, 0)


def test_the_claim_of_a_client_that_hung_up_is_not_told_to_be_over() -> None:
    harness = Harness()
    task_id = harness.create()
    harness.events()
    claim_work(harness.services, is_gone=hangs_up_after(3))
    assert harness.events() == [("task-running", task_id, 0), ("task-pending", task_id, 0)]
    harness.run_timers(CLAIM_TIMEOUT + MINUTE)
    assert harness.states(task_id) == ["pending"]


def test_a_claim_that_cannot_be_taken_back_fails_those_that_can() -> None:
    harness = Harness()
    tasks = [harness.create(priority="highest"), harness.create(priority="lowest")]
    away = FaultAt(2, of="replace", before=failing(ServiceUnavailable("away")))
    services = harness.replica(away)
    assert claim_work(services, 2, is_gone=hangs_up_after(4)) == []
    assert away.happened
    assert sorted(harness.states(one)[0] for one in tasks) == ["pending", "running by alice"]
    harness.run_timers(CLAIM_TIMEOUT + 2 * MINUTE)
    assert sorted(harness.states(one)[-1] for one in tasks) == ["pending", "pending"]


def test_a_client_that_hangs_up_with_what_was_polled_keeps_it_from_others() -> None:
    harness = Harness()
    harness.create()
    assert claim_work(harness.services, is_gone=hangs_up_after(2)) == []
    assert [delay for _, delay in harness.offered_runs()] == [AT_ONCE]


def quarantine(harness: Harness, worker: Worker, lasts: timedelta, services: Services | None = None) -> None:
    path = PROVISIONER, WORKER_TYPE, worker.worker_group, worker.worker_id
    workers = (services or harness.services).workers
    workers.declare(path, {})
    workers.quarantine(path, harness.clock.now() + lasts)


def test_a_worker_in_quarantine_is_given_work() -> None:
    harness = Harness()
    quarantine(harness, ALICE, HOUR)
    task_id = harness.create()
    assert finds_nothing(harness)
    assert harness.states(task_id) == ["pending"]
    assert len(claim_work(harness.services, worker=BOB)) == 1


def test_a_worker_has_no_work_after_its_quarantine() -> None:
    harness = Harness()
    quarantine(harness, ALICE, HOUR)
    harness.create()
    harness.clock.advance(HOUR)
    assert len(claim_work(harness.services)) == 1


def test_a_worker_whose_quarantine_begins_while_it_waits_is_given_work() -> None:
    harness = Harness()
    task_id = harness.create()
    begins = FaultAt(6, of="receive", after=lambda: quarantine(harness, ALICE, HOUR, services))
    services = harness.replica(begins)
    assert claim_work(services) == []
    assert begins.happened
    assert harness.states(task_id) == ["pending"]
    assert len(claim_work(harness.services, worker=BOB)) == 1


def test_the_end_of_the_process_leaves_a_client_waiting() -> None:
    harness = Harness()
    with waiting(harness.services, ALICE, BOB) as got:
        harness.services.stopping.set()
    assert got == []
    harness.create()
    assert claim_work(harness.services) == []


def test_clients_that_wait_are_answered_when_the_process_announces_its_stop() -> None:
    harness = Harness()
    with waiting(harness.services, ALICE, BOB) as got:
        while not harness.services.claim_work._pollers:
            pass  # until the first of them waits
        harness.services.background().begin_stop()
    assert got == []


def test_storage_that_is_away_is_no_work() -> None:
    harness = Harness()
    services = harness.replica(FaultAt(0, of="receive", before=failing(ServiceUnavailable("away"))))
    with pytest.raises(ServiceUnavailable):
        claim_work(services)


@pytest.mark.parametrize("error", [ServiceUnavailable("away"), ValueError("a bug")], ids=["away", "a bug"])
def test_one_task_that_cannot_be_claimed_keeps_the_others(error: Exception) -> None:
    harness = Harness()
    tasks = [harness.create(priority="highest"), harness.create(priority="lowest")]
    services = harness.replica(FaultAt(0, of="replace", before=failing(error)))
    claims = claim_work(services, 2)
    assert len(claims) == 1
    harness.clock.advance(max(LEASE, CLAIM_TIMEOUT))
    claims = [*claims, *claim_work(harness.services, 2, BOB)]
    assert {one["status"]["taskId"] for one in claims} == set(tasks)


def test_a_clock_that_is_behind_makes_the_poller_spin() -> None:
    harness = Harness()
    task_id = harness.claimed()
    text = message_text(task_id, 1, SECRET)
    lease = harness.task(task_id).held
    assert lease
    harness.storage.work_queues.hide(QUEUE, lease, text, AT_ONCE)  # storage's clock is ahead
    assert finds_nothing(harness, worker=BOB)
    assert harness.offered_runs() == [(1, 2 * SECOND)]
    assert harness.states(task_id) == ["running by alice"]


def test_worker_types_that_are_waited_for_cost_the_more_the_more_there_are() -> None:
    harness = Harness()
    services = harness.replica()
    claim_work_of = services.claim_work
    assert claim_work_of.look_every() < SECOND
    with ExitStack() as stack:
        for number in range(60):
            stack.enter_context(waiting(services, ALICE, worker_type=f"type-{number}"))
        while claim_work_of.look_every() < 2 * SECOND:
            pass  # until all of them wait
        services.stopping.set()
    assert claim_work_of.look_every() < SECOND


def test_a_claim_that_does_not_wait_takes_what_there_is() -> None:
    harness = Harness()
    services = harness.replica(claim_work_wait=HOUR)
    assert claim_work(services, waits=False) == []
    canceled, task_id = harness.create(), harness.create()
    harness.services.tasks.cancel(canceled)
    assert [one["status"]["taskId"] for one in claim_work(services, count=2, waits=False)] == [task_id]
    assert claim_work(services, waits=False) == []


def test_worker_types_that_nobody_asks_for_are_remembered_for_ever() -> None:
    harness = Harness()
    services = harness.replica(claim_work_wait=AT_ONCE)
    for number in range(1100):
        claim_work(services, worker_type=f"type-{number}")
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(60)
    claim_work(services, worker_type="one-more")
    assert len(services.claim_work._pollers) < 1000


def test_the_recent_tasks_of_a_worker_are_the_last_20_of_its_answer_in_their_order() -> None:
    harness = Harness()
    for _ in range(30):
        harness.create()
    started = iter(range(30))
    claimed = threading.Semaphore(0)

    def slow_at_first(name: str, call: Callable[[], Any]) -> Any:
        """The first to be written waits for another one."""
        if name == "replace" and next(started) == 0:
            assert claimed.acquire(timeout=30)
        answer = call()
        if name == "replace":
            claimed.release()
        return answer

    services = harness.replica(slow_at_first, threads=ThreadPoolExecutor)
    answered = claim_work(services, 30)
    runs = [{"taskId": one["status"]["taskId"], "runId": one["runId"]} for one in answered]
    assert len(runs) == 30
    described = services.workers.describe(worker_path(PROVISIONER, WORKER_TYPE, ALICE))
    assert described["recentTasks"] == runs[-20:]
    services.workers.flush()
    assert recent_tasks(harness) == runs[-20:]


def test_a_claim_that_is_taken_back_is_not_a_recent_task() -> None:
    harness = Harness()
    harness.create()
    assert claim_work(harness.services, is_gone=hangs_up_after(3)) == []
    assert recent_tasks(harness) == []


def test_a_request_more_than_may_wait_gets_what_there_is_and_is_not_kept_waiting() -> None:
    harness = Harness()
    services = harness.replica(max_waiting=1)
    with waiting(services, ALICE) as got:
        wait_until(lambda: services.claim_work._places._value == 0)
        assert claim_work(services, worker=BOB, worker_type="without-work") == []
        task_id = harness.create(workerType="other")
        (claim,) = claim_work(services, worker=BOB, worker_type="other")
        assert claim["status"]["taskId"] == task_id
        assert got == [], "the first still waits"
        services.tasks.create(slugid(), task_body(harness.clock.now()))
    assert len(got) == 1
