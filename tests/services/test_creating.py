"""createTask: once answered, a task is never lost."""

import pytest

from legacy_queue.domain.errors import InputError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from tests.services.harness import (
    MINUTE,
    SECOND,
    CallRecorder,
    FaultAt,
    Harness,
    failing,
    task_body,
)

GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"


def test_a_created_task_is_pending_and_its_message_visible_at_once() -> None:
    harness = Harness()
    task_id = harness.create()
    assert harness.states(task_id) == ["pending"]
    message = harness.receive_one()
    assert (message.task_id, message.run_id) == (task_id, 0)


def test_a_message_expires_at_the_deadline_of_its_task() -> None:
    harness = Harness()
    task_id = harness.create(deadline="2030-01-02T04:04:05.999Z")
    (message,) = harness.messages()
    left = harness.task(task_id).definition.deadline - message.expires
    assert 0 * SECOND <= left < SECOND


def test_a_repeated_create_answers_the_same_and_offers_the_task_once() -> None:
    harness = Harness()
    task_id = slugid()
    first = harness.services.tasks.create(task_id, task_body())
    harness.clock.advance(SECOND)
    assert harness.services.tasks.create(task_id, task_body()) == first
    assert [run_id for run_id, _ in harness.offered_runs()] == [0]


def test_a_create_that_is_repeated_after_a_lost_answer_offers_the_task_once() -> None:
    harness = Harness()
    task_id, lost = slugid(), failing(ServiceUnavailable("the answer of storage was lost"))
    server = harness.replica(FaultAt(0, of="insert", after=lost))
    with pytest.raises(ServiceUnavailable):
        server.tasks.create(task_id, task_body())
    server.tasks.create(task_id, task_body())
    harness.run_timers(MINUTE, services=server)
    assert [run_id for run_id, _ in harness.offered_runs()] == [0]


def test_another_definition_under_the_same_task_id_is_a_conflict() -> None:
    harness = Harness()
    task_id = harness.create()
    with pytest.raises(RequestConflict, match="retries differs"):
        harness.services.tasks.create(task_id, task_body(retries=1))
    assert harness.task(task_id).retries_left == 5


def test_a_group_has_one_scheduler_id() -> None:
    harness = Harness()
    harness.create(taskGroupId=GROUP, schedulerId="first")
    harness.create(taskGroupId=GROUP, schedulerId="first")
    other = slugid()
    with pytest.raises(RequestConflict, match=f"{GROUP} has the schedulerId 'first'"):
        harness.services.tasks.create(other, task_body(taskGroupId=GROUP, schedulerId="second"))
    with pytest.raises(ResourceNotFound):
        harness.services.tasks.load(other)


def test_a_refused_definition_writes_nothing() -> None:
    calls = CallRecorder()
    services = Harness().replica(calls)
    with pytest.raises(InputError):
        services.tasks.create(slugid(), task_body(dependencies=[GROUP]))
    assert calls.names == ["load"]


def test_a_task_that_was_never_created_is_not_found() -> None:
    services = Harness().services
    for find in (services.tasks.load, services.tasks.recall, services.tasks.cancel):
        with pytest.raises(ResourceNotFound, match="there is no task"):
            find(slugid())
