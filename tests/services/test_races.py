"""Two concurrent requests on two replicas, with their port calls in every order."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from legacy_queue.domain.errors import QueueError, RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Task, Worker
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from tests.memory_server import FakeClock
from tests.services import interleaving
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    POLL_VISIBILITY,
    QUEUE,
    SECOND,
    Crash,
    FaultAt,
    Harness,
    Message,
    failing,
    task_body,
)
from tests.services.interleaving import every_order, run
from tests.services.invariants import check

pytestmark = pytest.mark.no_cover  # the same lines many times: coverage would double the time
Action = Callable[[Services], Any]
Choose = Callable[[int], int]
DEPLOYED = ClaimProof()
_UNSEEN = ("timer.put", "broker.publish", "worker.load", "worker.insert", "worker.replace")
REPLICAS = pytest.mark.parametrize("caches_tasks", [False, True])


def pausing(name: str, call: Callable[[], Any]) -> Any:
    """Pause at the calls that another request can see."""
    return call() if name in _UNSEEN else interleaving.pausing(name, call)


def run_concurrently(
    harness: Harness, task_id: str, actions: Sequence[Action], choose: Choose, caches_tasks: bool = False
) -> list[Any]:
    """The result of each action, on a replica of its own that may remember the task as it was before."""
    replicas = [harness.replica(pausing, caches_tasks=caches_tasks) for _ in actions]
    if caches_tasks:
        run([partial(replica.tasks.recall, task_id) for replica in replicas], lambda _: 0)
    pairs = zip(actions, replicas, strict=True)
    return run([partial(action, replica) for action, replica in pairs], choose)


def claims(harness: Harness, message: Message, worker: Worker, proof: ClaimProof | None = None) -> Action:
    return lambda services: harness.claim(message, worker, services, proof)


def reclaims(task_id: str) -> Action:
    return lambda services: services.claims.reclaim(task_id, 0)


def shuts_down(harness: Harness, task_id: str) -> Action:
    return lambda services: harness.shut_down(task_id, 0, services)


def completes(harness: Harness, task_id: str) -> Action:
    return lambda services: harness.complete(task_id, 0, services)


def cancels(task_id: str) -> Action:
    return lambda services: services.tasks.cancel(task_id)


def words(result: Any) -> str:
    """``claimed``, ``exception`` (a task's state) or the code of the error."""
    if isinstance(result, QueueError):
        return result.code
    if isinstance(result, Task):
        return result.state
    assert not isinstance(result, Exception), result
    return "claimed"


@REPLICAS
@pytest.mark.parametrize(
    ("message", "first", "second"),
    [
        ("the same", None, None),
        ("the same", None, DEPLOYED),
        ("the same", DEPLOYED, None),
        ("a duplicate", None, None),
        ("a duplicate", None, DEPLOYED),  # the other way round is the same in another order
        ("a duplicate", DEPLOYED, DEPLOYED),
    ],
)
def test_one_of_two_concurrent_workers_claims_and_the_other_gets_a_conflict(
    caches_tasks: bool, first: ClaimProof | None, second: ClaimProof | None, message: str
) -> None:
    winners = set()

    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.create()
        polled = [harness.receive_one()]
        if message == "a duplicate":
            harness.storage.work_queues.put(QUEUE, polled[0].received.text, HOUR, 0 * SECOND)
        else:
            harness.clock.advance(POLL_VISIBILITY)
        polled.append(harness.receive_one())
        actions = [claims(harness, polled[0], ALICE, first), claims(harness, polled[1], BOB, second)]
        results = run_concurrently(harness, task_id, actions, choose, caches_tasks)

        assert sorted(map(words, results)) == ["RequestConflict", "claimed"]
        winner = ["alice", "bob"][[words(result) for result in results].index("claimed")]
        winners.add(winner)
        assert harness.states(task_id) == [f"running by {winner}"]
        held = harness.task(task_id).held
        (of_next_run,) = [queued.lease for queued in harness.messages() if Message.read(queued).run_id == 1]
        assert of_next_run == held
        check(harness, task_id, after_faults=False)

        harness.clock.advance(CLAIM_TIMEOUT)
        outcomes: list[Any] = []
        for received in harness.receive():  # also a message that a deployed worker had to delete
            try:
                outcomes.append(harness.claim(received, BOB)["runId"])
            except RequestConflict:
                outcomes.append("conflict")
        assert outcomes.count(1) == 1
        assert set(outcomes) <= {1, "conflict"}
        assert harness.states(task_id) == ["exception claim-expired", "running by bob"]
        assert harness.offered_runs() == [(2, CLAIM_TIMEOUT)]

    assert every_order(scene) >= 6
    assert winners == {"alice", "bob"}


@REPLICAS
def test_two_concurrent_claims_of_a_worker_are_one_claim(caches_tasks: bool) -> None:
    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.create()
        message = harness.receive_one()
        first, second = run_concurrently(
            harness, task_id, [claims(harness, message, ALICE)] * 2, choose, caches_tasks
        )
        assert first["runId"] == second["runId"] == 0
        assert first["takenUntil"] == second["takenUntil"]
        assert [queued.lease for queued in harness.messages()] == [harness.task(task_id).held]

    every_order(scene)


@REPLICAS
@pytest.mark.parametrize("proof", [None, DEPLOYED])
def test_an_expired_claim_is_taken_over_once(caches_tasks: bool, proof: ClaimProof | None) -> None:
    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed(ALICE)
        harness.clock.advance(CLAIM_TIMEOUT)
        early = harness.receive_one()
        harness.clock.advance(POLL_VISIBILITY)
        late = harness.receive_one()
        actions = [claims(harness, early, ALICE, proof), claims(harness, late, BOB)]
        results = run_concurrently(harness, task_id, actions, choose, caches_tasks)
        assert sorted(map(words, results)) == ["RequestConflict", "claimed"]
        assert len(harness.task(task_id).runs) == 2
        assert harness.task(task_id).retries_left == 4
        check(harness, task_id, after_faults=False)

    every_order(scene)


def test_a_claim_that_expires_without_retries_is_resolved_once() -> None:
    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed(ALICE, retries=0)
        harness.clock.advance(CLAIM_TIMEOUT)
        early = harness.receive_one()
        harness.clock.advance(POLL_VISIBILITY)
        late = harness.receive_one()
        actions = [claims(harness, early, ALICE), claims(harness, late, BOB)]
        results = run_concurrently(harness, task_id, actions, choose)
        assert [words(result) for result in results] == ["RequestConflict"] * 2
        assert harness.states(task_id) == ["exception claim-expired"]
        assert harness.messages() == []

    every_order(scene)


@REPLICAS
def test_a_task_claimed_and_canceled_concurrently_is_canceled(caches_tasks: bool) -> None:
    seen = set()

    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.create()
        message = harness.receive_one()
        actions = [claims(harness, message, ALICE), cancels(task_id)]
        claimed, canceled = run_concurrently(harness, task_id, actions, choose, caches_tasks)
        seen.add(words(claimed))
        assert words(canceled) == "exception"
        assert harness.states(task_id) == ["exception canceled"]
        assert harness.messages() == []

    every_order(scene)
    assert seen == {"claimed", "RequestConflict"}


@REPLICAS
def test_two_concurrent_reclaims_both_succeed(caches_tasks: bool) -> None:
    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed()
        harness.clock.advance(CLAIM_TIMEOUT / 2)
        results = run_concurrently(harness, task_id, [reclaims(task_id)] * 2, choose, caches_tasks)
        assert [words(result) for result in results] == ["claimed"] * 2
        assert [queued.lease for queued in harness.messages()] == [harness.task(task_id).held]
        check(harness, task_id, after_faults=False)

    every_order(scene)


@REPLICAS
def test_a_reclaim_concurrent_with_the_end_of_the_run_leaves_no_message(caches_tasks: bool) -> None:
    seen = set()

    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed()
        actions = [reclaims(task_id), completes(harness, task_id)]
        reclaimed, completed = run_concurrently(harness, task_id, actions, choose, caches_tasks)
        seen.add(words(reclaimed))
        assert words(completed) == "completed"
        assert harness.messages() == []

    every_order(scene)
    assert seen == {"claimed", "RequestConflict"}


@REPLICAS
@pytest.mark.parametrize("crashes", [False, True])
def test_a_reclaim_concurrent_with_a_shutdown_leaves_a_message_for_the_retry(
    caches_tasks: bool, crashes: bool
) -> None:
    """Also if the server dies between storing the report and offering the message."""

    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed()

        def shut_down(_services: Services) -> Task:
            crash = FaultAt(0, of="replace", after=failing(Crash())) if crashes else FaultAt(0, of="nothing")
            replica = harness.replica(lambda name, call: pausing(name, lambda: crash(name, call)))
            return harness.shut_down(task_id, 0, replica)

        reclaimed, _ = run_concurrently(
            harness, task_id, [reclaims(task_id), shut_down], choose, caches_tasks
        )
        assert words(reclaimed) in ("claimed", "RequestConflict")
        if not crashes or harness.task(task_id).state == "pending":
            assert harness.states(task_id) == ["exception worker-shutdown", "pending"]
        check(harness, task_id, after_faults=crashes)
        harness.clock.advance(CLAIM_TIMEOUT)
        harness.claim(harness.receive()[0], BOB)
        assert harness.states(task_id)[-1] == "running by bob"

    every_order(scene)


@REPLICAS
def test_either_a_take_over_or_a_concurrent_late_report_succeeds(caches_tasks: bool) -> None:
    seen = set()

    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed(ALICE)
        harness.clock.advance(CLAIM_TIMEOUT)
        message = harness.receive_one()
        actions = [claims(harness, message, BOB), completes(harness, task_id)]
        results = run_concurrently(harness, task_id, actions, choose, caches_tasks)
        outcome = tuple(map(words, results)), tuple(harness.states(task_id))
        seen.add(outcome)
        check(harness, task_id, after_faults=False)

    every_order(scene)
    assert seen == {
        (("claimed", "RequestConflict"), ("exception claim-expired", "running by bob")),
        (("RequestConflict", "completed"), ("completed completed",)),
    }


@REPLICAS
def test_a_take_over_succeeds_beside_a_concurrent_late_shutdown(caches_tasks: bool) -> None:
    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed(ALICE)
        harness.clock.advance(CLAIM_TIMEOUT)
        message = harness.receive_one()
        actions = [claims(harness, message, BOB), shuts_down(harness, task_id)]
        claimed, reported = run_concurrently(harness, task_id, actions, choose, caches_tasks)
        assert words(claimed) == "claimed"
        assert words(reported) in ("RequestConflict", "pending")
        assert harness.states(task_id)[1:] == ["running by bob"]
        check(harness, task_id, after_faults=False)

    every_order(scene)


@REPLICAS
def test_either_a_reclaim_or_a_concurrent_take_over_succeeds(caches_tasks: bool) -> None:
    """The clock of the replica that reclaims is 30 seconds behind."""
    seen = set()

    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = harness.claimed(ALICE)
        harness.clock.advance(CLAIM_TIMEOUT)
        message = harness.receive_one()
        behind = FakeClock(harness.clock.now() - 30 * SECOND)

        def reclaim_late(_services: Services) -> Any:
            return harness.replica(pausing, clock=behind).claims.reclaim(task_id, 0)

        actions = [reclaim_late, claims(harness, message, BOB)]
        results = run_concurrently(harness, task_id, actions, choose, caches_tasks)
        outcome = tuple(map(words, results)), harness.states(task_id)[-1]
        seen.add(outcome)
        assert len(harness.task(task_id).runs) == 1 + (outcome[1] == "running by bob")
        check(harness, task_id, after_faults=False, skew=30 * SECOND)

    every_order(scene)
    assert seen == {
        (("claimed", "RequestConflict"), "running by alice"),
        (("RequestConflict", "claimed"), "running by bob"),
    }


def test_two_concurrent_creates_make_one_task() -> None:
    def scene(choose: Choose) -> None:
        harness = Harness()
        task_id = slugid()
        create: Action = lambda services: services.tasks.create(task_id, task_body())  # noqa: E731
        first, second = run([lambda: create(harness.replica(pausing))] * 2, choose)
        assert first == second
        assert [run_id for run_id, _ in harness.offered_runs()] == [0]

    every_order(scene)
