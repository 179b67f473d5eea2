"""The invariants and guarantees of any task in a harness.

Source: docs/explanation/held-message.md#what-holds-at-any-time and
docs/explanation/recovery.md#what-is-guaranteed.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from legacy_queue.domain.messages import signature_is_valid
from legacy_queue.domain.task import Task, Worker
from legacy_queue.ports.queue import QueuedMessage
from tests.services.harness import (
    CLAIM_TIMEOUT,
    HIGH,
    MINUTE,
    QUEUE,
    SECRET,
    Harness,
    Message,
    PublishedEvent,
    visible_at,
)

MAX_RUNS = 50
PRIORITY_CHANGED = "task-priority-changed"

Claim = tuple[str, int, Worker | None, datetime | None]  # taskId, runId, who holds it and until when
Messages = Mapping[str, tuple[int, QueuedMessage]]


def messages_of(harness: Harness, task_id: str, *, in_any_queue: bool = False) -> Messages:
    """The run and the message for each message id of the task, without forged messages.

    Looks in the queue of its priority, or ``in_any_queue``.
    """
    queues = (QUEUE, HIGH) if in_any_queue else (harness.task(task_id).work_queue,)
    read = [(Message.read(message), message) for queue in queues for message in harness.messages(queue)]
    return {
        one.lease.message_id: (text.run_id, one)
        for text, one in read
        if text.task_id == task_id and is_genuine(text)
    }


def is_genuine(message: Message) -> bool:
    return signature_is_valid(message.signature, message.task_id, message.run_id, [SECRET])


def check(harness: Harness, task_id: str, *, after_faults: bool, skew: timedelta = timedelta(0)) -> None:
    """Raises AssertionError if an invariant of "The held message", or retriesLeft, is broken.

    Without faults the invariants hold to the letter. A crash may leave the message one run ahead (R+1 of a
    pending run R), and an outdated receipt in the table. Then there must still be a message that becomes
    visible and leads to the next run, or a timer that will put a message. A claim that reaches the deadline
    holds no message: the deadline ends the task. ``skew``: how far the clock of a server is behind.
    """
    task = harness.task(task_id)
    messages = messages_of(harness, task_id, in_any_queue=after_faults)
    for _, message in messages.values():
        assert message.expires <= task.definition.deadline + skew, "a message outlives the deadline"
    check_runs(task)
    if harness.clock.now() >= task.definition.deadline - CLAIM_TIMEOUT - MINUTE:
        return
    last = task.last_run
    becoming_visible = {run_id for run_id, one in messages.values() if visible_at(one) < one.expires}
    if last and last.state == "pending":
        wanted = {last.run_id, last.run_id + 1} if after_faults else {last.run_id}
        is_offered = wanted & becoming_visible or (after_faults and _has_urgent_timer(harness, task))
        assert is_offered, f"no message leads to pending run {last.run_id}"
    elif last and last.state == "running":
        _check_held(harness, task, messages, after_faults=after_faults)


def _check_held(harness: Harness, task: Task, messages: Messages, *, after_faults: bool) -> None:
    last = task.runs[-1]
    assert task.held
    assert last.taken_until
    wanted = {last.run_id + 1, last.run_id + 2} if after_faults else {last.run_id + 1}
    leading = {message_id: one for message_id, (run_id, one) in messages.items() if run_id in wanted}
    assert any(visible_at(one) < one.expires for one in leading.values()), (
        f"no message leads past running run {last.run_id}"
    )
    if harness.clock.now() >= last.taken_until:
        return
    assert any(visible_at(one) >= last.taken_until for one in leading.values()), (
        f"no message enforces the end of the claim on run {last.run_id}"
    )
    if not after_faults:
        run_id, held = messages[task.held.message_id]
        assert (run_id, held.lease) == (last.run_id + 1, task.held), "the table names another message"
        assert visible_at(held) >= last.taken_until


def _has_urgent_timer(harness: Harness, task: Task) -> bool:
    """Whether a timer will put the missing message."""
    return any(row.timer.task_id == task.task_id and row.timer.since for row in harness.timers())


def check_runs(task: Task) -> None:
    """One run at a time, in order; retriesLeft counts the retries since the task was last rerun."""
    runs = task.runs
    assert [run.run_id for run in runs] == list(range(len(runs))), "runs out of order"
    assert len(runs) <= MAX_RUNS, "too many runs"
    assert all(run.is_resolved for run in runs[:-1]), "two runs at once"
    first = task.activation(len(runs))
    granted = min(task.definition.retries, MAX_RUNS - first - 1)
    retries = sum(run.reason_created in ("retry", "task-retry") for run in runs[first:])
    assert task.retries_left == granted - retries >= 0, "retriesLeft is wrong"
    if not (runs and runs[-1].state == "running"):
        assert task.held is None, "a message is held for no claim"


def check_history(before: Task, after: Task, taken_back: Collection[Claim] = ()) -> None:
    """A run is resolved once, and a claim only grows. Claims ``taken_back`` may be missing."""
    assert len(after.runs) >= len(before.runs), "a run is missing"
    for was, now in zip(before.runs, after.runs, strict=False):
        assert now == was or not was.is_resolved, "a resolved run was changed"
        if (before.task_id, was.run_id, was.worker, was.taken_until) in taken_back:
            continue
        assert was.state != "running" or now.worker == was.worker, "a run changed hands"
        if was.taken_until:
            assert now.taken_until, "a claim was forgotten"
            assert now.taken_until >= was.taken_until, "takenUntil shrank"


def history(task: Task) -> list[PublishedEvent]:
    """Every event of the task's life, each once. A run that was retried has no final event."""
    events: list[PublishedEvent] = [("task-defined", task.task_id, None)]
    if task.priority_changes:
        events.append((PRIORITY_CHANGED, task.task_id, None))
    for run in task.runs:
        if run.reason_created != "exception":
            events.append(("task-pending", task.task_id, run.run_id))
        if run.worker:
            events.append(("task-running", task.task_id, run.run_id))
        if task.ended_with(run.run_id):
            events.append((f"task-{run.state}", task.task_id, run.run_id))
    return events


