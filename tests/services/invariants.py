"""The invariants and guarantees of any task in a bench.

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
)

MOST_RUNS = 50
PRIORITY_CHANGED = "task-priority-changed"

Claim = tuple[str, int, Worker | None, datetime | None]  # taskId, runId, who holds it and until when
Messages = Mapping[str, tuple[int, QueuedMessage]]


def messages_of(harness: Harness, task_id: str, *, in_any_queue: bool = False) -> Messages:
    """The run and the message for each message id of the task; none that somebody else has signed.

    Those in the queue of its priority, or ``in_any_queue``.
    """
    queues = (QUEUE, HIGH) if in_any_queue else (harness.task(task_id).work_queue,)
    read = [(Message.read(one), one) for queue in queues for one in harness.messages(queue)]
    return {
        one.lease.message_id: (text.run_id, one)
        for text, one in read
        if text.task_id == task_id and is_genuine(text)
    }


def is_genuine(message: Message) -> bool:
    return signature_is_valid(message.signature, message.task_id, message.run_id, [SECRET])


def check(harness: Harness, task_id: str, *, after_faults: bool, skew: timedelta = timedelta(0)) -> None:
    """Raises AssertionError where one of "The held message", or retriesLeft, is broken.

    Without faults they hold to the letter. A crash may leave the message one run ahead (it says R+1 of a
    run R that is pending), and the table with a receipt that is good no more: then there must still be a
    message that becomes visible and leads to the next run, or a timer that will put one. Where
    a claim reaches the deadline nothing is held: the deadline ends the task. ``skew`` is how far a
    server's clock is behind.
    """
    task = harness.task(task_id)
    messages = messages_of(harness, task_id, in_any_queue=after_faults)
    for _, message in messages.values():
        assert message.expires <= task.definition.deadline + skew, "a message outlives the deadline"
    check_runs(task)
    if harness.clock.now() >= task.definition.deadline - CLAIM_TIMEOUT - MINUTE:
        return
    last = task.last_run
    becoming_visible = {run_id for run_id, one in messages.values() if one.next_visible < one.expires}
    if last and last.state == "pending":
        wanted = {last.run_id, last.run_id + 1} if after_faults else {last.run_id}
        is_seen_to = wanted & becoming_visible or (after_faults and _is_seen_through(harness, task))
        assert is_seen_to, f"no message leads to pending run {last.run_id}"
    elif last and last.state == "running":
        _check_held(harness, task, messages, after_faults=after_faults)


def _check_held(harness: Harness, task: Task, messages: Messages, *, after_faults: bool) -> None:
    last = task.runs[-1]
    assert task.held
    assert last.taken_until
    wanted = {last.run_id + 1, last.run_id + 2} if after_faults else {last.run_id + 1}
    leading = {message_id: one for message_id, (run_id, one) in messages.items() if run_id in wanted}
    assert any(one.next_visible < one.expires for one in leading.values()), (
        f"no message leads past running run {last.run_id}"
    )
    if harness.clock.now() >= last.taken_until:
        return
    assert any(one.next_visible >= last.taken_until for one in leading.values()), (
        f"nothing enforces the end of the claim on run {last.run_id}"
    )
    if not after_faults:
        run_id, held = messages[task.held.message_id]
        assert (run_id, held.lease) == (last.run_id + 1, task.held), "the table names another message"
        assert held.next_visible >= last.taken_until


def _is_seen_through(harness: Harness, task: Task) -> bool:
    """Whether a timer will find that nothing leads to the pending run."""
    return any(timer.task_id == task.task_id and timer.since for timer, _ in harness.timers())


def check_runs(task: Task) -> None:
    """One run at a time, in order; retriesLeft counts the retries since the task was last rerun."""
    runs = task.runs
    assert [run.run_id for run in runs] == list(range(len(runs))), "runs out of order"
    assert len(runs) <= MOST_RUNS, "too many runs"
    assert all(run.is_resolved for run in runs[:-1]), "two runs at once"
    first = task.activation(len(runs))
    granted = min(task.definition.retries, MOST_RUNS - first - 1)
    retries = sum(run.reason_created in ("retry", "task-retry") for run in runs[first:])
    assert task.retries_left == granted - retries >= 0, "retriesLeft is wrong"
    if not (runs and runs[-1].state == "running"):
        assert task.held is None, "a message is held for no claim"


def check_history(before: Task, after: Task, taken_back: Collection[Claim] = ()) -> None:
    """A run is resolved once, and a claim only grows, whatever happened in between.

    Of those ``taken_back`` nothing need be left.
    """
    assert len(after.runs) >= len(before.runs), "a run is gone"
    for was, now in zip(before.runs, after.runs, strict=False):
        assert now == was or not was.is_resolved, "a resolved run was changed"
        if (before.task_id, was.run_id, was.worker, was.taken_until) in taken_back:
            continue
        assert was.state != "running" or now.worker == was.worker, "a run changed hands"
        if was.taken_until:
            assert now.taken_until, "a claim was forgotten"
            assert now.taken_until >= was.taken_until, "takenUntil shrank"


def history(task: Task) -> list[PublishedEvent]:
    """Every event of the task's life, each once: a run that was retried has no final one."""
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


def check_told(
    tasks: Sequence[Task],
    told: Sequence[PublishedEvent],
    forgotten: Collection[str],
    unordered: Collection[str],
    taken_back: Collection[Claim] = (),
) -> None:
    """Each event of every life was told at least once, and nothing else; a group's resolution behind all.

    Of the tasks ``forgotten`` some may be missing; but for those ``unordered``, task-defined came first.
    Claims ``taken_back`` may have been told of.
    """
    first = {event: index for index, event in reversed(list(enumerate(told)))}
    last = {event: index for index, event in enumerate(told)}
    histories = {task.task_id: history(task) for task in tasks}
    of_tasks = [one for one in first if not one[0].startswith("task-group-")]
    lies = [one for one in of_tasks if one not in histories.get(one[1], [])]
    lies = [one for one in lies if one not in {("task-running", *claim[:2]) for claim in taken_back}]
    assert not lies, f"told what never happened: {lies}"
    groups: dict[str, list[int]] = {}
    for task in tasks:
        if task.task_id in forgotten:
            continue
        untold = [event for event in histories[task.task_id] if event not in first]
        assert not untold, f"never told: {untold}"
        defined, pending = first["task-defined", task.task_id, None], ("task-pending", task.task_id, 0)
        is_ordered = defined < first.get(pending, len(told)) or task.task_id in unordered
        assert is_ordered, "task-pending was told before task-defined"
        ends = [first[event] for event in histories[task.task_id][1:] if is_final(event)]
        groups.setdefault(task.definition.task_group_id, []).extend(ends)
    for task_group_id in {task.definition.task_group_id for task in tasks if task.task_id in forgotten}:
        groups.pop(task_group_id, None)
    for task_group_id, ends in groups.items():
        resolved = last.get(("task-group-resolved", task_group_id, None), -1)
        assert resolved > max(ends, default=-1), "a group was not told to be resolved"


def check_order(tasks: Sequence[Task], told: Sequence[PublishedEvent]) -> None:
    """The events of each life came in order: those of one process that did one thing after the other."""
    for task in tasks:
        first = [told.index(event) for event in history(task) if event[0] != PRIORITY_CHANGED]
        assert first == sorted(first), f"told out of order: {[told[one] for one in first]}"


def is_final(event: PublishedEvent) -> bool:
    return event[0] in ("task-completed", "task-failed", "task-exception")
