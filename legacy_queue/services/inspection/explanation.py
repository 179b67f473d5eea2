"""Explains in sentences for a person what a task waits for, and until when.

The sentences are derived from what is stored. Nothing is recorded for them, so they cannot disagree with the
queue. Each sentence is true at the time of its facts. If no worker or client does anything, it stops being
true at ``until``. The first sentence is the one to act on first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal

from legacy_queue.domain.call_statistics import CALLS_KEPT, Caller
from legacy_queue.domain.due import FIRST_LOOK, next_look
from legacy_queue.domain.messages import Peeked, PeekedMessage, lacks_messages
from legacy_queue.domain.states import UNRESOLVED
from legacy_queue.domain.task import Run, Task
from legacy_queue.domain.times import duration_words, format_time

_MAX_NAMES = 5  # in a sentence
_IDLE_IS_ALIVE_FOR = timedelta(minutes=5)  # for so long after its last call, an idle worker counts as alive
_SIMILAR = 0.8  # of difflib's ratio: my-wroker is 0.9 of my-worker


WaitSituation = Literal[
    "never-polled",
    "quarantined",
    "running-canceled",
    "proof-required",
    "visible",
    "behind",
    "received",
    "delayed",
    "message-missing",
    "not-shown",
    "polled",
    "claimed",
    "claim-expired",
    "dependency-failed",
    "blocked",
    "unscheduled",
    "released",
    "unpublished",
    "deadline",
    "deadline-passed",
    "resolved",
]

# what each situation says about the task, and when it ends by itself: the ``until`` of the wait
WAIT_SITUATIONS: Mapping[WaitSituation, tuple[str, str]] = {
    "never-polled": (
        "No worker or client has asked for its pool in ten days. A pool of a similar name is named.",
        "",
    ),
    "quarantined": (
        "Every worker that has claimed for its pool is quarantined.",
        "the first quarantine ends",
    ),
    "running-canceled": (
        "The workers of its pool are still running tasks that were canceled or are past their deadline.",
        "the last of these claims ends",
    ),
    "proof-required": (
        "Its pool has the policy `required`. Claims of this run lacked messageId, receipt or signature.",
        "",
    ),
    "visible": ("Its message is visible. The next poll of its pool receives it.", ""),
    "behind": ("Other messages of the same or a higher priority are delivered first.", ""),
    "received": (
        "A worker has received its message, but has not claimed the task yet.",
        "the message is visible again",
    ),
    "delayed": ("Its message is hidden, for example after a refused claim.", "the message is visible"),
    "message-missing": (
        "Its message is lost.",
        "the sweeper has offered the run again; not known on Azure if other runs have too many messages",
    ),
    "not-shown": (
        "Storage does not show its message. Azure shows 32 visible messages of a queue, a file 5,000.",
        "",
    ),
    "polled": ("This worker or client was the last to ask for work of its pool.", ""),
    "claimed": ("A worker has claimed it.", "`takenUntil`"),
    "claim-expired": ("Its claim has expired. The server or the next poll ends its run.", ""),
    "dependency-failed": (
        "A dependency did not end as the task requires, or no longer exists.",
        "",
    ),
    "blocked": ("It waits for dependencies that are not resolved yet.", ""),
    "unscheduled": ("It waits for a call of scheduleTask.", ""),
    "released": ("All its dependencies are resolved. The server is scheduling it now.", ""),
    "unpublished": ("The broker was away. Some of its events may not be published yet.", ""),
    "deadline": ("If it is not resolved before its deadline, it becomes an exception.", "its deadline"),
    "deadline-passed": ("Its deadline has passed. The server is making it an exception now.", ""),
    "resolved": ("It is resolved, and waits for nothing.", ""),
}


@dataclass(frozen=True)
class Facts:
    """What is stored about a task's dependencies, and about the messages and callers of its pool."""

    now: datetime
    # the state of each dependency that the task waits for; "" if that task does not exist
    required: Mapping[str, str]
    # the workers and clients of all pools that have called
    callers: Sequence[Caller]
    # the messages of the task's pool
    queue: Peeked
    # how many tasks of the pool need a message; None if the sweeper sees each message, and need not count
    messages_needed: int | None
    is_proof_required: bool
    # by the name of each worker of the pool: the taskId and the run that it claimed last
    last_runs: Mapping[str, tuple[str, Run]] = field(default_factory=dict)
    # whether workers poll this server, not Azure
    sees_polls: bool = True


@dataclass(frozen=True)
class Wait:
    """Something that a task waits for. Programs read ``situation``, people read ``sentence``."""

    situation: WaitSituation
    sentence: str
    until: datetime | None = None


