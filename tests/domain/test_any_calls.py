"""Whatever is called, in whatever order, a task keeps its promises.

tests/simulation shows the same with several servers that work concurrently and fail.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.events import EVER, Event, events_since
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.outcome import Outcome
from legacy_queue.domain.task import Task, Worker
from tests.domain.sample_tasks import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HELD,
    HOUR,
    MINUTE,
    MS,
    NOW,
    OTHER_ID,
    POLLED,
    TASK_ID,
    definition,
)

Act = Callable[[Task, datetime], Outcome]
RETRIES = 2


def claim(run_id: int, worker: Worker) -> Act:
    return lambda task, now: transitions.claim(
        task, run_id, worker, POLLED, HELD.message_id, CLAIM_TIMEOUT, now
    )


def report(run_id: int, state: str, reason: str) -> Act:
    return lambda task, now: transitions.resolve(task, run_id, state, reason, now)


def acts(task: Task, worker: Worker) -> Mapping[str, Act]:
    """The calls that a client can make when it sees the task in this state."""
    run_id = max(0, len(task.runs) - 1)
    until = (task.last_run and task.last_run.taken_until) or NOW
    return {
        "claim": claim(run_id, worker),
        "claim the next run": claim(run_id + 1, worker),
        "reclaim": lambda task, now: transitions.reclaim(task, run_id, CLAIM_TIMEOUT, now),
        "completed": report(run_id, "completed", "completed"),
        "worker-shutdown": report(run_id, "exception", "worker-shutdown"),
        "release": lambda task, _: transitions.release_claim(task, run_id, worker, until),
        "cancel": transitions.cancel,
        "expire": transitions.expire,
        "rerun": transitions.rerun,
        "schedule": transitions.schedule,
        "satisfy": lambda task, now: transitions.satisfy(task, OTHER_ID, now),
        "raise": lambda task, now: transitions.change_priority(task, "high", now),
        "lower": lambda task, now: transitions.change_priority(task, "low", now),
    }


STEPS = st.tuples(
    st.sampled_from([*acts(Task(TASK_ID, definition(), 0, ()), ALICE)]),
    st.sampled_from([ALICE, BOB]),
    st.sampled_from([MS, MS, MINUTE, CLAIM_TIMEOUT, 11 * HOUR]),
)


def names(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """The events in the order in which each arrives for the first time."""
    words = ("runId", "oldPriority", "newPriority")
    return [*dict.fromkeys((event.exchange, *map(event.payload.get, words)) for event in events)]


def check_changed(before: Task, after: Task, now: datetime, call: str) -> None:
    assert len(after.runs) >= len(before.runs)
    for was, run in zip(before.runs, after.runs, strict=False):
        assert run == was or not was.is_resolved
        if was.state == "running" and call != "release":
            assert run.worker == was.worker
            assert (run.taken_until or NOW) >= (was.taken_until or NOW)
            assert run.reason_resolved != "claim-expired" or was.has_expired(now)
    assert all(run.started != now or now < NOW + DAY for run in after.runs)


def check_runs(task: Task) -> None:
    assert [run.run_id for run in task.runs] == [*range(len(task.runs))]
    assert all(run.is_resolved for run in task.runs[:-1])
    reruns = [run.run_id for run in task.runs if run.reason_created == "rerun"]
    first = max(reruns, default=0)
    retries = sum(run.reason_created in ("retry", "task-retry") for run in task.runs[first:])
    assert task.retries_left == min(RETRIES, MAX_RUNS - first - 1) - retries >= 0


@settings(max_examples=1000)
@given(st.booleans(), st.lists(STEPS, max_size=30))
def test_after_any_calls_the_runs_are_valid_and_after_a_crash_the_same_events_would_be_published(
    waits: bool, steps: Sequence[tuple[str, Worker, timedelta]]
) -> None:
    now = NOW
    outcome = transitions.create(TASK_ID, definition(retries=RETRIES), [OTHER_ID] * waits, now)
    task, published = outcome.task, [*outcome.events]
    for call, worker, wait in steps:
        now += wait
        act = acts(task, worker)[call]
        try:
            outcome = act(task, now)
        except QueueError:
            continue
        after = replace(outcome.task, held=HELD) if outcome.hold else outcome.task
        check_changed(task, after, now, call)
        check_runs(after)
        if call == "release" and after != task:
            # the claim was released before its event was published
            released = ("task-running", task.runs[-1].run_id)
            published = [it for it in published if (it.exchange, it.payload.get("runId")) != released]
        published += outcome.events
        assert names(published) == names(events_since(after, EVER))
        # the first call has claimed that run, so a repetition would claim another
        if call != "claim the next run":
            assert act(after, now).task == after
        task = after
