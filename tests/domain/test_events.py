"""The events of a task: "Queue AMQP Exchanges" and docs/explanation/recovery.md#events."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.events import (
    Event,
    events_since,
    priority_changed,
    run_retried,
    task_event,
)
from legacy_queue.domain.task import Task, Worker
from tests.domain.tasks import (
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HOUR,
    MINUTE,
    MS,
    NOW,
    TASK_ID,
    pending,
    running,
    unscheduled,
    with_last_run,
)

OF_TASK = "provisioner.worker-Type_1.-.dSlITZ4yQgmvxxAi4A8fHQ._"


def shut_down() -> Task:
    return transitions.resolve(running(), 0, "exception", "worker-shutdown", NOW + MINUTE).task


def taken_over() -> Task:
    return transitions.claim(shut_down(), 1, BOB, None, None, CLAIM_TIMEOUT, NOW + MINUTE).task


def completed() -> Task:
    return transitions.resolve(running(), 0, "completed", "completed", NOW + MINUTE).task


def rerun() -> Task:
    return transitions.rerun(completed(), NOW + HOUR).task


def test_the_event_of_a_changed_priority_has_the_old_and_the_new_priority() -> None:
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


def test_todays_event_of_a_new_task_is_about_the_task_before_its_first_run() -> None:
    new, waiting = (task_event("task-defined", task).as_of_today() for task in (pending(), unscheduled()))
    assert new.routing_key == waiting.routing_key == f"primary.{TASK_ID}._._._.{OF_TASK}"
    assert new.payload["status"] == {**pending().status(), "state": "unscheduled", "runs": []}
    assert waiting == task_event("task-defined", unscheduled())
    other = task_event("task-pending", pending())
    assert other.as_of_today() == other


FIRST = ["task-defined", "task-pending 0"]
LATER = NOW + HOUR


def scheduled() -> Task:
    return transitions.schedule(unscheduled(), LATER).task


def canceled() -> Task:
    return transitions.cancel(unscheduled(), LATER).task


def names_of(events: Sequence[Event]) -> list[str]:
    """``task-pending 1``, ... for each event, with the run that its payload names."""
    return [
        f"{event.exchange} {event.payload.get('runId', '')}".strip()
        for event in events
        if event.only != "today"
    ]


CHANGED = "task-priority-changed"


def changed(task: Task, *times: datetime) -> Task:
    """The task with a change of priority at each of these times."""
    for time, priority in zip(times, ("low", "high", "medium", "highest"), strict=False):
        task = transitions.change_priority(task, priority, time).task
    return task


def claimed(task: Task) -> Task:
    return transitions.claim(task, 0, BOB, None, None, CLAIM_TIMEOUT, NOW + MINUTE).task


@pytest.mark.parametrize(
    ("task", "since", "names"),
    [
        (unscheduled(), NOW, ["task-defined"]),
        (unscheduled(), DAY + NOW, ["task-defined"]),  # it does not say when it was created
        (pending(), NOW, FIRST),
        (scheduled(), LATER, FIRST),
        (canceled(), LATER, ["task-defined", "task-exception 0"]),
        (running(), NOW, [*FIRST, "task-running 0"]),
        (completed(), NOW, [*FIRST, "task-running 0", "task-completed 0"]),
        (completed(), NOW + MS, ["task-completed 0"]),
        (shut_down(), NOW, [*FIRST, "task-running 0", "task-pending 1"]),
        (taken_over(), NOW + MINUTE, ["task-pending 1", "task-running 1"]),
        (rerun(), NOW + MS, ["task-completed 0", "task-pending 1"]),
        (rerun(), NOW + HOUR + MS, []),
        (changed(pending(), LATER), NOW, [*FIRST, CHANGED]),
        (transitions.schedule(changed(unscheduled(), NOW), LATER).task, LATER, FIRST),
        (transitions.schedule(changed(unscheduled(), NOW), LATER).task, NOW, [FIRST[0], CHANGED, FIRST[1]]),
        (claimed(changed(pending(), NOW + MS)), NOW, [*FIRST, CHANGED, "task-running 0"]),
        (changed(running(), NOW + MS, NOW + MINUTE), NOW + MINUTE, [CHANGED]),
        (changed(taken_over(), NOW + HOUR), NOW + MINUTE, ["task-pending 1", "task-running 1", CHANGED]),
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


def test_a_derived_change_of_priority_shows_the_task_without_later_runs() -> None:
    task = transitions.schedule(changed(unscheduled(), NOW), LATER).task
    assert events_since(task, NOW)[1].payload["status"] == changed(unscheduled(), NOW).status()


def test_the_derived_events_of_a_retried_run_show_the_retries_that_were_left() -> None:
    events = events_since(taken_over(), NOW)
    left = [event.payload["status"]["retriesLeft"] for event in events]
    retries = pending().retries_left
    assert left == [retries] * 3 + [retries - 1] * 3


def test_todays_event_of_a_retried_run_comes_before_that_of_its_retry_and_shows_both() -> None:
    *_, exception, pending_1 = events_since(shut_down(), NOW)
    assert exception == run_retried(shut_down(), 0)
    assert (exception.exchange, exception.only) == ("task-exception", "today")
    assert exception.payload["runId"] == 0
    assert exception.routing_key.startswith(f"primary.{TASK_ID}.0.group.alice.")
    assert exception.payload["status"] == pending_1.payload["status"] == shut_down().status()


def test_artifacts_of_a_run_come_before_the_event_of_its_end() -> None:
    artifact = replace(task_event("task-running", running()), exchange="artifact-created")
    end = ["artifact-created 0", "task-completed 0"]
    events = events_since(rerun(), NOW, {0: [artifact], 7: [artifact]})
    assert names_of(events) == [*FIRST, "task-running 0", *end, "task-pending 1"]
    assert names_of(events_since(completed(), NOW + MINUTE, {0: [artifact]})) == end


def test_the_longest_routing_key_has_the_255_bytes_that_amqp_allows() -> None:
    """A short string of AMQP 0-9-1 has 255 bytes at most."""
    longest = dict.fromkeys(("provisionerId", "workerType", "schedulerId"), "x" * 38)
    task = with_last_run(pending(**longest), run_id=1000, worker=Worker("g" * 38, "w" * 38))
    assert len(task_event("task-running", task).routing_key) == 255
