"""The life of a task: every change of state that there is.

    unscheduled -> pending -> running -> completed | failed | exception

as runs with ids from 0, of which only the last can be pending or running. While run R is running, the
message for R+1 is held: invisible until takenUntil, so that whoever polls after that finds it and the
claim expires without anybody watching.

Each transition is an *ensure*: repeated with the same facts it gives the same task, and asks again for the
same messages, so that a crash heals when the request is repeated. Source: design/protocol.md.
"""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from legacy_queue.domain.definition import TaskDefinition
from legacy_queue.domain.errors import QueueError, RequestConflict, ServiceUnavailable
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.outcome import After, Hold, Offer, Outcome, Release, Withdraw
from legacy_queue.domain.task import Run, Task, Worker
from legacy_queue.domain.times import format_time, whole_seconds

# reasonResolved of an exception -> reasonCreated of the run that follows while there are retries left
RETRIED = {"claim-expired": "retry", "worker-shutdown": "retry", "intermittent-task": "task-retry"}

# Azure refuses an invisibility that reaches the end of a message's time to live. That end was counted when
# the message was put, in whole seconds; two seconds cover both roundings.
_EXPIRY_MARGIN = timedelta(seconds=2)


def create(task_id: str, definition: TaskDefinition, now: datetime) -> Outcome:
    """A new task is pending with run 0."""
    task = Task(task_id, definition, definition.retries).with_new_run("scheduled", now)
    return Outcome(task, after=_offer_again(task))


def create_again(task: Task, definition: TaskDefinition) -> Outcome:
    """The same definition changes nothing and offers a pending run again; another is a RequestConflict."""
    existing, given = dict(task.definition.wire), dict(definition.wire)
    # as JSON: 1 and true are equal to Python
    different = [name for name in sorted(given) if _json(given[name]) != _json(existing.get(name))]
    if different:
        raise RequestConflict(
            f"task {task.task_id} exists with another definition: {', '.join(different)} differ. "
            "Use another taskId, or the same definition",
            {"existing": existing, "given": given},
        )
    return Outcome(task, after=_offer_again(task))


def claim(
    task: Task,
    run_id: int,
    worker: Worker,
    presented: Lease | None,
    message_id: str | None,
    claim_timeout: timedelta,
    now: datetime,
) -> Outcome:
    """The worker holds the run until takenUntil, and the message for the next run is held as long.

    ``presented`` is the message that brought the worker here, where it may be changed; ``message_id`` its id
    where the worker told it. A message for the run after the last one is the held message of an expired
    claim, or what a crash between holding and writing left: see design/protocol.md, "The held message".
    Where both came together, the claim that crashed being one of an expired run, it is one further ahead.

    Raises ResourceNotFound, RequestConflict, or ServiceUnavailable for a clock that is ahead of ours.
    """
    if now >= task.definition.deadline:
        raise _conflict(task, f"its deadline {format_time(task.definition.deadline)} has passed")
    last = task.last_run
    if last and run_id in (len(task.runs), len(task.runs) + 1):
        if last.state == "running":
            task = _expire_when_due(task, last, message_id, now)
            if task.state != "pending":
                return Outcome(task, refusal=_conflict(task, "its claim expired and no retries are left"))
        elif last.is_resolved:
            raise _conflict(task, f"it was resolved as {last.state} ({last.reason_resolved})")
        run_id = len(task.runs) - 1
    run = task.run(run_id)
    if run.state == "running" and run.worker == worker and not _has_expired(run, now):
        return Outcome(task)  # the answer to the first request was lost
    if run.state != "pending":
        raise _conflict(task, _as_it_is(run))
    taken_until = min(now + claim_timeout, task.definition.deadline)
    task = task.with_last_run(state="running", worker=worker, taken_until=taken_until, started=now)
    return _held(task, presented, now)


def reclaim(task: Task, run_id: int, claim_timeout: timedelta, now: datetime) -> Outcome:
    """The claim lasts for another ``claim_timeout`` from now. Raises ResourceNotFound, RequestConflict."""
    run = task.run(run_id)
    if run.state != "running":
        raise _conflict(task, f"{_as_it_is(run)}, only a running run can be reclaimed")
    if _has_expired(run, now):
        raise _conflict(task, f"the claim on run {run_id} ended at {_taken_until(run)}")
    extended = min(now + claim_timeout, task.definition.deadline)
    taken_until = max(extended, run.taken_until or extended)
    return _held(task.with_last_run(taken_until=taken_until), task.held, now)


