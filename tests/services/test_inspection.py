"""Why a task waits. Real calls create each situation, and its explanation has a name of its own."""

from datetime import timedelta

import pytest

from legacy_queue.domain.call_statistics import CLAIM_TASK, CLAIM_WORK
from legacy_queue.domain.errors import InputError
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import worker_path
from legacy_queue.services.inspection.worker_states import workers_of
from legacy_queue.services.tasks.claims import ClaimProof
from tests.domain.sample_tasks import ALICE, BOB, CLAIM_TIMEOUT, DAY, HOUR, MINUTE, NOW, SECOND, task_body
from tests.services.harness import HIGH, POLL_VISIBILITY, PROVISIONER, QUEUE, WORKER_TYPE, Harness

POOL = f"{PROVISIONER}/{WORKER_TYPE}"


def explained(harness: Harness, task_id: str, *words: str) -> list[tuple[str, timedelta | None]]:
    """Each reason why the task waits, and how long after the start of the test it ends.

    Fails unless the first reason's sentence contains all of these words.
    """
    _, waits = harness.services.wait_reasons.of(task_id)
    assert all(word in waits[0].sentence for word in words), waits[0].sentence
    return [(wait.situation, wait.until - NOW if wait.until else None) for wait in waits]


def first(harness: Harness, task_id: str, *words: str) -> str:
    """The situation to act on first. Its sentence has these words."""
    return explained(harness, task_id, *words)[0][0]


def ask_for_work(harness: Harness, worker: Worker = ALICE) -> None:
    """Call claimWork, which finds no task."""
    with harness.services.workers.call(worker_path(PROVISIONER, WORKER_TYPE, worker), (CLAIM_WORK, ())):
        pass


def test_there_is_an_explanation_for_a_task_of_a_pool_that_nobody_asks_for(harness: Harness) -> None:
    task_id = harness.create()
    assert explained(harness, task_id) == [("never-polled", None), ("visible", None), ("deadline", DAY)]
    ask_for_work(harness)
    misspelled = harness.create(workerType="wroker-Type_1")
    assert first(harness, misspelled, f"Workers ask for {POOL}.") == "never-polled"


def test_there_is_an_explanation_for_a_task_that_the_next_poll_gets(harness: Harness) -> None:
    harness.services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "a-client")
    task_id = harness.create()
    assert explained(harness, task_id) == [("visible", None), ("polled", None), ("deadline", DAY)]
    assert [message.task_id for message in harness.receive(1)] == [task_id]


def test_there_is_an_explanation_for_a_task_whose_message_a_worker_received(harness: Harness) -> None:
    ask_for_work(harness)
    task_id = harness.create()
    for times, words in enumerate(["once", "2 times"], 1):
        assert harness.receive_one()
        assert explained(harness, task_id, words, "again in 5m")[0] == ("received", times * POLL_VISIBILITY)
        harness.clock.advance(POLL_VISIBILITY)
    assert first(harness, task_id) == "visible"


def test_there_is_an_explanation_for_a_claimed_task(harness: Harness) -> None:
    task_id = harness.claimed()
    words = ("group/alice has claimed run 0", "the task is pending again.")
    assert explained(harness, task_id, *words)[0] == ("claimed", CLAIM_TIMEOUT)
    last = harness.claimed(retries=0)
    assert first(harness, last, "the task becomes an exception") == "claimed"
    late = harness.claimed(deadline=format_time(NOW + 5 * MINUTE))
    assert first(harness, late, "the task has reached its deadline.") == "claimed"
    harness.clock.advance(CLAIM_TIMEOUT)
    assert first(harness, task_id, "expired at 2030-01-02T03:24:05.678Z") == "claim-expired"


@pytest.mark.parametrize("requires", ["all-completed", "all-resolved"])
def test_there_is_an_explanation_for_a_task_that_is_blocked_by_its_dependencies(
    harness: Harness, requires: str
) -> None:
    done, other = harness.create(), harness.create()
    task_id = harness.create(dependencies=[done, other], requires=requires)
    assert first(harness, task_id, "2 of its dependencies", f"{done} (pending)") == "blocked"
    harness.run(done, "failed")
    if requires == "all-resolved":
        assert first(harness, task_id, f"1 of its dependencies: {other} (pending)") == "blocked"
    else:
        assert first(harness, task_id, f"{done} (failed)") == "dependency-failed"


