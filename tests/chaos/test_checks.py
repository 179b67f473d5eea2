"""The checks of scripts/chaos find each kind of error in a record, and none in a correct record."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from legacy_queue.domain.times import format_time

from .checks import Promise, Statuses, contradictions, promises
from .record import Claim, Event, Record, Resolution

TASK, GROUP = "task", "group"
ENDED = 100.0

Change = Callable[[Record, dict[str, Any]], object]


def wire(time: float) -> str:
    return format_time(datetime.fromtimestamp(time, UTC))


def status() -> dict[str, Any]:
    """Run 0 was dropped by worker ``a``, run 1 completed by worker ``b``."""
    first = {
        "runId": 0,
        "state": "exception",
        "reasonCreated": "scheduled",
        "reasonResolved": "claim-expired",
    }
    first |= {"workerId": "a", "scheduled": wire(10), "started": wire(11), "resolved": wire(21)}
    second = {"runId": 1, "state": "completed", "reasonCreated": "retry", "reasonResolved": "completed"}
    second |= {"workerId": "b", "scheduled": wire(21), "started": wire(22), "resolved": wire(23)}
    return {"taskId": TASK, "state": "completed", "retriesLeft": 29, "runs": [first, second]}


def record() -> Record:
    """The record of that status; each event arrives after half a second."""
    return Record(
        groups={TASK: GROUP},
        claims=[Claim(TASK, 0, "a", 11.1, 21.0), Claim(TASK, 1, "b", 22.1, 32.0)],
        resolutions=[Resolution(TASK, 1, "b", "completed", "completed", 23.1)],
        events=[
            Event("task-defined", TASK, 10.5),
            Event("task-pending", TASK, 10.5, 0),
            Event("task-running", TASK, 11.5, 0, "a"),
            Event("task-pending", TASK, 21.5, 1),
            Event("task-running", TASK, 22.5, 1, "b"),
            Event("task-completed", TASK, 23.5, 1, "b"),
            Event("task-group-resolved", GROUP, 23.5),
        ],
    )


def kept(record: Record, statuses: Statuses) -> dict[str, float | None]:
    return {promise.what: promise.kept for promise in promises(record, statuses, ENDED)}


def test_a_correct_record_keeps_all_promises_and_has_no_contradiction() -> None:
    assert list(promises(record(), {TASK: status()}, ENDED)) == [
        Promise(TASK, "resolved", ENDED, 23.0),
        Promise(TASK, "task-defined", 10.0, 10.5),
        Promise(TASK, "task-pending of run 0", 10.0, 10.5),
        Promise(TASK, "task-running of run 0", 11.0, 11.5),
        Promise(TASK, "task-pending of run 1", 21.0, 21.5),
        Promise(TASK, "task-running of run 1", 22.0, 22.5),
        Promise(TASK, "task-completed of run 1", 23.0, 23.5),
        Promise(GROUP, "task-group-resolved", 23.0, 23.5),
    ]
    assert list(contradictions(record(), {TASK: status()})) == []


def test_a_created_task_without_a_status_is_missing() -> None:
    assert kept(record(), {}) == {"there": None}


def test_an_unresolved_task_is_missing_and_its_group_need_not_be_resolved() -> None:
    running = status()
    running |= {"state": "running", "runs": [running["runs"][0], running["runs"][1] | {"state": "running"}]}
    kept_at = kept(record(), {TASK: running})
    assert kept_at["resolved"] is None
    assert "task-completed of run 1" not in kept_at
    assert "task-group-resolved" not in kept_at


@pytest.mark.parametrize("number", range(7))
def test_each_lost_event_is_missing(number: int) -> None:
    incomplete = record()
    del incomplete.events[number]
    assert list(kept(incomplete, {TASK: status()}).values()).count(None) == 1


def test_a_group_resolved_event_before_the_last_task_does_not_count() -> None:
    early = record()
    early.events[-1] = replace(early.events[-1], at=22.9)
    assert kept(early, {TASK: status()})["task-group-resolved"] is None


def test_a_task_canceled_before_it_was_pending_needs_no_pending_event() -> None:
    run = {"runId": 0, "state": "exception", "reasonCreated": "exception", "reasonResolved": "canceled"}
    run |= {"scheduled": wire(10), "resolved": wire(10)}
    kept_at = kept(record(), {TASK: {"state": "exception", "runs": [run]}})
    assert list(kept_at) == ["resolved", "task-defined", "task-exception of run 0", "task-group-resolved"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda r, _: r.refusals.append((TASK, "was answered 500")), "was answered 500"),
        (
            lambda _, s: s["runs"][1].update(reasonResolved="canceled", state="exception"),
            "run 1 was answered as ('completed', 'completed', 'b'), but is ('exception', 'canceled', 'b')",
        ),
        (lambda _, s: s["runs"].pop(), "run 1 was answered as ('completed', 'completed', 'b'), but is"),
        (lambda r, _: r.claims.append(Claim(TASK, 1, "c", 22.2, 32.0)), "run 1 was given to b and c"),
        (lambda _, s: s["runs"][0].update(workerId="c"), "run 0 was given to a, but has c"),
        (
            lambda r, _: r.claims.append(Claim(TASK, 0, "a", 12.0, 22.0)),
            "the claim of run 0 expired 1.000 s too early",
        ),
        (lambda _, s: s.update(retriesLeft=30), "30 of 30 retries left after 1"),
        (lambda r, _: r.events.append(Event("task-running", TASK, 30, 1, "c")), "task-running of run 1 c"),
        (lambda r, _: r.events.append(Event("task-failed", TASK, 30, 1, "b")), "task-failed of run 1 b"),
        (
            lambda r, _: r.events.append(Event("task-completed", TASK, 30, 0, "a")),
            "task-completed of run 0 a",
        ),
        (lambda r, _: r.events.append(Event("task-pending", TASK, 30, 2)), "task-pending of run 2"),
        (lambda r, _: r.events.insert(0, r.events.pop(1)), "task-pending came before task-defined"),
    ],
)
def test_each_error_is_a_contradiction(change: Change, what: str) -> None:
    wrong_record, wrong_status = record(), status()
    change(wrong_record, wrong_status)
    found = list(contradictions(wrong_record, {TASK: wrong_status}))
    assert any(contradiction.what.startswith(what) for contradiction in found)
    assert {contradiction.about for contradiction in found} == {TASK}
