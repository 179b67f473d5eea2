"""Messages that should not be there: what arrives at a worker, and what a claim with them is answered."""

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, InputError, RequestConflict, ResourceNotFound
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.services.control.message_injection import MessageInjection
from tests.services.harness import BOB, HIGH, PROVISIONER, QUEUE, SECRET, Harness

OTHER = WorkQueue(PROVISIONER, "another", "lowest")


@pytest.fixture
def injection(harness: Harness) -> MessageInjection:
    return MessageInjection(harness.storage.work_queues, harness.services.tasks, SECRET)


def test_a_poisoned_message_is_of_no_task(harness: Harness, injection: MessageInjection) -> None:
    message_id = injection.put("poisoned", HIGH, None)
    [message] = harness.messages(HIGH)
    assert message.lease.message_id == message_id
    with pytest.raises(ValueError):  # noqa: PT011 - the message is of the library
        read_message(message.text)


def test_a_forged_message_is_refused_and_a_doubled_one_is_a_conflict(
    harness: Harness, injection: MessageInjection
) -> None:
    task_id = harness.create()
    injection.put("forged", HIGH, task_id)
    injection.put("doubled", HIGH, task_id)
    forged, doubled = harness.receive(2, HIGH)
    with pytest.raises(AuthorizationFailed):
        harness.claim(forged)
    harness.claim(doubled)
    with pytest.raises(RequestConflict):
        harness.claim(harness.receive_one(), BOB)


def test_a_foreign_message_is_of_another_worker_type(harness: Harness, injection: MessageInjection) -> None:
    task_id = harness.create()
    injection.put("foreign", OTHER, task_id)
    [message] = harness.receive(1, OTHER)
    assert (message.task_id, message.run_id) == (task_id, 0)


def test_a_message_that_cannot_be_of_its_kind_is_refused(
    harness: Harness, injection: MessageInjection
) -> None:
    task_id = harness.create()
    for kind, queue, of_task in [
        ("poisoned", QUEUE, task_id),
        ("doubled", QUEUE, None),
        ("doubled", OTHER, task_id),
        ("foreign", QUEUE, task_id),
    ]:
        with pytest.raises(InputError, match=kind):
            injection.put(kind, queue, of_task)
    with pytest.raises(ResourceNotFound):
        injection.put("forged", QUEUE, slugid())
    assert len(harness.messages()) == 1
