"""createTask: once answered, a task is never lost."""

import pytest

from legacy_queue.domain.errors import InputError
from legacy_queue.domain.ids import slugid
from tests.services.harness import (
    SECOND,
    CallRecorder,
    Harness,
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


def test_a_refused_definition_writes_nothing() -> None:
    calls = CallRecorder()
    services = Harness().replica(calls)
    with pytest.raises(InputError):
        services.tasks.create(slugid(), task_body(dependencies=[GROUP]))
    assert calls.names == ["load"]