def test_there_is_an_explanation_for_a_task_whose_dependencies_have_just_been_resolved(
    harness: Harness,
) -> None:
    required = harness.create()
    task_id = harness.create(dependencies=[required])
    harness.run(required)  # the resolver has not looked at it yet
    assert first(harness, task_id) == "released"
    harness.do_work()
    assert harness.states(task_id) == ["pending"]


def test_there_is_an_explanation_for_a_task_that_waits_to_be_scheduled(harness: Harness) -> None:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body())
    assert first(harness, task_id) == "unscheduled"


def test_there_is_an_explanation_for_a_task_whose_only_worker_is_quarantined(harness: Harness) -> None:
    ask_for_work(harness)
    harness.services.workers.quarantine(worker_path(PROVISIONER, WORKER_TYPE, ALICE), NOW + HOUR)
    task_id = harness.create()
    assert explained(harness, task_id, "group/alice")[0] == ("quarantined", HOUR)
    ask_for_work(harness, BOB)
    assert first(harness, task_id) == "visible"


def test_there_is_an_explanation_for_a_task_whose_only_workers_still_run_canceled_tasks(
    harness: Harness,
) -> None:
    running = [harness.claimed(), harness.create()]
    harness.claim(harness.receive_one(), BOB)
    task_id = harness.create()
    harness.clock.advance(MINUTE)
    for canceled in running:
        assert first(harness, task_id) == "visible", "a worker still runs a task"
        harness.services.tasks.cancel(canceled)
    names = (f"group/alice runs {running[0]}", f"group/bob runs {running[1]}")
    assert explained(harness, task_id, *names)[0] == ("running-canceled", CLAIM_TIMEOUT)
    harness.clock.advance(SECOND)
    ask_for_work(harness, BOB)  # now Bob has noticed that his task was canceled
    assert first(harness, task_id) == "visible"
    harness.clock.advance(6 * MINUTE)  # and now he has been silent for too long
    assert first(harness, task_id) == "running-canceled"
    harness.clock.advance(CLAIM_TIMEOUT)
    assert first(harness, task_id) == "visible", "Alice may have reclaimed the run, or be gone too"


def test_there_is_an_explanation_for_a_task_whose_claims_lack_proof() -> None:
    harness = Harness(required=[POOL])
    task_id = harness.create()
    message = harness.receive_one()
    with pytest.raises(InputError):
        harness.claim(message, proof=ClaimProof(message.lease.message_id, None, message.signature))
    assert first(harness, task_id, "group/alice without receipt") == "proof-required"
    harness.clock.advance(POLL_VISIBILITY)
    harness.claim(harness.receive(1)[0])
    harness.do_work(CLAIM_TIMEOUT)
    assert harness.states(task_id)[1:] == ["pending"]  # no claim of run 1 was refused
    assert first(harness, task_id) == "visible"


def test_there_is_an_explanation_for_a_task_whose_message_is_missing(harness: Harness) -> None:
    ask_for_work(harness)
    task_id = harness.create()
    harness.delete(harness.receive_one())
    assert explained(harness, task_id)[0] == ("message-missing", 20 * MINUTE)
    harness.sweep(20 * MINUTE)
    assert first(harness, task_id) == "visible"


def test_there_is_an_explanation_for_a_task_behind_others(harness: Harness) -> None:
    ask_for_work(harness)
    harness.create()
    harness.create(priority=HIGH.priority)
    task_id = harness.create()
    assert first(harness, task_id, "2 other messages") == "behind"
    assert harness.receive(1, HIGH)
    assert first(harness, task_id, "1 other message ") == "behind"