def resolve(task: Task, run_id: int, state: str, reason: str, now: datetime) -> Outcome:
    """The run ends as ``state`` for ``reason``; what may be retried is, while there are retries left.

    Raises ResourceNotFound; RequestConflict for a run that no worker holds, or that ended otherwise.
    """
    run = task.run(run_id)
    if run.is_resolved and run.worker and (run.state, run.reason_resolved) == (state, reason):
        return Outcome(task, after=_offer_again(task) if run_id == len(task.runs) - 2 else ())
    if run.state != "running":
        raise _conflict(task, f"{_as_it_is(run)}, only a running run can be reported {state}")
    resolved = _resolve_last(task, state, reason, now)
    return Outcome(resolved, after=_let_go(task.held, resolved))


def cancel(task: Task, now: datetime) -> Outcome:
    """The task ends as exception/canceled, unless it has ended already: then nothing changes.

    Raises RequestConflict past the deadline.
    """
    if now >= task.definition.deadline:
        raise _conflict(task, f"its deadline {format_time(task.definition.deadline)} has passed")
    if task.last_run and task.last_run.is_resolved:
        return Outcome(task)
    if not task.runs:
        task = task.with_new_run("exception", now)
    canceled = _resolve_last(task, "exception", "canceled", now)
    return Outcome(canceled, after=_let_go(task.held, canceled))


def _expire_when_due(task: Task, run: Run, message_id: str | None, now: datetime) -> Task:
    """The task after its running run was found expired by somebody who has the message for the next."""
    if not _has_expired(run, now):
        if message_id is not None and task.held and message_id != task.held.message_id:
            raise _conflict(
                task, f"run {run.run_id} is claimed until {_taken_until(run)}; this message is a stray double"
            )
        raise ServiceUnavailable(
            f"task {task.task_id}: run {run.run_id} is claimed until {_taken_until(run)}, try again then"
        )
    return _resolve_last(task, "exception", "claim-expired", now)


def _resolve_last(task: Task, state: str, reason: str, now: datetime) -> Task:
    task = replace(task.with_last_run(state=state, reason_resolved=reason, resolved=now), held=None)
    if reason in RETRIED and task.retries_left > 0 and len(task.runs) < MAX_RUNS:
        task = replace(task, retries_left=task.retries_left - 1).with_new_run(RETRIED[reason], now)
    return task


def _held(task: Task, lease: Lease | None, now: datetime) -> Outcome:
    """The outcome that holds the message for the next run until takenUntil.

    So near to the deadline that Azure would refuse, nothing is held: the deadline ends the task.
    """
    run = task.runs[-1]
    until = run.taken_until or now
    room = task.definition.deadline - now - _EXPIRY_MARGIN
    if timedelta(seconds=whole_seconds(until - now)) < room:
        return Outcome(task, hold=Hold(run.run_id + 1, until, lease))
    return Outcome(replace(task, held=None), after=(Withdraw(lease),) if lease else ())


def _let_go(held: Lease | None, task: Task) -> tuple[After, ...]:
    """What becomes of a held message once the run before it is resolved."""
    if task.state == "pending":
        run_id = task.runs[-1].run_id
        return (Release(run_id, held) if held else Offer(run_id),)
    return (Withdraw(held),) if held else ()


def _offer_again(task: Task) -> tuple[After, ...]:
    return (Offer(task.runs[-1].run_id),) if task.state == "pending" else ()


def _has_expired(run: Run, now: datetime) -> bool:
    return run.taken_until is not None and now >= run.taken_until


def _as_it_is(run: Run) -> str:
    return f"run {run.run_id} is {run.state}" + (f" ({run.reason_resolved})" if run.is_resolved else "")


def _taken_until(run: Run) -> str:
    return format_time(run.taken_until) if run.taken_until else "nobody knows when"


def _conflict(task: Task, why: str) -> QueueError:
    return RequestConflict(f"task {task.task_id}: {why}", {"status": task.status()})


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
