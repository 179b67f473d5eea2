"""Messages to ourselves: what they say, and when they first fire."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from legacy_queue.domain.timers import FIRST_FIRES_AFTER, Timer
from tests.domain.tasks import HOUR, MS, NOW, SECOND, TASK_ID

LEAST = Timer("claims", TASK_ID, NOW)
MOST = Timer(
    "deadlines",
    TASK_ID,
    NOW,
    run_id=3,
    due=NOW + HOUR,
    untold=("task-defined", "task-pending"),
    after="eWIgwMgxSfeXQ36iBbOxiQ",
    tries=7,
    task_group_id="Zb0_Wh1pTLahDBzFxUqIyw",
)


@pytest.mark.parametrize("timer", [LEAST, MOST, replace(MOST, run_id=0)])
def test_a_timer_is_read_as_it_was_written(timer: Timer) -> None:
    assert Timer.from_text(timer.queue, timer.text()) == timer
    assert timer.text().isascii()


def test_what_a_timer_does_not_have_takes_no_room() -> None:
    assert LEAST.text() == f'{{"taskId": "{TASK_ID}", "runId": null, "armed": "2030-01-02T03:04:05.678Z"}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "null",
        "[]",
        "{}",
        f'{{"taskId": "{TASK_ID}"}}',
        f'{{"taskId": "{TASK_ID}", "armed": "yesterday"}}',
        f'{{"taskId": "{TASK_ID}", "armed": 1}}',
        f'{{"taskId": "{TASK_ID}", "armed": "2030-01-02T03:04:05.678Z", "untold": 1}}',
        f'{{"taskId": "{TASK_ID}", "armed": "2030-01-02T03:04:05.678Z", "tries": "x"}}',
        f'{{"taskId": "{TASK_ID}", "armed": "2030-01-02T03:04:05.678Z", "due": "never"}}',
        *(
            json.dumps({"taskId": TASK_ID, "armed": "2030-01-02T03:04:05.678Z", **change})
            for change in (
                {"tries": float("inf")},
                {"tries": -1},
                {"tries": 2**31 + 1},
                {"tries": 1.0},
                {"tries": True},
                {"tries": None},
                {"tries": "1"},
                {"taskId": "a/b"},
                {"taskId": "x" * 1000},
                {"taskId": f"{TASK_ID[:-1]}'"},
                {"taskId": f"{TASK_ID}\n"},
                {"taskId": ["a"]},
                {"taskId": "\ud800" * 22},
                {"runId": "0"},
                {"runId": True},
                {"runId": -1},
                {"runId": 51},
                {"runId": float("nan")},
                {"untold": ["none"]},
                {"untold": [["task-defined"]]},
                {"untold": "task-defined"},
                {"untold": {"a": 1}},
                {"after": "x"},
                {"after": 7},
                {"taskGroupId": "a'b"},
                {"taskGroupId": {"a": 1}},
            )
        ),
        f'{{"taskId": "{TASK_ID}", "armed": "2030-01-02T03:04:05.678Z", "tries": {"9" * 5000}}}',
    ],
)
def test_what_is_no_timer_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Timer.from_text("claims", text)


@pytest.mark.parametrize(
    ("due", "first"),
    [
        (None, FIRST_FIRES_AFTER),
        (NOW, FIRST_FIRES_AFTER),
        (NOW - HOUR, FIRST_FIRES_AFTER),
        (NOW + MS, MS),
        (NOW + SECOND, SECOND),
        (NOW + HOUR, FIRST_FIRES_AFTER),
    ],
)
def test_a_timer_first_fires_soon_but_not_past_what_it_is_for(due: datetime | None, first: timedelta) -> None:
    assert replace(LEAST, due=due).first_fires_after() == first


def test_a_confirmed_timer_has_nothing_to_tell() -> None:
    assert MOST.confirmed() == replace(MOST, untold=())