def test_there_is_an_explanation_for_a_task_whose_message_becomes_visible_later(harness: Harness) -> None:
    ask_for_work(harness)
    task_id = harness.create()
    text = harness.messages()[0].text
    harness.receive_one()  # this message is hidden for longer than the refused claim lasts
    harness.storage.work_queues.put(QUEUE, text, HOUR, 10 * SECOND)
    assert explained(harness, task_id)[0] == ("delayed", 10 * SECOND)


def test_there_is_an_explanation_for_a_task_after_its_deadline(harness: Harness) -> None:
    task_id = harness.create()
    harness.clock.advance(DAY)
    assert explained(harness, task_id) == [("deadline-passed", None)]
    harness.do_work()
    assert explained(harness, task_id, "deadline-exceeded") == [("resolved", None)]


def test_there_is_an_explanation_for_a_task_with_unpublished_events(harness: Harness) -> None:
    harness.broker.capacity = 0
    assert ("unpublished", None) in explained(harness, harness.create())


# what workers are doing


def states(harness: Harness, sees_polls: bool = True) -> dict[str, tuple[str, list[str], str]]:
    """The state of each worker or client, its tasks, and the client that it shares with other workers."""
    services = harness.services
    running = services.task_queues.running()
    return {
        worker.caller.name: (worker.state, [*worker.running], worker.client.name if worker.client else "")
        for pool in services.pools.overview()
        for worker in workers_of(pool, running, harness.clock.now(), sees_polls=sees_polls)
    }


def claimed_by(harness: Harness, worker: Worker, client_id: str = "") -> str:
    """A new task that the worker has claimed."""
    path = worker_path(PROVISIONER, WORKER_TYPE, worker)
    with harness.services.workers.call(path, (CLAIM_TASK, ()), client_id) as runs:
        task_id = harness.claimed(worker)
        runs.append((task_id, 0))
    return task_id


def test_a_worker_is_busy_while_it_has_a_claim_then_idle_and_finally_silent(harness: Harness) -> None:
    task_ids = [claimed_by(harness, ALICE), claimed_by(harness, ALICE)]
    assert states(harness) == {"group/alice": ("busy", task_ids, "")}
    for task_id in task_ids:
        harness.complete(task_id)
    harness.clock.advance(5 * MINUTE)
    assert states(harness)["group/alice"][0] == "idle"
    harness.clock.advance(SECOND)
    assert states(harness)["group/alice"][0] == "silent"
    assert states(harness, sees_polls=False)["group/alice"][0] == "idle"


def test_a_quarantined_worker_still_has_its_task(harness: Harness) -> None:
    task_id = claimed_by(harness, ALICE)
    path = worker_path(PROVISIONER, WORKER_TYPE, ALICE)
    harness.services.workers.quarantine(path, NOW + HOUR)
    assert states(harness) == {"group/alice": ("quarantined", [task_id], "")}


def test_a_client_that_claims_for_workers_is_in_their_rows_and_a_client_without_claims_has_its_own(
    harness: Harness,
) -> None:
    for client_id in ("a-client", "another"):
        harness.services.polling.poll_urls(PROVISIONER, WORKER_TYPE, client_id)
    task_id = claimed_by(harness, ALICE, "a-client")
    assert states(harness) == {"group/alice": ("busy", [task_id], ""), "another": ("idle", [], "")}
    other_id = claimed_by(harness, BOB, "a-client")
    assert states(harness) == {
        "group/alice": ("busy", [task_id], "a-client"),
        "group/bob": ("busy", [other_id], "a-client"),
        "another": ("idle", [], ""),
    }


def test_a_task_is_shown_at_the_worker_that_claimed_its_last_run(harness: Harness) -> None:
    task_id = claimed_by(harness, BOB)
    harness.shut_down(task_id)
    with harness.services.workers.call(
        worker_path(PROVISIONER, WORKER_TYPE, ALICE), (CLAIM_TASK, ())
    ) as runs:
        harness.claim(harness.receive_one(), ALICE)
        runs.append((task_id, 1))
    assert states(harness) == {"group/alice": ("busy", [task_id], ""), "group/bob": ("idle", [], "")}
