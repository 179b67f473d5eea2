"""What a task waits for: each situation is made by real calls, and explained by its own sentence."""

from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import InputError
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.migration_report import CLAIM_WORK
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import worker_path
from legacy_queue.services.tasks.claims import ClaimProof
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HIGH,
    HOUR,
    MINUTE,
    NOW,
    POLL_VISIBILITY,
    PROVISIONER,
    QUEUE,
    SECOND,
    WORKER_TYPE,
    Harness,
    task_body,
)

POOL = f"{PROVISIONER}/{WORKER_TYPE}"
DAY = 24 * HOUR
DEADLINE = ("deadline", "If it is not resolved before, its deadline makes it an exception in 1d.", DAY)
VISIBLE = ("visible", "Its message is visible: the next poll of its pool receives it.", None)

Explained = tuple[str, str, timedelta | None]  # situation, sentence, and until when from the begin on


def explained(harness: Harness, task_id: str) -> list[Explained]:
    _, waits = harness.services.inspection.explain(task_id)
    return [(wait.situation, wait.sentence, wait.until - NOW if wait.until else None) for wait in waits]


def poll_urls(harness: Harness) -> None:
    harness.services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "a-client")


def ask_for_work(harness: Harness, worker: Worker) -> None:
    """As a call of claimWork that gets none."""
    with harness.services.workers.call(worker_path(PROVISIONER, WORKER_TYPE, worker), (CLAIM_WORK, ())):
        pass


def quarantine(harness: Harness, until: timedelta) -> None:
    """Of Alice, who has called claimWork."""
    ask_for_work(harness, ALICE)
    harness.services.workers.quarantine(worker_path(PROVISIONER, WORKER_TYPE, ALICE), NOW + until)


def define(harness: Harness, **changes: Any) -> str:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body(**changes))
    return task_id


def test_a_task_of_a_pool_that_nobody_asks_for(harness: Harness) -> None:
    task_id = harness.create()
    why = f"No worker has asked for {POOL} in the last 10 days."
    assert explained(harness, task_id) == [("never-polled", why, None), VISIBLE, DEADLINE]


def test_a_task_of_a_misspelled_pool(harness: Harness) -> None:
    poll_urls(harness)
    task_id = harness.create(workerType="wroker-Type_1")
    why = f"No worker has asked for {PROVISIONER}/wroker-Type_1 in the last 10 days. Workers ask for {POOL}."
    assert explained(harness, task_id)[0] == ("never-polled", why, None)


def test_a_task_that_the_next_poll_gets(harness: Harness) -> None:
    poll_urls(harness)
    harness.clock.advance(40 * SECOND)
    task_id = harness.create()
    last = ("polled", f"a-client was the last to ask for {POOL}, 40s ago.", None)
    assert explained(harness, task_id)[:2] == [VISIBLE, last]
    assert [message.task_id for message in harness.receive(1)] == [task_id]


def test_a_task_whose_message_a_worker_has_received(harness: Harness) -> None:
    poll_urls(harness)
    task_id = harness.create()
    for times, words in enumerate(["once", "2 times"]):
        assert harness.receive_one()
        why = (
            f"A worker has received its message ({words} so far) and not claimed the task yet. "
            "In 5m the message is visible again."
        )
        until = (times + 1) * POLL_VISIBILITY
        assert explained(harness, task_id)[0] == ("received", why, until)
        harness.clock.advance(POLL_VISIBILITY)
    assert explained(harness, task_id)[0] == VISIBLE


def test_a_task_that_is_claimed(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.clock.advance(SECOND)
    why = "group/alice has claimed run 0 for 19m 59s more. Unless that worker reclaims it, the task then "
    assert explained(harness, task_id)[0] == ("claimed", why + "is pending again.", CLAIM_TIMEOUT)
    harness.clock.advance(CLAIM_TIMEOUT)
    why = (
        "The claim of group/alice on run 0 ended at 2030-01-02T03:24:05.678Z. As soon as its timer fires or "
        "a worker polls, the task is pending again."
    )
    assert explained(harness, task_id)[0] == ("claim-expired", why, None)
    harness.run_timers()
    assert harness.states(task_id) == ["exception claim-expired", "pending"]


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"retries": 0}, "ends as exception, since it has no retries left."),
        ({"deadline": format_time(NOW + 5 * MINUTE)}, "has reached its deadline."),
    ],
)
def test_the_last_claim_of_a_task(harness: Harness, changes: dict[str, Any], end: str) -> None:
    ((situation, why, _), *_) = explained(harness, harness.claimed(**changes))
    assert (situation, why.partition("the task then ")[2]) == ("claimed", end)


def test_a_task_that_is_blocked_by_its_dependencies(harness: Harness) -> None:
    first, second = harness.create(), harness.create()
    task_id = harness.create(dependencies=[first, second])
    why = f"It waits for 2 of its dependencies: {first} (pending), {second} (pending)."
    assert explained(harness, task_id) == [("blocked", why, None), DEADLINE]
    harness.run(first)
    harness.run_timers()
    why = f"It waits for 1 of its dependencies: {second} (pending)."
    assert explained(harness, task_id) == [("blocked", why, None), DEADLINE]
    harness.run(second, "failed")
    why = f"It requires all-completed: {second} (failed). A rerun of that, or scheduleTask, can schedule it."
    assert explained(harness, task_id) == [("dependency-failed", why, None), DEADLINE]


def test_a_dependency_that_failed_blocks_no_task_that_requires_all_resolved(harness: Harness) -> None:
    failed, other = harness.create(), harness.create()
    task_id = harness.create(dependencies=[failed, other], requires="all-resolved")
    harness.run(failed, "failed")
    why = f"It waits for 1 of its dependencies: {other} (pending)."
    assert explained(harness, task_id)[0] == ("blocked", why, None)


