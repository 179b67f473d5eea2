"""Workers among faults, kills, wrong messages and time that moves; then the invariants."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from legacy_queue.conform.log import POLL, RUN_CALLS, Log, spoken_protocol
from legacy_queue.conform.observed_queue import POOL, WORKER_IDS, ObservedQueue, Payloads
from legacy_queue.conform.report import Report, judge
from legacy_queue.conform.rules import CLAIMWORK, PROTOCOLS, Findings, Rule, late_calls, rule
from legacy_queue.domain.story import requester
from legacy_queue.testing.queue_http import RequestFailed

_TASKS = 200
_KINDS = ("completes",) * 6 + ("fails", "malformed", "runs", "runs")
_CALLS = ("pollTaskUrls", POLL, "azure.delete", "claimTask", "claimWork", *RUN_CALLS)
_EFFECTS = ({"status": 500}, {"status": 503}, {"drop": "before"}, {"drop": "after"}, {"delay": "500ms"})
_OF_MESSAGES = ({"double": True}, {"lose": True}, {"stale": True})
_MESSAGES: Sequence[Any] = ("poisoned", "forged", "doubled")
_RESOLVED = ("completed", "failed", "exception")
_ROUNDS = 10  # without a change, after which a task is stuck
_ROUND = 3.0  # seconds

Progress = Callable[[int, int, str], object]  # called with how many are done, of how many, and of what
INVARIANTS: list[Rule] = []


def _fault(queue: ObservedQueue, random: Random, _: Sequence[str]) -> None:
    effect: Any = random.choice(_EFFECTS)
    queue.fault(random.choice(_CALLS), times=random.randint(1, 3), **effect)


def _faulty_message(queue: ObservedQueue, random: Random, _: Sequence[str]) -> None:
    effect: Any = random.choice(_OF_MESSAGES)
    queue.fault(POLL, times=1, **effect)


def _message(queue: ObservedQueue, random: Random, tasks: Sequence[str]) -> None:
    kind = random.choice(_MESSAGES)
    task_id = None if kind == "poisoned" else random.choice(tasks)
    with suppress(RequestFailed):  # the task is resolved
        queue.put_message(kind, task_id, task_queue_id=POOL)


def _cancel(queue: ObservedQueue, random: Random, tasks: Sequence[str]) -> None:
    with suppress(RequestFailed):  # it is resolved
        queue.cancel(random.choice(tasks))


def _kill(queue: ObservedQueue, random: Random, _: Sequence[str]) -> None:
    queue.kill(random.choice(WORKER_IDS))


def _terminate(queue: ObservedQueue, random: Random, _: Sequence[str]) -> None:
    queue.stop(random.choice(WORKER_IDS))


def _advance(queue: ObservedQueue, random: Random, _: Sequence[str]) -> None:
    queue.advance(random.randint(1, 300))


_STEPS = (_fault, _fault, _fault, _faulty_message, _message, _cancel, _kill, _terminate, _advance, _advance)


def torture(command: Sequence[str], payloads: Payloads, seed: int, steps: int, progress: Progress) -> Report:
    """Whether two workers keep the invariants in so many random steps, which are the same for a seed.

    If not, the report has the shortest story of a task that shows it. ``progress`` is as for ``conform``.
    """
    begun = time.monotonic()
    random = Random(seed)  # noqa: S311 - it must be repeatable
    tasks: list[str] = []
    with ObservedQueue("torture", command, payloads, {}) as queue:
        for step in range(1, steps + 1):
            while len(tasks) < _TASKS * step / steps:
                tasks.append(queue.new_task(random.choice(_KINDS), timedelta(seconds=2 * random.random())))
            what = random.choice(_STEPS)
            queue.start(*WORKER_IDS)
            what(queue, random, tasks)
            progress(step, steps, f"steps: {what.__name__.strip('_')}")
            time.sleep(random.random() / 2)
        queue.remove_faults()
        states: dict[str, str] = {}
        rounds = 0  # without a change
        while rounds < _ROUNDS and not (states and {*states.values()} <= {*_RESOLVED}):
            queue.start(*WORKER_IDS)
            time.sleep(_ROUND)
            before = states
            states = {task_id: queue.status(task_id)["state"] for task_id in tasks}
            rounds = rounds + 1 if states == before else 0
            progress(sum(state in _RESOLVED for state in states.values()), len(tasks), "tasks are resolved")
            if rounds > _ROUNDS / 2 or (rounds and "running" not in states.values()):
                queue.advance("11m")  # the sweeper offers a run again whose message was lost
        log = queue.log(states)
        report = judge(spoken_protocol(log.requests), [log], INVARIANTS, time.monotonic() - begun)
        broken = [verdict for verdict in report.verdicts if verdict.is_broken]
        shown = {request.wire.get("taskId") for verdict in broken for _, request in verdict.evidence}
        stories = [queue.story(task_id) for task_id in shown if task_id]
        return replace(report, troubles=sorted(stories, key=len)[:1], lives=queue.lives(filter(None, shown)))


@rule("must", PROTOCOLS, CLAIMWORK, INVARIANTS)
def every_task_ends(log: Log) -> Findings:
    """If a worker fails to `reclaimTask` the _run_ will be resolved _exception_, and a new _pending_ run will
    be created if retries haven't be exhausted.

    Go on after each failure: claim what is pending.
    """
    for task_id, state in log.tasks.items():
        calls = [call for call in log.requests if call.wire.get("taskId") == task_id]
        yield state in _RESOLVED, calls[-1:]


@rule("must", PROTOCOLS, CLAIMWORK, INVARIANTS)
def none_runs_after_its_cancel(log: Log) -> Findings:
    """If an attempt to call `reclaimTask` returns `409`, [...] the worker should halt execution, cleanup, and
    forget all about the task.

    Send nothing about a run after a 409 of reclaimTask.
    """
    for cancel in log.of("cancelTask"):
        task_id = cancel.wire["taskId"]
        reclaims = [call for call in log.after(cancel, "reclaimTask") if call.wire.get("taskId") == task_id]
        if cancel.was_done:
            found = [(call, *late_calls(log, call)) for call in reclaims if call.status == 409]
            broken = [[call, *late[:1]] for call, late, is_broken in found if is_broken]
            yield not broken, [cancel, *(broken[0] if broken else [])]


@rule("must", PROTOCOLS, CLAIMWORK, INVARIANTS)
def none_is_reported_by_two(log: Log) -> Findings:
    """the worker current holds an exclusive lock on the task

    Report a run only while its claim is held.
    """
    for claim in log.claims:
        reports = log.reports(claim.run)
        yield len({(requester(report.wire), report.call) for report in reports}) < 2, reports
