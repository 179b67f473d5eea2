"""The events of a task: "Queue AMQP Exchanges" and docs/explanation/recovery.md#events."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.events import Event, events_since, priority_changed, run_retried, task_event
from legacy_queue.domain.task import Task, Worker
from tests.domain.sample_tasks import (
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HOUR,
    MINUTE,
    MS,
    NOW,
    TASK_ID,
    ended,
    pending,
    running,
    shut_down,
    unscheduled,
    with_last_run,
)

OF_TASK = "provisioner.worker-Type_1.-.dSlITZ4yQgmvxxAi4A8fHQ._"
FIRST = ["task-defined", "task-pending 0"]
CHANGED = "task-priority-changed"
LATER = NOW + HOUR
RETRIED = shut_down(NOW + MINUTE)
TAKEN_OVER = transitions.claim(RETRIED, 1, BOB, None, None, CLAIM_TIMEOUT, NOW + MINUTE).task
COMPLETED = ended(at=NOW + MINUTE)
RERUN = transitions.rerun(COMPLETED, LATER).task


def test_the_event_of_a_changed_priority_has_the_old_and_the_new_one() -> None:
    once = transitions.change_priority(running(), "high", NOW + MINUTE).task
    twice = transitions.change_priority(once, "low", NOW + HOUR).task
    event = priority_changed(twice, twice.priority_changes[0])
    assert event.routing_key == task_event("task-running", running()).routing_key
    assert event.payload == {
        "version": 1,
        "status": {**running().status(), "priority": "high"},
        "oldPriority": "lowest",
        "newPriority": "high",
    }


def test_todays_event_of_a_new_task_shows_the_task_before_its_first_run() -> None:
    new, waiting = (task_event("task-defined", task).as_of_today() for task in (pending(), unscheduled()))
    assert new.routing_key == waiting.routing_key == f"primary.{TASK_ID}._._._.{OF_TASK}"
    assert new.payload["status"] == {**pending().status(), "state": "unscheduled", "runs": []}
    assert waiting == task_event("task-defined", unscheduled())
    other = task_event("task-pending", pending())
    assert other.as_of_today() == other


def names_of(events: Sequence[Event]) -> list[str]:
    """The exchange of each event and the run in its payload, such as ``task-pending 1``."""
    return [
        f"{event.exchange} {event.payload.get('runId', '')}".strip()
        for event in events
        if event.only != "today"
    ]


def changed(task: Task, *times: datetime) -> Task:
    """The task, after a change of its priority at each of these times."""
    for time, priority in zip(times, ("low", "high", "medium", "highest"), strict=False):
        task = transitions.change_priority(task, priority, time).task
    return task


CHANGED_FIRST = changed(unscheduled(), NOW)


@pytest.mark.parametrize(
    ("task", "since", "names"),
    [
        (unscheduled(), NOW, ["task-defined"]),
        # an unscheduled task does not store when it was created
        (unscheduled(), DAY + NOW, ["task-defined"]),
        (pending(), NOW, FIRST),
        (transitions.schedule(unscheduled(), LATER).task, LATER, FIRST),
        (transitions.cancel(unscheduled(), LATER).task, LATER, ["task-defined", "task-exception 0"]),
        (running(), NOW, [*FIRST, "task-running 0"]),
        (COMPLETED, NOW + MS, ["task-completed 0"]),
        (RETRIED, NOW, [*FIRST, "task-running 0", "task-pending 1"]),
        (TAKEN_OVER, NOW + MINUTE, ["task-pending 1", "task-running 1"]),
        (RERUN, NOW + MS, ["task-completed 0", "task-pending 1"]),
        (RERUN, LATER + MS, []),
        (changed(pending(), LATER), NOW, [*FIRST, CHANGED]),
        (transitions.schedule(CHANGED_FIRST, LATER).task, LATER, FIRST),
        (transitions.schedule(CHANGED_FIRST, LATER).task, NOW, [FIRST[0], CHANGED, FIRST[1]]),
        (changed(running(), NOW + MS, NOW + MINUTE), NOW + MINUTE, [CHANGED]),
        (changed(TAKEN_OVER, LATER), NOW + MINUTE, ["task-pending 1", "task-running 1", CHANGED]),
        (
            transitions.cancel(changed(running(), NOW + MS, NOW + MINUTE), LATER).task,
            NOW + MS,
            [CHANGED, CHANGED, "task-exception 0"],
        ),
    ],
)
def test_events_since_a_time_are_derived_from_the_runs_in_order(
    task: Task, since: datetime, names: list[str]
) -> None:
    assert names_of(events_since(task, since)) == names


def test_a_derived_event_shows_only_the_runs_and_the_retries_of_its_time() -> None:
    task = transitions.schedule(CHANGED_FIRST, LATER).task
    assert events_since(task, NOW)[1].payload["status"] == CHANGED_FIRST.status()
    left = [event.payload["status"]["retriesLeft"] for event in events_since(TAKEN_OVER, NOW)]
    assert left == [5] * 3 + [4] * 3


def test_todays_exception_event_of_a_retried_run_comes_before_the_pending_event_and_shows_both_runs() -> None:
    *_, exception, pending_1 = events_since(RETRIED, NOW)
    assert exception == run_retried(RETRIED, 0)
    assert (exception.exchange, exception.only) == ("task-exception", "today")
    assert exception.payload["runId"] == 0
    assert exception.routing_key.startswith(f"primary.{TASK_ID}.0.group.alice.")
    assert exception.payload["status"] == pending_1.payload["status"] == RETRIED.status()


def test_the_events_of_a_runs_artifacts_come_before_the_event_of_its_resolution() -> None:
    artifact = replace(task_event("task-running", running()), exchange="artifact-created")
    end = ["artifact-created 0", "task-completed 0"]
    events = events_since(RERUN, NOW, {0: [artifact], 7: [artifact]})
    assert names_of(events) == [*FIRST, "task-running 0", *end, "task-pending 1"]
    assert names_of(events_since(COMPLETED, NOW + MINUTE, {0: [artifact]})) == end


def test_the_longest_routing_key_has_the_255_bytes_that_amqp_allows() -> None:
    """Routing keys are short strings, which have at most 255 bytes in AMQP 0-9-1."""
    longest = dict.fromkeys(("provisionerId", "workerType", "schedulerId"), "x" * 38)
    task = with_last_run(pending(**longest), run_id=1000, worker=Worker("g" * 38, "w" * 38))
    assert len(task_event("task-running", task).routing_key) == 255
