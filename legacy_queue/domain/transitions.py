"""The life of a task: every change of state that there is.

    unscheduled -> pending -> running -> completed | failed | exception

as runs with ids from 0, of which only the last can be pending or running. While run R is running, the
message for R+1 is held: invisible until takenUntil, so that whoever polls after that finds it and the
claim expires without anybody watching.

Each transition is an *ensure*: repeated with the same facts it gives the same task, and asks again for the
same messages and events, so that a crash heals when the request is repeated; where nobody does, a timer heals
it. Source: docs/explanation/held-message.md.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import QueueError, RequestConflict, ServiceUnavailable
from legacy_queue.domain.events import Event, priority_changed, task_event
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.messages import MessageLease
from legacy_queue.domain.outcome import DeleteMessage, Hold, Offer, Outcome
from legacy_queue.domain.task import PriorityChange, Run, Task, Worker
from legacy_queue.domain.times import format_time, whole_seconds

# reasonResolved of an exception -> reasonCreated of the run that follows while there are retries left
RETRIED = {"claim-expired": "retry", "worker-shutdown": "retry", "intermittent-task": "task-retry"}

MAX_PRIORITY_CHANGES = 50  # that are kept of a task, the last of them

# Azure refuses an invisibility that reaches the end of a message's time to live. That end was counted when
# the message was put, in whole seconds; two seconds cover both roundings.
_EXPIRY_MARGIN = timedelta(seconds=2)


def create(task_id: str, definition: TaskDefinition, waits_for: Sequence[str], now: datetime) -> Outcome:
    """A new task: pending with run 0, or unscheduled while there are dependencies to wait for."""
    task = Task(task_id, definition, definition.retries, waits_for=tuple(waits_for))
    if not waits_for:
        task = task.with_new_run("scheduled", now)
    return _created(task)


def create_again(task: Task, definition: TaskDefinition) -> Outcome:
    """The same definition changes nothing, and tells and offers again; another one is a RequestConflict."""
    if different := task.definition.differences(definition):
        verb = "differs" if len(different) == 1 else "differ"
        raise RequestConflict(
            f"task {task.task_id} exists with another definition: {', '.join(different)} {verb}. "
            "Use another taskId, or the same definition",
            {"existing": task.definition.to_wire(), "given": definition.to_wire()},
        )
    return _created(task)


def schedule(task: Task, now: datetime) -> Outcome:
    """An unscheduled task is pending, any other stays as it is. Raises RequestConflict past the deadline."""
    _check_deadline(task, now)
    return _now_pending(task if task.runs else task.with_new_run("scheduled", now))


def satisfy(task: Task, required_id: str, now: datetime) -> Outcome:
    """The task waits no longer for that one; where it waited for no other, it is pending."""
    if required_id not in task.waits_for:
        return Outcome(task)
    task = replace(task, waits_for=tuple(one for one in task.waits_for if one != required_id))
    if task.runs or task.waits_for or now >= task.definition.deadline:
        return Outcome(task)
    return _now_pending(task.with_new_run("scheduled", now))


def is_satisfied(requires: str, required: Task) -> bool:
    """Whether a task that depends on this one need wait no longer."""
    return required.state == "completed" if requires == "all-completed" else required.is_resolved


def rerun(task: Task, now: datetime) -> Outcome:
    """A resolved task is pending again, with all its retries; any other stays as it is.
    Raises RequestConflict past the deadline, and where all its runs are used up.
    """
    _check_deadline(task, now)
    if not task.is_resolved:
        return _now_pending(task)
    room = MAX_RUNS - len(task.runs)
    if room <= 0:
        raise _conflict(task, f"it has had {MAX_RUNS} runs, the most that are ever created for one task")
    task = replace(task, retries_left=min(task.definition.retries, room - 1))
    return _now_pending(task.with_new_run("rerun", now))


def claim(
    task: Task,
    run_id: int,
    worker: Worker,
    proof: MessageLease | None,
    message_id: str | None,
    claim_timeout: timedelta,
    now: datetime,
) -> Outcome:
    """The worker holds the run until takenUntil, and the message for the next run is held as long.

    ``proof`` is the message that brought the worker here, where it may be changed; ``message_id`` its id
    where the worker told it. A message for the run after the last one is the held message of an expired
    claim, or what a crash between holding and writing left: see docs/explanation/held-message.md.
    Where both came together, the claim that crashed being one of an expired run, it is one further ahead.
    Raises ResourceNotFound, RequestConflict, or ServiceUnavailable for a clock that is ahead of ours.
    """
    _check_deadline(task, now)
    last = task.last_run
    retried: tuple[Event, ...] = ()
    if last and run_id in (len(task.runs), len(task.runs) + 1):
        if last.state == "running":
            _check_expired(task, last, message_id, now)
            task = _resolve_last(task, "exception", "claim-expired", now)
            if task.state != "pending":
                refusal = _conflict(task, "its claim expired and no retries are left")
                return replace(_resolved(task), refusal=refusal)
            retried = (task_event("task-pending", task),)
        elif last.is_resolved:
            raise _conflict(task, f"it was resolved as {last.state} ({last.reason_resolved})")
        run_id = len(task.runs) - 1
    run = task.run(run_id)
    if run.state == "running" and run.worker == worker and not _has_expired(run, now):
        return Outcome(task, events=(task_event("task-running", task),))  # the first answer was lost
    if run.state != "pending":
        raise _conflict(task, _as_it_is(run))
    taken_until = now + claim_timeout
    task = task.with_last_run(state="running", worker=worker, taken_until=taken_until, started=now)
    return replace(_held(task, proof, now), events=(*retried, task_event("task-running", task)))


def reclaim(task: Task, run_id: int, claim_timeout: timedelta, now: datetime) -> Outcome:
    """The claim lasts for another ``claim_timeout`` from now. Raises ResourceNotFound, RequestConflict."""
    run = task.run(run_id)
    if run.state != "running":
        raise _conflict(task, f"{_as_it_is(run)}, only a running run can be reclaimed")
    if _has_expired(run, now):
        raise _conflict(task, f"the claim on run {run_id} ended at {format_time(run.taken_until or now)}")
    _check_deadline(task, now)
    extended = now + claim_timeout
    taken_until = max(extended, run.taken_until or extended)
    return _held(task.with_last_run(taken_until=taken_until), task.held, now)


def resolve(task: Task, run_id: int, state: str, reason: str, now: datetime) -> Outcome:
    """The run ends as ``state`` for ``reason``; what may be retried is, while there is time and retries left.
    Raises ResourceNotFound; RequestConflict for a run that no worker holds, or that ended otherwise.
    """
    run = task.run(run_id)
    if run.is_resolved and run.worker and (run.state, run.reason_resolved) == (state, reason):
        if run_id == len(task.runs) - 1:
            return _resolved(task)
        return _now_pending(task) if run_id == len(task.runs) - 2 else Outcome(task)
    if run.state != "running":
        raise _conflict(task, f"{_as_it_is(run)}, only a running run can be reported {state}")
    return _ended(task, state, reason, now)


def cancel(task: Task, now: datetime) -> Outcome:
    """The task ends as exception/canceled, unless it has ended. Raises RequestConflict past the deadline."""
    _check_deadline(task, now)
    if task.is_resolved:
        return _resolved(task) if task.runs[-1].reason_resolved == "canceled" else Outcome(task)
    return _ended(task, "exception", "canceled", now)


def expire(task: Task, now: datetime) -> Outcome:
    """What ends by time: from its deadline on, a task that is not resolved is exception/deadline-exceeded;
    before that, a run whose takenUntil has passed is exception/claim-expired, and retried while there are
    retries left. Otherwise nothing changes.
    """
    if task.is_resolved:
        return Outcome(task)
    if now >= task.definition.deadline:
        return _ended(task, "exception", "deadline-exceeded", now)
    if task.runs and _has_expired(task.runs[-1], now):
        return _ended(task, "exception", "claim-expired", now)
    return Outcome(task)


def change_priority(task: Task, priority: str, now: datetime) -> Outcome:
    """The task has that priority from now on: its pending run is offered in the queue of that priority, and
    the message for the run after a running one is held there. What the other queue holds is a stray double.
    Raises RequestConflict for a task that is resolved, and past the deadline.
    """
    _check_deadline(task, now)
    if task.is_resolved:
        raise _conflict(task, f"it is resolved ({task.state}): only the priority of others can be changed")
    if priority == task.priority:
        events = (priority_changed(task, task.priority_changes[-1]),) if task.priority_changes else ()
        return replace(_now_pending(task), events=events)
    change = PriorityChange(task.priority, priority, now)
    changes = (*task.priority_changes, change)[-MAX_PRIORITY_CHANGES:]
    changed = replace(task, priority_changes=changes, held=None)
    events = (priority_changed(changed, change),)
    if task.state != "running":
        return replace(_now_pending(changed), events=events)
    after = DeleteMessage(task.held, task.work_queue) if task.held else None
    return replace(_held(changed, None, now), after=after, events=events)


def release_claim(task: Task, run_id: int, worker: Worker, taken_until: datetime) -> Outcome:
    """The run is pending as before that very claim, and the held message visible again; where it was resolved
    or reclaimed, nothing changes. Source: docs/explanation/protocols.md#claimwork.
    """
    last = task.last_run
    claim = run_id, "running", worker, taken_until
    if last is None or (last.run_id, last.state, last.worker, last.taken_until) != claim:
        return Outcome(task)
    pending = task.with_last_run(state="pending", worker=None, taken_until=None, started=None)
    return _now_pending(replace(pending, held=None), task.held)


def _created(task: Task) -> Outcome:
    """There is a task, pending or unscheduled; or it was asked for again."""
    pending = _now_pending(task)
    return Outcome(task, after=pending.after, events=(task_event("task-defined", task), *pending.events))


def _now_pending(task: Task, held: MessageLease | None = None) -> Outcome:
    """The task has a new run, offered by the held message, or is pending as before; else nothing is to do."""
    if task.state != "pending":
        return Outcome(task)
    return Outcome(task, after=Offer(len(task.runs) - 1, held), events=(task_event("task-pending", task),))


def _resolved(task: Task, held: MessageLease | None = None) -> Outcome:
    """The task has ended, and others may wait for that; nothing needs the held message."""
    after = DeleteMessage(held, task.work_queue) if held else None
    return Outcome(task, after=after, events=(task_event(f"task-{task.state}", task),))


def _ended(task: Task, state: str, reason: str, now: datetime) -> Outcome:
    """The last run is resolved, of a task without runs a new one: the task with it, or a retry follows."""
    if not task.runs:
        task = task.with_new_run("exception", now)
    ended = _resolve_last(task, state, reason, now)
    return _now_pending(ended, task.held) if ended.state == "pending" else _resolved(ended, task.held)


def _check_deadline(task: Task, now: datetime) -> None:
    if now >= task.definition.deadline:
        raise _conflict(task, f"its deadline {format_time(task.definition.deadline)} has passed")


def _check_expired(task: Task, run: Run, message_id: str | None, now: datetime) -> None:
    """The claim on the run has ended, as somebody expects who has the message for the next."""
    if _has_expired(run, now):
        return
    claimed = f"run {run.run_id} is claimed until {format_time(run.taken_until or now)}"
    if message_id is not None and task.held and message_id != task.held.message_id:
        raise _conflict(task, f"{claimed}; this message is a stray double")
    raise ServiceUnavailable(f"task {task.task_id}: {claimed}, try again then")


def _resolve_last(task: Task, state: str, reason: str, now: datetime) -> Task:
    task = replace(task.with_last_run(state=state, reason_resolved=reason, resolved=now), held=None)
    may_retry = task.retries_left > 0 and len(task.runs) < MAX_RUNS and now < task.definition.deadline
    if reason in RETRIED and may_retry:
        task = replace(task, retries_left=task.retries_left - 1).with_new_run(RETRIED[reason], now)
    return task


def _held(task: Task, lease: MessageLease | None, now: datetime) -> Outcome:
    """The message for the next run is held until takenUntil. A message ends at the deadline, and Azure hides
    none up to its end: where takenUntil is nearly as late, nothing is held. The deadline ends the task.
    """
    run = task.runs[-1]
    until = run.taken_until or now
    room = task.definition.deadline - now - _EXPIRY_MARGIN
    if timedelta(seconds=whole_seconds(until - now)) < room:
        return Outcome(task, hold=Hold(run.run_id + 1, until, lease))
    return Outcome(replace(task, held=None), after=DeleteMessage(lease, task.work_queue) if lease else None)


def _has_expired(run: Run, now: datetime) -> bool:
    return run.taken_until is not None and now >= run.taken_until


def _as_it_is(run: Run) -> str:
    return f"run {run.run_id} is {run.state}" + (f" ({run.reason_resolved})" if run.is_resolved else "")


def _conflict(task: Task, why: str) -> QueueError:
    return RequestConflict(f"task {task.task_id}: {why}", {"status": task.status()})