def check_published(
    tasks: Sequence[Task],
    published: Sequence[PublishedEvent],
    incomplete: Collection[str],
    unordered: Collection[str],
    taken_back: Collection[Claim] = (),
) -> None:
    """Each event of every task was published at least once, and no other event; a group's resolution last.

    Events of the tasks ``incomplete`` may be missing. But for the tasks ``unordered``, task-defined came
    first. Claims ``taken_back`` may have been published.
    """
    first = {event: index for index, event in reversed(list(enumerate(published)))}
    last = {event: index for index, event in enumerate(published)}
    histories = {task.task_id: history(task) for task in tasks}
    of_tasks = [one for one in first if not one[0].startswith("task-group-")]
    false = [one for one in of_tasks if one not in histories.get(one[1], [])]
    false = [one for one in false if one not in {("task-running", *claim[:2]) for claim in taken_back}]
    assert not false, f"published what never happened: {false}"
    groups: dict[str, list[int]] = {}
    for task in tasks:
        if task.task_id in incomplete:
            continue
        missing = [event for event in histories[task.task_id] if event not in first]
        assert not missing, f"never published: {missing}"
        defined, pending = first["task-defined", task.task_id, None], ("task-pending", task.task_id, 0)
        is_ordered = defined < first.get(pending, len(published)) or task.task_id in unordered
        assert is_ordered, "task-pending was published before task-defined"
        ends = [first[event] for event in histories[task.task_id][1:] if is_final(event)]
        groups.setdefault(task.definition.task_group_id, []).extend(ends)
    for task_group_id in {task.definition.task_group_id for task in tasks if task.task_id in incomplete}:
        groups.pop(task_group_id, None)
    for task_group_id, ends in groups.items():
        resolved = last.get(("task-group-resolved", task_group_id, None), -1)
        assert resolved > max(ends, default=-1), "the resolution of a group was not published last"


def check_order(tasks: Sequence[Task], published: Sequence[PublishedEvent]) -> None:
    """The events of each task came in order, as a process publishes that makes one call after the other."""
    for task in tasks:
        first = [published.index(event) for event in history(task) if event[0] != PRIORITY_CHANGED]
        assert first == sorted(first), f"published out of order: {[published[index] for index in first]}"


def is_final(event: PublishedEvent) -> bool:
    return event[0] in ("task-completed", "task-failed", "task-exception")
