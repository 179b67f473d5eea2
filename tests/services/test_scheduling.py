"""defineTask, scheduleTask, rerunTask: docs/explanation/http-contract.md#task-status."""

import pytest

from legacy_queue.domain.ids import slugid
from tests.services.harness import (
    BOB,
    MINUTE,
    CallRecorder,
    Harness,
    task_body,
)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def defined(harness: Harness, **changes: object) -> str:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body(harness.clock.now(), **changes))
    return task_id


def test_a_defined_task_is_unscheduled_and_has_no_message(harness: Harness) -> None:
    task_id = slugid()
    task = harness.services.tasks.define(task_id, task_body())
    assert (task.state, task.status()["runs"]) == ("unscheduled", [])
    assert task.definition.dependencies == (task_id,)
    assert harness.messages() == []
    assert harness.events() == [("task-defined", task_id, None)]


def test_a_repeated_define_answers_the_same_and_publishes_again(harness: Harness) -> None:
    task_id = slugid()
    first = harness.services.tasks.define(task_id, task_body())
    assert harness.services.tasks.define(task_id, task_body()) == first
    with_itself = task_body(dependencies=[task_id])
    assert harness.services.tasks.create(task_id, with_itself) == first
    assert harness.services.tasks.define(task_id, with_itself) == first
    assert harness.events() == [("task-defined", task_id, None)] * 4


def test_a_scheduled_task_is_pending_and_offered(harness: Harness) -> None:
    task_id = defined(harness)
    harness.events()
    harness.clock.advance(MINUTE)
    task = harness.services.tasks.schedule(task_id)
    assert (task.state, task.runs[0].reason_created) == ("pending", "scheduled")
    assert harness.receive_one().task_id == task_id
    assert harness.events() == [("task-pending", task_id, 0)]


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_rerun_task_is_pending_with_all_its_retries_and_can_be_run(harness: Harness, state: str) -> None:
    task_id = harness.claimed(retries=3)
    harness.shut_down(task_id)
    harness.run(task_id, state)
    harness.events()
    assert harness.task(task_id).retries_left == 2
    task = harness.services.tasks.rerun(task_id)
    assert (task.state, task.retries_left) == ("pending", 3)
    assert [run.reason_created for run in task.runs] == ["scheduled", "retry", "rerun"]
    assert harness.services.tasks.rerun(task_id) == task
    assert harness.events() == [("task-pending", task_id, 2)] * 2
    messages = [message for message in harness.receive() if message.run_id == 2]
    assert harness.claim(messages[0], BOB)["runId"] == 2
    assert harness.complete(task_id, 2).state == "completed"


def test_schedule_and_rerun_cost_five_operations(harness: Harness) -> None:
    calls = CallRecorder()
    services = harness.replica(calls, caches_tasks=True)
    task_id = defined(harness)
    services.tasks.schedule(task_id)
    assert calls.names == ["load", "timer.put", "replace", "broker.publish", "put"]
    harness.run(task_id)
    calls.names.clear()
    services.tasks.rerun(task_id)  # its timer is still there
    assert calls.names == ["load", "activate", "replace", "broker.publish", "put"]
