"""The state machine of a task: every change of its state is in this module.

The runs of a task have the ids 0, 1, 2 and so on. Only the last run can be pending or running. While run R is
running, the queue holds the message for run R+1: it hides this message until takenUntil. A worker that polls
after that finds the message. So a claim expires even if no server is running.
Source: docs/explanation/held-message.md.

You can repeat each transition: with the same facts, it returns the same task and asks for the same messages
and events again. So whatever a crash left undone is done when the client repeats its request, or when
recovery looks at the task.

How to read the table:

- "expired" means running after takenUntil, "no retries" means expired with retriesLeft 0, and "claimed" means
  any of running, expired and no retries.
- "resolved" means completed or failed, "canceled" means resolved as exception/canceled, and "50 runs" means
  resolved after all 50 runs were used.
- All these states are before the deadline. "late" means after the deadline, "any" means before or after it.
- A call with a detail after a comma has rows only where it differs from the call without the detail.
- "unchanged" means that the task stays the same. "refused" means that the task is written, and then the
  caller gets a RequestConflict.
- The name of each event begins with "task-". The event "retry" stands for two events: task-exception for the
  run that was resolved, which the queue of 2018 did not publish, then task-pending for the new run.
- If takenUntil is about as late as the deadline, no message is held.

call                        | state                    | new state          | events           | message
----------------------------|--------------------------|--------------------|------------------|-------------
create                      | none                     | pending            | defined, pending | offer
create, with dependencies   | none                     | unscheduled        | defined          | -
create again                | any pending              | unchanged          | defined, pending | offer
                            | any other                | unchanged          | defined          | -
create again, different     | any                      | RequestConflict    | -                | -
schedule                    | unscheduled              | pending            | pending          | offer
                            | pending                  | unchanged          | pending          | offer
                            | late                     | RequestConflict    | -                | -
                            | any other                | unchanged          | -                | -
satisfy                     | unscheduled              | pending            | pending          | offer
                            | late unscheduled         | unscheduled        | -                | -
                            | any other                | unchanged          | -                | -
satisfy, one of several     | unscheduled              | unscheduled        | -                | -
rerun                       | resolved, canceled       | pending            | pending          | offer
                            | unscheduled              | pending            | pending          | offer
                            | pending                  | unchanged          | pending          | offer
                            | 50 runs, late            | RequestConflict    | -                | -
                            | any other                | unchanged          | -                | -
claim                       | pending                  | running            | running          | hold
                            | running                  | unchanged          | running          | -
                            | unscheduled              | ResourceNotFound   | -                | -
                            | any other                | RequestConflict    | -                | -
claim, another worker       | running                  | RequestConflict    | -                | -
claim, next run             | running                  | ServiceUnavailable | -                | -
                            | expired                  | running            | retry, running   | hold
                            | no retries               | exception, refused | exception        | -
claim, next run, duplicate  | running                  | RequestConflict    | -                | -
reclaim                     | running                  | running            | -                | hold
                            | any unscheduled          | ResourceNotFound   | -                | -
                            | any other                | RequestConflict    | -                | -
resolve                     | any unscheduled          | ResourceNotFound   | -                | -
                            | any other                | RequestConflict    | -                | -
resolve, completed          | claimed, late running    | completed          | completed        | delete
                            | any resolved, 50 runs    | unchanged          | completed        | -
resolve, failed             | claimed, late running    | failed             | failed           | delete
resolve, worker-shutdown    | running, expired         | pending            | retry            | offer
                            | no retries, late running | exception          | exception        | delete
cancel                      | unscheduled, pending     | exception          | exception        | -
                            | claimed                  | exception          | exception        | delete
                            | canceled                 | unchanged          | exception        | -
                            | late                     | RequestConflict    | -                | -
                            | any other                | unchanged          | -                | -
expire                      | expired                  | pending            | retry            | offer
                            | no retries, late running | exception          | exception        | delete
                            | late pending             | exception          | exception        | -
                            | late unscheduled         | exception          | exception        | -
                            | any other                | unchanged          | -                | -
change priority             | unscheduled              | unscheduled        | priority-changed | -
                            | pending                  | pending            | priority-changed | offer
                            | claimed                  | running            | priority-changed | hold, delete
                            | any other                | RequestConflict    | -                | -
change priority, the same   | unscheduled, claimed     | unchanged          | -                | -
                            | pending                  | unchanged          | -                | offer
release claim               | claimed, late running    | pending            | pending          | offer
                            | any other                | unchanged          | -                | -
release claim, other worker | any                      | unchanged          | -                | -
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event, priority_changed, task_event
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.outcome import (
    DeleteMessage,
    Outcome,
    message_held,
    task_defined,
    task_pending,
    task_resolved,
    task_retried,
)
from legacy_queue.domain.task import Run, Task, Worker
from legacy_queue.domain.times import format_time

# reasonResolved -> reasonCreated of the retry
RETRIED = {"claim-expired": "retry", "worker-shutdown": "retry", "intermittent-task": "task-retry"}


def create(task_id: str, definition: TaskDefinition, waits_for: Sequence[str], now: datetime) -> Outcome:
    """Creates a task. It is pending with run 0, or unscheduled if it waits for dependencies."""
    runs = () if waits_for else (Run(0, "pending", "scheduled", now),)
    return task_defined(Task(task_id, definition, definition.retries, runs, waits_for=tuple(waits_for)))


def create_again(task: Task, definition: TaskDefinition) -> Outcome:
    """Returns the existing task. Raises RequestConflict if the new definition differs."""
    task.definition.check_same(definition, task.task_id)
    return task_defined(task)


def schedule(task: Task, now: datetime) -> Outcome:
    """Makes an unscheduled task pending. Raises RequestConflict after the deadline."""
    task.check_deadline(now)
    return task_pending(task if task.runs else _with_new_run(task, "scheduled", now))


def satisfy(task: Task, required_id: str, now: datetime) -> Outcome:
    """Removes this dependency from those that the task waits for. After the last one, the task is pending."""
    if required_id not in task.waits_for:
        return Outcome(task)
    task = replace(task, waits_for=tuple(task_id for task_id in task.waits_for if task_id != required_id))
    # after the deadline the task only waits to be resolved: a new run would have no time left
    if task.runs or task.waits_for or now >= task.definition.deadline:
        return Outcome(task)
    return task_pending(_with_new_run(task, "scheduled", now))


def rerun(task: Task, now: datetime) -> Outcome:
    """Makes a resolved or unscheduled task pending, with all its retries.

    Raises RequestConflict after the deadline, and if the task has had 50 runs.
    """
    task.check_deadline(now)
    if task.runs and not task.is_resolved:
        return task_pending(task)
    runs_left = MAX_RUNS - len(task.runs)
    if runs_left <= 0:
        raise task.conflict(f"it has had {MAX_RUNS} runs, the maximum for a task")
    # the rerun itself uses one of the runs that are left
    task = replace(task, retries_left=min(task.definition.retries, runs_left - 1))
    return task_pending(_with_new_run(task, "rerun", now))


def claim(
    task: Task,
    run_id: int,
    worker: Worker,
    proof: MessageLease | None,
    message_id: str | None,
    claim_timeout: timedelta,
    now: datetime,
) -> Outcome:
    """Gives the run to the worker until takenUntil, and holds the message for the next run until then.

    ``proof`` is the lease on the message that the worker polled; it is None if the queue may not change that
    message. ``message_id`` is the id of the message, if the worker named it.

    The message may be for the run after the last one. Then it is the held message of an expired claim, or a
    server crashed after it held the message and before it wrote the task. If both happened, the message is
    two runs ahead.

    Raises ResourceNotFound and RequestConflict. Raises ServiceUnavailable if a held message became visible
    before takenUntil by this server's clock.
    """
    task.check_deadline(now)
    last = task.last_run
    retried: tuple[Event, ...] = ()
    if last and run_id in (len(task.runs), len(task.runs) + 1):
        if last.state == "running":
            # a message that is visible before takenUntil is a duplicate, or another machine's clock is ahead
            _check_expired(task, last, message_id, now)
            task = _resolve_last_run(task, "exception", "claim-expired", now)
            if task.state != "pending":
                refusal = task.conflict("its claim expired and no retries are left")
                return replace(task_resolved(task), refusal=refusal)
            retried = task_retried(task).events
        elif last.is_resolved:
            raise task.conflict(f"it was resolved as {last.state} ({last.reason_resolved})")
        run_id = len(task.runs) - 1
    run = task.run(run_id)
    if run.state == "running" and run.worker == worker and not run.has_expired(now):
        # the worker asks again: it did not get the first answer
        return Outcome(task, events=(task_event("task-running", task),))
    if run.state != "pending":
        raise task.conflict(run.summary)
    # the message of a retry was put by the claim before it, so it does not show that events were published
    shows_events = not run.is_retry and _has_priority_since(task, run.scheduled)
    taken_until = now + claim_timeout
    task = _with_last_run(task, task.held, task.runs[-1].claimed(worker, taken_until, now))
    events = (*retried, task_event("task-running", task))
    return message_held(task, proof, now, events, shows_events=shows_events)


def reclaim(task: Task, run_id: int, claim_timeout: timedelta, now: datetime) -> Outcome:
    """Extends the claim to ``claim_timeout`` from now. Raises ResourceNotFound and RequestConflict."""
    run = task.run(run_id)
    if run.state != "running":
        raise task.conflict(f"{run.summary}, only a running run can be reclaimed")
    if run.has_expired(now):
        raise task.conflict(f"the claim on run {run_id} ended at {format_time(run.taken_until or now)}")
    task.check_deadline(now)
    extended = now + claim_timeout
    # a server whose clock is behind must not shorten what another server has promised
    taken_until = max(extended, run.taken_until or extended)
    return message_held(
        _with_last_run(task, task.held, replace(run, taken_until=taken_until)), task.held, now
    )


def resolve(task: Task, run_id: int, state: str, reason: str, now: datetime) -> Outcome:
    """Resolves the run as ``state`` with ``reason``. Adds a retry if the reason is in ``RETRIED``.

    Raises ResourceNotFound. Raises RequestConflict if no worker holds the run, or it has another result.
    """
    run = task.run(run_id)
    if run.is_resolved and run.worker and (run.state, run.reason_resolved) == (state, reason):
        if run_id == len(task.runs) - 1:
            return task_resolved(task)
        # offer a pending retry again; a claimed retry or a rerun needs no offer
        is_retried = run_id == len(task.runs) - 2 and task.state == "pending" and task.runs[-1].is_retry
        return task_retried(task) if is_retried else Outcome(task)
    if run.state != "running":
        raise task.conflict(f"{run.summary}, only a running run can be reported {state}")
    shows_events = _has_priority_since(task, run.started or now)
    ended = _end(task, state, reason, now)
    return Outcome(
        ended.task, message_effect=ended.message_effect, events=ended.events, shows_events=shows_events
    )


def cancel(task: Task, now: datetime) -> Outcome:
    """Resolves an unresolved task as exception/canceled. Raises RequestConflict after the deadline."""
    task.check_deadline(now)
    if task.is_resolved:
        return task_resolved(task) if task.runs[-1].reason_resolved == "canceled" else Outcome(task)
    return _end(task, "exception", "canceled", now)


def expire(task: Task, now: datetime) -> Outcome:
    """Ends the task after its deadline. Before the deadline, ends a run after takenUntil, and retries it."""
    if task.is_resolved:
        return Outcome(task)
    if now >= task.definition.deadline:
        return _end(task, "exception", "deadline-exceeded", now)
    if task.runs and task.runs[-1].has_expired(now):
        return _end(task, "exception", "claim-expired", now)
    return Outcome(task)


def change_priority(task: Task, priority: str, now: datetime) -> Outcome:
    """Gives the task another priority, and puts its message into the queue of that priority.

    A message that stays in the old queue is a duplicate. Raises RequestConflict if the task is resolved, and
    after the deadline.
    """
    task.check_deadline(now)
    if task.is_resolved:
        raise task.conflict(
            f"it is resolved ({task.state}): only the priority of an unresolved task can be changed"
        )
    if priority == task.priority:
        events = (priority_changed(task, task.priority_changes[-1]),) if task.priority_changes else ()
        return replace(task_pending(task), events=events)
    # the held message is in the old queue: first hold a new message, then delete the old one
    changed = replace(task.with_priority(priority, now), held=None)
    events = (priority_changed(changed, changed.priority_changes[-1]),)
    if task.state != "running":
        return replace(task_pending(changed), events=events)
    after = DeleteMessage(task.held, task.work_queue) if task.held else None
    return replace(message_held(changed, None, now, events), message_effect=after)


def release_claim(task: Task, run_id: int, worker: Worker, taken_until: datetime) -> Outcome:
    """Undoes the claim: the run is pending again, and its message is visible again.

    If the run has been resolved or reclaimed since, nothing changes.
    Source: docs/explanation/protocols.md#claimwork.
    """
    last = task.last_run
    # takenUntil distinguishes this claim from a reclaim or a later claim by the same worker
    claim = run_id, "running", worker, taken_until
    if last is None or (last.run_id, last.state, last.worker, last.taken_until) != claim:
        return Outcome(task)
    pending = Run(run_id, "pending", last.reason_created, last.scheduled)
    return task_pending(_with_last_run(task, None, pending), task.held)


def _end(task: Task, state: str, reason: str, now: datetime) -> Outcome:
    """Resolves the last run. If it may be retried, a new run is pending; else the task is resolved."""
    if not task.runs:  # an unscheduled task needs a run that says why it ended
        task = _with_new_run(task, "exception", now)
    ended = _resolve_last_run(task, state, reason, now)
    return task_retried(ended, task.held) if ended.state == "pending" else task_resolved(ended, task.held)


def _has_priority_since(task: Task, time: datetime) -> bool:
    """Whether the priority has not changed since then.

    A change of the priority puts its message before its event is published, so such a message proves nothing.
    """
    return not task.priority_changes or task.priority_changes[-1].changed < time


def _check_expired(task: Task, run: Run, message_id: str | None, now: datetime) -> None:
    """Raises an error unless the claim has expired. Only then may a worker use the next run's message."""
    if run.has_expired(now):
        return
    claimed = f"run {run.run_id} is claimed until {format_time(run.taken_until or now)}"
    if message_id is not None and task.held and message_id != task.held.message_id:
        raise task.conflict(f"{claimed}; this message is a duplicate")
    raise ServiceUnavailable(f"task {task.task_id}: {claimed}, try again then")


def _resolve_last_run(task: Task, state: str, reason: str, now: datetime) -> Task:
    # a resolved task holds no message: the caller passes the lease to the outcome, which deletes it
    task = _with_last_run(task, None, task.runs[-1].ended(state, reason, now))
    may_retry = task.retries_left > 0 and len(task.runs) < MAX_RUNS and now < task.definition.deadline
    if reason in RETRIED and may_retry:
        task = _with_new_run(replace(task, retries_left=task.retries_left - 1), RETRIED[reason], now)
    return task


def _with_last_run(task: Task, held: MessageLease | None, run: Run) -> Task:
    """Returns the task with this run in place of its last run, and with this held message."""
    return task.with_runs((*task.runs[:-1], run), held)


def _with_new_run(task: Task, reason_created: str, now: datetime) -> Task:
    """Returns the task with one more run, which is pending."""
    run = Run(len(task.runs), "pending", reason_created, now)
    return replace(task, runs=(*task.runs, run), newest_blob="")