def test_a_task_whose_dependencies_have_just_ended(harness: Harness) -> None:
    required = harness.create()
    task_id = harness.create(dependencies=[required])
    harness.run(required)  # its timer has not fired yet
    why = "Its dependencies have ended: its timer schedules it now."
    assert explained(harness, task_id)[0] == ("released", why, None)
    harness.run_timers()
    assert harness.states(task_id) == ["pending"]


def test_a_task_that_waits_to_be_scheduled(harness: Harness) -> None:
    why = "It was defined, and waits for scheduleTask."
    assert explained(harness, define(harness)) == [("unscheduled", why, None), DEADLINE]


def test_a_task_whose_only_worker_is_quarantined(harness: Harness) -> None:
    quarantine(harness, HOUR)
    task_id = harness.create()
    why = (
        f"Each worker that claimed for {POOL} is quarantined: group/alice, until 2030-01-02T04:04:05.678Z at "
        "the earliest."
    )
    assert explained(harness, task_id)[0] == ("quarantined", why, HOUR)
    ask_for_work(harness, BOB)
    assert explained(harness, task_id)[0] == VISIBLE


def test_a_task_whose_only_workers_run_what_was_canceled(harness: Harness) -> None:
    running = [harness.claimed(), harness.create()]
    harness.claim(harness.receive_one(), BOB)
    task_id = harness.create()
    harness.clock.advance(MINUTE)
    for canceled in running:
        assert explained(harness, task_id)[0] == VISIBLE, "a worker runs a task"
        harness.services.tasks.cancel(canceled)
    situation, sentence, until = explained(harness, task_id)[0]
    names = f"group/alice runs {running[0]}, group/bob runs {running[1]}"
    assert situation == "running-canceled"
    assert f"The workers of {POOL} still run a task that was canceled" in sentence
    assert all(name in sentence for name in names.split(", "))
    assert until == CLAIM_TIMEOUT
    harness.clock.advance(SECOND)
    ask_for_work(harness, BOB)  # it has noticed
    assert explained(harness, task_id)[0] == VISIBLE
    harness.clock.advance(6 * MINUTE)  # and went away
    assert explained(harness, task_id)[0][0] == "running-canceled"
    harness.clock.advance(CLAIM_TIMEOUT)
    assert explained(harness, task_id)[0] == VISIBLE, "Alice has reclaimed, or is gone too"


def test_a_task_whose_claims_lack_proof() -> None:
    harness = Harness(required=[POOL])
    task_id = harness.create()
    assert explained(harness, task_id)[0][0] == "never-polled"
    message = harness.receive_one()
    with pytest.raises(InputError):
        harness.claim(message, proof=ClaimProof(message.lease.message_id, None, message.signature))
    why = (
        f"{POOL} has the policy required, and refused claims since this run is pending: group/alice without "
        "receipt."
    )
    assert explained(harness, task_id)[0] == ("proof-required", why, None)
    harness.clock.advance(POLL_VISIBILITY)
    harness.claim(harness.receive(1)[0])
    harness.run_timers(CLAIM_TIMEOUT)
    assert harness.states(task_id)[1:] == ["pending"]  # no claim of that run was refused
    assert "proof-required" not in {situation for situation, _, _ in explained(harness, task_id)}


def test_a_task_whose_message_is_missing(harness: Harness) -> None:
    poll_urls(harness)
    task_id = harness.create()
    harness.delete(harness.receive_one())
    why = "Its message is missing. The sweeper offers the run again by 2030-01-02T03:24:05.678Z."
    assert explained(harness, task_id)[0] == ("message-missing", why, 20 * MINUTE)
    harness.sweep(20 * MINUTE)
    assert explained(harness, task_id)[0] == VISIBLE


def test_a_task_behind_others(harness: Harness) -> None:
    poll_urls(harness)
    harness.create()
    harness.create(priority=HIGH.priority)
    task_id = harness.create()
    why = "2 messages are delivered before its own, of priority lowest or higher."
    assert explained(harness, task_id)[0] == ("behind", why, None)
    assert harness.receive(1, HIGH)
    why = "1 message is delivered before its own, of priority lowest or higher."
    assert explained(harness, task_id)[0] == ("behind", why, None)


def test_a_task_that_is_offered_again_after_a_while(harness: Harness) -> None:
    poll_urls(harness)
    task_id = harness.create()
    harness.receive_one()  # that message is hidden for longer
    harness.storage.work_queues.put(QUEUE, _text(harness, task_id), HOUR, 10 * SECOND)
    why = "Its message is hidden for 10s more: then a worker can receive it."
    assert explained(harness, task_id)[0] == ("delayed", why, 10 * SECOND)


def _text(harness: Harness, task_id: str) -> str:
    harness.services.tasks.load(task_id)
    other = Harness()
    other.services.tasks.create(task_id, task_body())
    return other.messages()[0].text


def test_a_task_after_its_deadline(harness: Harness) -> None:
    task_id = harness.create()
    harness.clock.advance(DAY)
    why = "Its deadline has passed: its timer makes it an exception now."
    assert explained(harness, task_id) == [("deadline-passed", why, None)]
    harness.run_timers()
    why = "It waits for nothing: run 0 is exception (deadline-exceeded)."
    assert explained(harness, task_id) == [("resolved", why, None)]


def test_a_task_with_unpublished_events(harness: Harness) -> None:
    harness.broker.capacity = 0
    why = "The broker was away: events of it may not be published yet."
    assert ("unpublished", why, None) in explained(harness, harness.create())


# --- no explanation is wrong
