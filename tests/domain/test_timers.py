"""Timers: their text in internal queues, how many share a message, when a task is due, and when the
sweeper looks at it."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.task import Task
from legacy_queue.domain.timer import MAX_TEXT, Timer, is_due, next_due, texts, timers_of
from tests.domain.tasks import (
    ALICE,
    CLAIM_TIMEOUT,
    DAY,
    HOUR,
    MINUTE,
    MS,
    NOW,
    TASK_ID,
    definition,
    pending,
    running,
)

SHORT = Timer(TASK_ID, NOW)
LONG = Timer(
    TASK_ID,
    NOW + HOUR,
    since=NOW,
    task_group_id="Zb0_Wh1pTLahDBzFxUqIyw",
    has_artifacts=True,
)
EPOCH = replace(LONG, due=datetime(1970, 1, 1, tzinfo=UTC), since=datetime(1970, 1, 1, tzinfo=UTC))
WIRE = SHORT.to_wire()


@pytest.mark.parametrize("timer", [SHORT, LONG, replace(LONG, has_artifacts=False), EPOCH])
def test_timers_are_read_as_written(timer: Timer) -> None:
    ((text, some),) = texts([timer, SHORT])
    assert timers_of(text) == some == [timer, SHORT]
    assert text.isascii()


def test_timers_share_as_few_messages_as_possible() -> None:
    timers = [replace(LONG, task_id=f"{number:04}{TASK_ID[4:]}") for number in range(1000)]
    written = list(texts(timers))
    assert [timer for text, _ in written for timer in timers_of(text)] == timers
    assert [timer for _, some in written for timer in some] == timers
    assert all(len(text) <= MAX_TEXT + 20 for text, _ in written)
    assert all(len(text) > MAX_TEXT - 200 for text, _ in written[:-1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"timers": [[]]}',
        f'{{"timers": [["{TASK_ID}", {"9" * 5000}, null, "", false]]}}',
        *(
            json.dumps({"timers": [[*WIRE[:place], value, *WIRE[place + 1 :]]]})
            for place, value in (
                (0, f"{TASK_ID[:-1]}'"),
                (0, f"{TASK_ID}\n"),
                (0, ["a"]),
                (1, None),
                (1, float("inf")),
                (1, 10**15),
                (2, "x"),
                (3, "a'b"),
            )
        ),
    ],
)
def test_a_malformed_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        timers_of(text)


def unscheduled() -> Task:
    return transitions.create(TASK_ID, definition(), [TASK_ID], NOW).task


RETRIED = transitions.resolve(running(), 0, "exception", "worker-shutdown", NOW).task
COMPLETED = transitions.resolve(running(), 0, "completed", "completed", NOW).task


@pytest.mark.parametrize(
    ("task", "due"),
    [
        (unscheduled(), NOW + DAY),
        (pending(), NOW + DAY),
        (running(), NOW + CLAIM_TIMEOUT),
        (running(deadline="2030-01-02T03:14:05.678Z"), NOW + 10 * MINUTE),
        (RETRIED, NOW + DAY),
        (transitions.claim(RETRIED, 1, ALICE, None, None, CLAIM_TIMEOUT, NOW).task, NOW + CLAIM_TIMEOUT),
        (COMPLETED, None),
        (transitions.rerun(COMPLETED, NOW).task, NOW + DAY),
    ],
)
def test_a_task_is_due_at_the_end_of_its_claim_or_at_its_deadline(task: Task, due: datetime | None) -> None:
    assert next_due(task) == due


@pytest.mark.parametrize("minutes", [10, 20, 40, 80, 160, 10 * 2**10])
def test_a_waiting_task_is_due_each_time_its_age_has_doubled(minutes: int) -> None:
    due = NOW + minutes * MINUTE
    assert is_due(NOW, due - MS, due)
    assert not is_due(NOW, due - 2 * MS, due - MS)
    assert not is_due(NOW, due, due + MS)


def test_a_task_is_not_due_in_its_first_ten_minutes() -> None:
    for last_pass in (None, NOW - DAY, NOW):
        assert not is_due(NOW, last_pass, NOW + 10 * MINUTE - MS)
    assert is_due(NOW, None, NOW + 15 * MINUTE)
