"""The messages of a pool, read without receiving them."""

from datetime import timedelta

from legacy_queue.domain.messages import message_text
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.ports.queue import MAX_COUNT
from legacy_queue.services.inspection.peeking import Peeking
from tests.memory_server import FakeClock, memory_storage

TASK_ID = "VLdaX5vAQ0iW8JIr3sGQZw"
HIGH, LOWEST = (WorkQueue("provisioner", "type", priority) for priority in ("high", "lowest"))
HOUR, NO_TIME = timedelta(hours=1), timedelta(0)


def test_messages_of_all_priorities_are_shown_with_when_they_are_visible() -> None:
    clock = FakeClock()
    queues = memory_storage(clock).work_queues
    queues.put(LOWEST, message_text(TASK_ID, 3, b"secret"), HOUR, NO_TIME)
    queues.put(HIGH, "no work message", HOUR, timedelta(minutes=5))
    begun = clock.now()
    clock.advance(timedelta(minutes=1))
    peeked = Peeking(queues, clock).messages("provisioner", "type")
    assert [
        (message.priority, message.run, message.visible_in, message.dequeue_count, message.inserted)
        for message in peeked.messages
    ] == [
        ("high", None, timedelta(minutes=4), 0, begun),
        ("lowest", (TASK_ID, 3), NO_TIME, 0, begun),
    ]
    assert peeked.hidden == 0


def test_a_queue_with_as_many_messages_as_are_shown_may_have_more() -> None:
    clock = FakeClock()
    queues = memory_storage(clock).work_queues
    for number in range(MAX_COUNT + 1):
        queues.put(LOWEST, str(number), HOUR, NO_TIME)
    peeked = Peeking(queues, clock).messages("provisioner", "type")
    assert (len(peeked.messages), peeked.hidden) == (MAX_COUNT, 1)
