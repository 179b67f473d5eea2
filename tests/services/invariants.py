"""The invariants of design/protocol.md, "The held message", of any task in a bench."""

from datetime import timedelta

from legacy_queue.adapters.memory_queue import QueuedMessage
from tests.services.bench import CLAIM_TIMEOUT, MINUTE, Bench, Message


def messages_of(bench: Bench, task_id: str) -> dict[str, tuple[int, QueuedMessage]]:
    """The run and the message for each message id of the task."""
    read = [(Message.read(one), one) for one in bench.messages()]
    return {one.lease.message_id: (text.run_id, one) for text, one in read if text.task_id == task_id}


def check(bench: Bench, task_id: str, *, after_faults: bool, skew: timedelta = timedelta(0)) -> None:
    """Raises AssertionError where one is broken.

    Without faults they hold to the letter. A crash may leave the message one run ahead (it says R+1 of a
    run R that is pending), and the table with a receipt that is good no more: then there must still be a
    message that becomes visible and leads to the next run. So near to the deadline that a claim is cut to
    it nothing is held: the deadline ends the task. ``skew`` is how far a server's clock is behind.
    """
    task = bench.task(task_id)
    messages = messages_of(bench, task_id)
    for _, message in messages.values():
        assert message.expires <= task.definition.deadline + skew, "a message outlives the deadline"
    if bench.clock.now() >= task.definition.deadline - CLAIM_TIMEOUT - MINUTE:
        return
    last = task.runs[-1]
    becoming_visible = {run_id for run_id, one in messages.values() if one.next_visible < one.expires}
    if last.state == "pending":
        wanted = {last.run_id, last.run_id + 1} if after_faults else {last.run_id}
        assert wanted & becoming_visible, f"no message leads to pending run {last.run_id}"
    elif last.state == "running":
        assert task.held
        assert last.taken_until
        wanted = {last.run_id + 1, last.run_id + 2} if after_faults else {last.run_id + 1}
        assert wanted & becoming_visible, f"no message leads past running run {last.run_id}"
        if bench.clock.now() < last.taken_until:
            in_time = [
                message_id
                for message_id, (run_id, one) in messages.items()
                if run_id in wanted and one.next_visible >= last.taken_until
            ]
            assert in_time, f"nothing enforces the end of the claim on run {last.run_id}"
            if not after_faults:
                run_id, held = messages[task.held.message_id]
                assert (run_id, held.lease) == (last.run_id + 1, task.held), "the table names another message"
                assert held.next_visible >= last.taken_until
    else:
        assert task.held is None
    retries = [run for run in task.runs if run.reason_created in ("retry", "task-retry")]
    assert task.retries_left == task.definition.retries - len(retries)
    assert task.retries_left >= 0
    assert all(run.is_resolved for run in task.runs[:-1])
