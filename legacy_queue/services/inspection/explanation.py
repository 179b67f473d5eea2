"""What a task waits for, and until when: sentences for a person, derived from what is stored.

Nothing is recorded for an explanation, so it cannot disagree with the queue. Each sentence is true at the
time of the facts; ``until`` is when it stops being true if no worker or client does anything. The first
sentence is what to act on first.
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
_MAY_COME = timedelta(minutes=5)  # after it has asked, a worker without a task is taken for alive
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

# what each says of the task, and when that ends by itself: the ``until`` of the wait
WAIT_SITUATIONS: Mapping[WaitSituation, tuple[str, str]] = {
    "never-polled": (
        "No worker or client has called for its pool in ten days; a pool of a similar name is named.",
        "",
    ),
    "quarantined": (
        "Each worker that claimed for its pool is quarantined.",
        "the first of the quarantines ends",
    ),
    "running-canceled": (
        "The workers of its pool still run a task that was canceled, or is past its deadline.",
        "the last of these claims ends",
    ),
    "proof-required": (
        "Its pool has the policy `required`; claims of this run lacked messageId, receipt or signature.",
        "",
    ),
    "visible": ("The next poll of its pool receives its message.", ""),
    "behind": ("Other messages, of its priority or a higher one, are delivered before its own.", ""),
    "received": (
        "A worker has received its message, and has not claimed the task.",
        "the message is visible again",
    ),
    "delayed": ("Its message is hidden, as after a refused claim.", "the message is visible"),
    "message-missing": (
        "Its message was lost.",
        "the sweeper has offered the run again; on Azure, if other runs have no message too many",
    ),
    "not-shown": (
        "Storage does not show its message: Azure shows the first 32 visible ones of a queue, a file 5,000.",
        "",
    ),
    "polled": ("Which worker or client asked for work of its pool last, and when.", ""),
    "claimed": ("A worker has claimed it.", "`takenUntil`"),
    "claim-expired": ("Its claim has ended: the server or the next poll ends its run.", ""),
    "dependency-failed": (
        "A dependency is resolved otherwise than the task requires, or does not exist any more.",
        "",
    ),
    "blocked": ("It waits for dependencies that are not resolved.", ""),
    "unscheduled": ("It waits for scheduleTask.", ""),
    "released": ("Its dependencies are resolved: the server schedules it now.", ""),
    "unpublished": ("Events of it may wait for the broker.", ""),
    "deadline": ("Its deadline ends it, if nothing does before.", "its deadline"),
    "deadline-passed": ("Its deadline has passed: the server makes it an exception now.", ""),
    "resolved": ("It waits for nothing.", ""),
}


@dataclass(frozen=True)
class Facts:
    """What is stored beside a task.

    ``required`` has the state of each dependency that the task waits for, "" if there is no such task.
    ``callers`` are the workers and clients of all pools that have called, ``queue`` the messages of
    the task's pool, ``messages_needed`` how many tasks of it need a message, None where the sweeper does not
    count but sees each message. ``last_runs`` has the taskId and the run that a worker of it claimed last, by
    the worker's name. ``sees_polls``: workers poll this server, and not Azure.
    """

    now: datetime
    required: Mapping[str, str]
    callers: Sequence[Caller]
    queue: Peeked
    messages_needed: int | None
    is_proof_required: bool
    last_runs: Mapping[str, tuple[str, Run]] = field(default_factory=dict)
    sees_polls: bool = True


@dataclass(frozen=True)
class Wait:
    """Something that a task waits for; ``situation`` is its name for a program."""

    situation: WaitSituation
    sentence: str
    until: datetime | None = None


def explain(task: Task, facts: Facts) -> list[Wait]:
    """What the task waits for, the cause to act on first; of an unresolved task the last is its deadline."""
    run = task.last_run
    deadline = task.definition.deadline
    if run and run.is_resolved:
        return [Wait("resolved", f"It waits for nothing: {run.summary}.")]
    if facts.now >= deadline:
        return [Wait("deadline-passed", "Its deadline has passed: the server makes it an exception now.")]
    if run is None:
        waits = [*_unscheduled(task, facts)]
    elif run.state == "running":
        waits = [_running(task, run, facts.now)]
    else:
        waits = [*_obstacles(task, run, facts), _message(task, run, facts), *_last_call(task, facts)]
    if task.is_unpublished:
        waits.append(Wait("unpublished", "The broker was away: events of it may not be published yet."))
    left = _left(deadline - facts.now)
    ends = f"If it is not resolved before, its deadline makes it an exception in {left}."
    return [*waits, Wait("deadline", ends, deadline)]


def _unscheduled(task: Task, facts: Facts) -> Iterator[Wait]:
    requires = task.definition.requires
    others = {task_id: state for task_id, state in facts.required.items() if task_id != task.task_id}
    going_on = {task_id: state for task_id, state in others.items() if state in UNRESOLVED}
    # they have ended in another way than the required one
    wrong = {
        task_id: state or "no such task any more"
        for task_id, state in others.items()
        if not state or (requires == "all-completed" and state in ("failed", "exception"))
    }
    if wrong:
        why = f"It requires {requires}: {_states(wrong)}. A rerun of that, or scheduleTask, can schedule it."
        yield Wait("dependency-failed", why)
    if going_on:
        yield Wait("blocked", f"It waits for {len(going_on)} of its dependencies: {_states(going_on)}.")
    if task.task_id in task.waits_for:
        yield Wait("unscheduled", "It was defined, and waits for scheduleTask.")
    elif not wrong and not going_on:
        yield Wait("released", "Its dependencies have ended: the server schedules it now.")


def _states(states: Mapping[str, str]) -> str:
    shown = [f"{task_id} ({state})" for task_id, state in list(states.items())[:_MAX_NAMES]]
    more = f" and {len(states) - _MAX_NAMES} more" if len(states) > _MAX_NAMES else ""
    return ", ".join(shown) + more


def _running(task: Task, run: Run, now: datetime) -> Wait:
    worker = f"{run.worker.worker_group}/{run.worker.worker_id}" if run.worker else "a worker"
    until = run.taken_until or now
    end = "is pending again" if task.retries_left else "ends as exception, since it has no retries left"
    if until >= task.definition.deadline:
        end = "has reached its deadline"
    if run.has_expired(now):
        why = f"The claim of {worker} on run {run.run_id} ended at {format_time(until)}."
        return Wait("claim-expired", f"{why} As soon as the server looks or a worker polls, the task {end}.")
    why = f"{worker} has claimed run {run.run_id} for {_left(until - now)} more."
    return Wait("claimed", f"{why} Unless that worker reclaims it, the task then {end}.", until)


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
        why = f"Each worker that claimed for {pool} is quarantined: {names}, until {format_time(until)}"
        yield Wait("quarantined", f"{why} at the earliest.", until)
    yield from _misled(pool, workers, facts)
    refused = _refused(workers, run.scheduled)
    if facts.is_proof_required and refused:
        names = ", ".join(refused[:_MAX_NAMES])
        why = f"{pool} has the policy required, and refused claims since this run is pending: {names}."
        yield Wait("proof-required", why)


@lru_cache(10_000)  # of many pools, an overview asks it again and again
def never_polled(pool: str, asked: tuple[str, ...]) -> str:
    """The sentence for a pool without callers, where workers ask for others."""
    near = get_close_matches(pool, asked, 1, _SIMILAR)
    why = f"No worker has asked for {pool} in the last {CALLS_KEPT.days} days."
    return why + (f" Workers ask for {near[0]}." if near else "")


def _misled(pool: str, workers: Sequence[Caller], facts: Facts) -> Iterator[Wait]:
    """The workers that run what was canceled, unless another worker may come."""
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
        elif facts.now - caller.last_call < _MAY_COME:
            return
    if shown:
        what = "a task that was canceled, or is past its deadline"
        why = f"The workers of {pool} still run {what}: {', '.join(shown[:_MAX_NAMES])}."
        yield Wait("running-canceled", f"{why} They learn it by their next reclaim or report.", max(ends))


def _refused(workers: Sequence[Caller], since: datetime) -> list[str]:
    """``group/id without receipt`` of each worker whose claims since then lacked a field."""
    return [
        f"{caller.name} without {', '.join(missing)}"
        for caller in workers
        for (_, missing), calls in caller.statistics.calls.items()
        if missing and calls.last >= since
    ]


def _message(task: Task, run: Run, facts: Facts) -> Wait:
    """Where the message of the pending run is."""
    mine = (task.task_id, run.run_id)
    messages = facts.queue.messages
    found = [number for number, message in enumerate(messages) if message.run == mine]
    if not found and facts.queue.hidden:
        why = "Storage does not show its message: a worker has received it, or others are before it."
        return Wait("not-shown", why)
    if not found:
        needed = facts.messages_needed
        if needed is not None and not lacks_messages(needed, len(messages)):
            why = "Its message is missing. As other runs have more messages than they need, the sweeper"
            return Wait("message-missing", f"{why} offers it again only after workers have received those.")
        # within ten minutes after that time, the sweeper looks
        latest = next_look(run.scheduled, facts.now) + FIRST_LOOK
        why = f"Its message is missing. The sweeper offers the run again by {format_time(latest)}."
        return Wait("message-missing", why, latest)
    # of several, the one that a worker receives first
    number = min(found, key=lambda number: messages[number].visible_in)
    message = messages[number]
    if message.visible_in > timedelta(0):
        return _hidden(message, facts.now)
    before = sum(not other.visible_in for other in messages[:number])
    if before:
        count = "1 message is" if before == 1 else f"{before} messages are"
        why = f"{count} delivered before its own, of priority {message.priority} or higher."
        return Wait("behind", why)
    return Wait("visible", "Its message is visible: the next poll of its pool receives it.")


def _hidden(message: PeekedMessage, now: datetime) -> Wait:
    until = now + message.visible_in
    left = _left(message.visible_in)
    if not message.dequeue_count:
        return Wait("delayed", f"Its message is hidden for {left} more: then a worker can receive it.", until)
    times = "once" if message.dequeue_count == 1 else f"{message.dequeue_count} times"
    why = f"A worker has received its message ({times} so far) and not claimed the task yet."
    return Wait("received", f"{why} In {left} the message is visible again.", until)


def _last_call(task: Task, facts: Facts) -> Iterator[Wait]:
    callers = _callers(task, facts)
    if callers:
        last = max(callers, key=lambda caller: caller.last_call)
        ago = _left(facts.now - last.last_call)
        pool = task.work_queue.task_queue_id
        unseen = "" if facts.sees_polls else " Polls of Azure are not shown."
        yield Wait("polled", f"{last.name} was the last to ask for {pool}, {ago} ago.{unseen}")


def _left(duration: timedelta) -> str:
    return duration_words(max(0.0, duration.total_seconds()))


def _callers(task: Task, facts: Facts) -> list[Caller]:
    return [caller for caller in facts.callers if caller.task_queue_id == task.work_queue.task_queue_id]