def explain(task: Task, facts: Facts) -> list[Wait]:
    """What the task waits for. The cause to act on comes first. An unresolved task's deadline comes last."""
    run = task.last_run
    deadline = task.definition.deadline
    if run and run.is_resolved:
        return [Wait("resolved", f"R{run.summary[1:]}. The task waits for nothing any more.")]
    if facts.now >= deadline:
        return [Wait("deadline-passed", "Its deadline has passed. The server is making it an exception now.")]
    if run is None:
        waits = [*_unscheduled(task, facts)]
    elif run.state == "running":
        waits = [_running(task, run, facts.now)]
    else:
        waits = [*_obstacles(task, run, facts), _message(task, run, facts), *_last_call(task, facts)]
    if task.is_unpublished:
        waits.append(Wait("unpublished", "The broker was away. Some of its events may not be published yet."))
    left = _left(deadline - facts.now)
    ends = f"If it is not resolved in the next {left}, its deadline makes it an exception."
    return [*waits, Wait("deadline", ends, deadline)]


def _unscheduled(task: Task, facts: Facts) -> Iterator[Wait]:
    requires = task.definition.requires
    others = {task_id: state for task_id, state in facts.required.items() if task_id != task.task_id}
    going_on = {task_id: state for task_id, state in others.items() if state in UNRESOLVED}
    # these did not end as the task requires
    wrong = {
        task_id: state or "no longer exists"
        for task_id, state in others.items()
        if not state or (requires == "all-completed" and state in ("failed", "exception"))
    }
    if wrong:
        end = requires.removeprefix("all-")
        why = f"All its dependencies must be {end}, but these will not be: {_states(wrong)}."
        why = f"{why} Rerun them, or call scheduleTask for this task."
        yield Wait("dependency-failed", why)
    if going_on:
        yield Wait("blocked", f"It waits for {len(going_on)} of its dependencies: {_states(going_on)}.")
    if task.task_id in task.waits_for:
        yield Wait("unscheduled", "It was defined, and waits for a call of scheduleTask.")
    elif not wrong and not going_on:
        yield Wait("released", "All its dependencies are resolved. The server is scheduling it now.")


def _states(states: Mapping[str, str]) -> str:
    shown = [f"{task_id} ({state})" for task_id, state in list(states.items())[:_MAX_NAMES]]
    more = f" and {len(states) - _MAX_NAMES} more" if len(states) > _MAX_NAMES else ""
    return ", ".join(shown) + more


def _running(task: Task, run: Run, now: datetime) -> Wait:
    worker = f"{run.worker.worker_group}/{run.worker.worker_id}" if run.worker else "a worker"
    until = run.taken_until or now
    end = "is pending again" if task.retries_left else "becomes an exception: it has no retries left"
    if until >= task.definition.deadline:
        end = "has reached its deadline"
    if run.has_expired(now):
        why = f"The claim of {worker} on run {run.run_id} expired at {format_time(until)}."
        return Wait("claim-expired", f"{why} When the server notices, or a worker polls, the task {end}.")
    why = f"{worker} has claimed run {run.run_id}. If it does not reclaim or report the run"
    return Wait("claimed", f"{why} in the next {_left(until - now)}, the task {end}.", until)


def _obstacles(task: Task, run: Run, facts: Facts) -> Iterator[Wait]:
    """What keeps the workers of a pending task from claiming it."""
    pool = task.work_queue.task_queue_id
    callers = _callers(task, facts)
    if not callers:
        asked = {caller.task_queue_id for caller in facts.callers}
        yield Wait("never-polled", never_polled(pool, tuple(sorted(asked))))
    workers = [caller for caller in callers if caller.worker]
    ends = [until for caller in workers if (until := caller.quarantined_until(facts.now))]
    if workers and len(ends) == len(workers):
        names = ", ".join(caller.name for caller in workers[:_MAX_NAMES])
        until = min(ends)
        why = f"Every worker that has claimed for {pool} is quarantined: {names}."
        yield Wait("quarantined", f"{why} The first quarantine ends at {format_time(until)}.", until)
    yield from _running_canceled(pool, workers, facts)
    refused = _refused(workers, run.scheduled)
    if facts.is_proof_required and refused:
        names = ", ".join(refused[:_MAX_NAMES])
        why = f"Workers of {pool} must present the message that they polled (policy required). Since this run"
        why = f"{why} became pending, these claims were refused: {names}."
        yield Wait("proof-required", why)


