"""The code in ``domain/transitions.py`` does what the table at its head says, and nothing else."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.ids import MAX_RUNS
from legacy_queue.domain.outcome import DeleteMessage, Offer, Outcome
from legacy_queue.domain.task import Task, Worker
from tests.domain.sample_tasks import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    DAY,
    HELD,
    MINUTE,
    NOW,
    OTHER_ID,
    POLLED,
    TASK_ID,
    definition,
    ended,
    pending,
    running,
    unscheduled,
)

SOON, EXPIRED, LATE = NOW + MINUTE, NOW + CLAIM_TIMEOUT, NOW + DAY
CLAIMED = ("running", "expired", "no retries")


def after_50_runs() -> Task:
    run = ended().runs[0]
    return replace(ended(), runs=tuple(replace(run, run_id=number) for number in range(MAX_RUNS)))


# an example of each state, and the time of the call
EXAMPLES: Mapping[str, tuple[Task, datetime]] = {
    "unscheduled": (unscheduled(), SOON),
    "pending": (pending(), SOON),
    "running": (running(), SOON),
    "expired": (running(), EXPIRED),
    "no retries": (running(retries=0), EXPIRED),
    "resolved": (ended(), SOON),
    "canceled": (transitions.cancel(running(), NOW).task, SOON),
    "50 runs": (after_50_runs(), SOON),
    "late unscheduled": (unscheduled(), LATE),
    "late pending": (pending(), LATE),
    "late running": (running(), LATE),
    "late resolved": (ended(), LATE),
}


def claim(
    task: Task, now: datetime, ahead: int = 0, worker: Worker = ALICE, message_id: str = HELD.message_id
) -> Outcome:
    run_id = max(0, len(task.runs) - 1) + ahead
    return transitions.claim(task, run_id, worker, POLLED, message_id, CLAIM_TIMEOUT, now)


def resolve(task: Task, now: datetime, state: str, reason: str) -> Outcome:
    return transitions.resolve(task, max(0, len(task.runs) - 1), state, reason, now)


CALLS: Mapping[str, Callable[[Task, datetime], Outcome]] = {
    "create again": lambda task, _: transitions.create_again(task, task.definition),
    "create again, different": lambda task, _: transitions.create_again(task, definition(priority="high")),
    "schedule": transitions.schedule,
    "satisfy": lambda task, now: transitions.satisfy(task, OTHER_ID, now),
    "satisfy, one of several": lambda task, now: transitions.satisfy(
        replace(task, waits_for=task.waits_for and (OTHER_ID, TASK_ID)), OTHER_ID, now
    ),
    "rerun": transitions.rerun,
    "claim": claim,
    "claim, another worker": lambda task, now: claim(task, now, worker=BOB),
    "claim, next run": lambda task, now: claim(task, now, ahead=1),
    "claim, next run, duplicate": lambda task, now: claim(task, now, ahead=1, message_id="duplicate"),
    "reclaim": lambda task, now: transitions.reclaim(task, max(0, len(task.runs) - 1), CLAIM_TIMEOUT, now),
    "resolve, completed": lambda task, now: resolve(task, now, "completed", "completed"),
    "resolve, failed": lambda task, now: resolve(task, now, "failed", "failed"),
    "resolve, worker-shutdown": lambda task, now: resolve(task, now, "exception", "worker-shutdown"),
    "cancel": transitions.cancel,
    "expire": transitions.expire,
    "change priority": lambda task, now: transitions.change_priority(task, "high", now),
    "change priority, the same": lambda task, now: transitions.change_priority(task, "lowest", now),
    "release claim": lambda task, _: transitions.release_claim(task, 0, ALICE, EXPIRED),
    "release claim, other worker": lambda task, _: transitions.release_claim(task, 0, BOB, EXPIRED),
}
CREATIONS: Mapping[str, Outcome] = {
    "create": transitions.create(TASK_ID, definition(), (), NOW),
    "create, with dependencies": transitions.create(TASK_ID, definition(), [OTHER_ID], NOW),
}
Effect = tuple[str, str, str]  # new state, events, message


def states_of(cell: str) -> list[str]:
    """The states that a cell of the table names."""
    states: list[str] = []
    for name in cell.split(", "):
        if name == "any":
            states += EXAMPLES
        elif name == "claimed":
            states += CLAIMED
        elif name == "late":
            states += [state for state in EXAMPLES if state.startswith("late ")]
        elif name.startswith("any ") and name != "any other":
            state = name.removeprefix("any ")
            states += [state, f"late {state}"]
        else:
            states.append(name)
    return states


def read_table() -> dict[str, dict[str, Effect]]:
    """The table: for each call, its effect on each state. All other states are under ``any other``."""
    lines = [line for line in (transitions.__doc__ or "").splitlines() if " | " in line]
    table: dict[str, dict[str, Effect]] = {}
    call = ""
    for line in lines[1:]:
        name, cell, new_state, events, message = (cell.strip() for cell in line.split(" | "))
        call = name or call
        rows = table.setdefault(call, {})
        for state in states_of(cell):
            assert state not in rows, f"{call} of {state} is in the table twice"
            rows[state] = (new_state, events, message)
    return table


TABLE = read_table()


def row_of(call: str, state: str) -> Effect:
    """The most specific row about this call for a task in this state."""
    while call:
        for key in (state, "any other"):
            if key in TABLE.get(call, {}):
                return TABLE[call][key]
        call = call.rpartition(", ")[0]
    pytest.fail(f"the table has no row for {state}")


def effect_of_call(call: str, task: Task, now: datetime) -> Effect:
    try:
        outcome = CALLS[call](task, now)
    except QueueError as refusal:
        return refusal.code, "-", "-"
    new_state = "unchanged" if outcome.task == task else outcome.task.state
    return (f"{new_state}, refused" if outcome.refusal else new_state, *effects_of(outcome))


def effects_of(outcome: Outcome) -> tuple[str, str]:
    """The events, and what happens to messages, in the words of the table."""
    names = [event.exchange.removeprefix("task-") for event in outcome.events]
    if outcome.events and outcome.events[0].only == "today":
        assert names[:2] == ["exception", "pending"]
        names[:2] = ["retry"]
    events = ", ".join(names)
    messages = ["hold"] if outcome.hold else []
    messages += {Offer: ["offer"], DeleteMessage: ["delete"], type(None): []}[type(outcome.message_effect)]
    return events or "-", ", ".join(messages) or "-"


@pytest.mark.parametrize("call", CALLS)
def test_the_code_does_what_the_table_says(call: str) -> None:
    effects = {state: effect_of_call(call, *example) for state, example in EXAMPLES.items()}
    assert effects == {state: row_of(call, state) for state in EXAMPLES}


def test_a_task_is_created_as_the_table_says() -> None:
    for call, outcome in CREATIONS.items():
        assert TABLE[call] == {"none": (outcome.task.state, *effects_of(outcome))}


def test_every_row_of_the_table_is_about_a_known_call_and_state() -> None:
    assert set(TABLE) == {*CALLS, *CREATIONS, "resolve"}
    states = {state for call in TABLE if call not in CREATIONS for state in TABLE[call]}
    assert states == {*EXAMPLES, "any other"}


def test_every_transition_is_in_the_table() -> None:
    names = {
        name.replace("_", " ")
        for name, function in inspect.getmembers(transitions, inspect.isfunction)
        if function.__module__ == transitions.__name__ and not name.startswith("_")
    }
    assert names == {call.partition(", ")[0] for call in TABLE}