@lru_cache(10_000)  # an overview of many pools asks for the same sentences again and again
def never_polled(pool: str, asked: tuple[str, ...]) -> str:
    """The sentence for a pool that nobody has asked for. ``asked`` are the pools that somebody asked for."""
    near = get_close_matches(pool, asked, 1, _SIMILAR)
    why = f"No worker has asked for {pool} in the last {CALLS_KEPT.days} days."
    return why + (f" Workers ask for {near[0]}." if near else "")


def _running_canceled(pool: str, workers: Sequence[Caller], facts: Facts) -> Iterator[Wait]:
    """Names the workers that still run canceled tasks, unless another worker may come."""
    shown: list[str] = []
    ends: list[datetime] = []
    for caller in workers:
        task_id, run = facts.last_runs.get(caller.name, ("", None))
        if run and run.state == "running":
            return
        resolved, until = (run.resolved, run.taken_until) if run else (None, None)
        is_canceled = run and run.reason_resolved in ("canceled", "deadline-exceeded")
        if is_canceled and resolved and until and caller.last_call <= resolved and facts.now < until:
            shown.append(f"{caller.name} runs {task_id}")
            ends.append(until)
        elif facts.now - caller.last_call < _IDLE_IS_ALIVE_FOR:
            return
    if shown:
        what = "tasks that were canceled or are past their deadline"
        why = f"The workers of {pool} are still running {what}: {', '.join(shown[:_MAX_NAMES])}."
        yield Wait("running-canceled", f"{why} They learn this at their next reclaim or report.", max(ends))


def _refused(workers: Sequence[Caller], since: datetime) -> list[str]:
    """``group/id without receipt`` for each worker whose claims since then lacked a field."""
    return [
        f"{caller.name} without {', '.join(missing)}"
        for caller in workers
        for (_, missing), calls in caller.statistics.calls.items()
        if missing and calls.last >= since
    ]


def _message(task: Task, run: Run, facts: Facts) -> Wait:
    """Says where the message of the pending run is."""
    mine = (task.task_id, run.run_id)
    messages = facts.queue.messages
    found = [number for number, message in enumerate(messages) if message.run == mine]
    if not found and facts.queue.hidden:
        why = "Storage does not show its message: a worker has received it, or many others come first."
        return Wait("not-shown", why)
    if not found:
        needed = facts.messages_needed
        if needed is not None and not lacks_messages(needed, len(messages)):
            why = "Its message is missing. Other runs have more messages than they need. After workers have"
            return Wait("message-missing", f"{why} received those, the sweeper offers the run again.")
        # the sweeper looks within ten minutes after that time
        latest = next_look(run.scheduled, facts.now) + FIRST_LOOK
        why = f"Its message is missing. The sweeper offers the run again by {format_time(latest)}."
        return Wait("message-missing", why, latest)
    # if it has several messages: the one that a worker receives first
    number = min(found, key=lambda number: messages[number].visible_in)
    message = messages[number]
    if message.visible_in > timedelta(0):
        return _hidden(message, facts.now)
    before = sum(not other.visible_in for other in messages[:number])
    if before:
        count = "1 other message" if before == 1 else f"{before} other messages"
        are = "is" if before == 1 else "are"
        why = f"{count} of priority {message.priority} or higher {are} delivered before its own."
        return Wait("behind", why)
    return Wait("visible", "Its message is visible. The next poll of its pool receives it.")


def _hidden(message: PeekedMessage, now: datetime) -> Wait:
    until = now + message.visible_in
    left = _left(message.visible_in)
    if not message.dequeue_count:
        return Wait("delayed", f"Its message is hidden. A worker can receive it in {left}.", until)
    times = "once" if message.dequeue_count == 1 else f"{message.dequeue_count} times"
    why = f"A worker has received its message ({times} so far), but has not claimed the task yet."
    return Wait("received", f"{why} The message is visible again in {left}.", until)


def _last_call(task: Task, facts: Facts) -> Iterator[Wait]:
    callers = _callers(task, facts)
    if callers:
        last = max(callers, key=lambda caller: caller.last_call)
        ago = _left(facts.now - last.last_call)
        pool = task.work_queue.task_queue_id
        unseen = "" if facts.sees_polls else " Polls of Azure do not count: this server does not see them."
        yield Wait("polled", f"{last.name} was the last to ask for work of {pool}, {ago} ago.{unseen}")


def _left(duration: timedelta) -> str:
    return duration_words(max(0.0, duration.total_seconds()))


def _callers(task: Task, facts: Facts) -> list[Caller]:
    return [caller for caller in facts.callers if caller.task_queue_id == task.work_queue.task_queue_id]
