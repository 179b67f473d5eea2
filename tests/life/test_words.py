"""The sentences of a story and of the journal."""

from typing import Any

import pytest

from legacy_queue.domain.times import format_time
from legacy_queue.life.words import request_words, shortened
from tests.domain.tasks import NOW, SECOND, TASK_ID


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"runId": 0, "workerGroup": "g", "workerId": "w"}, "claimTask of run 0 by g/w: 200"),
        ({"clientId": f"task-client/{TASK_ID}/0/on/g/w/until/1"}, "claimTask by g/w: 200"),
        ({"status": 409, "code": "RequestConflict", "reason": "no"}, "claimTask: 409 RequestConflict, no"),
        ({"status": 0, "fault": "12345678"}, "claimTask: no answer (fault 12345678)"),
        ({"status": 503, "reason": "away (fault 12345678)", "fault": "12345678"}, None),
        ({"endpoint": None, "method": "GET", "path": "/nowhere"}, "GET /nowhere: 200"),
    ],
)
def test_a_request_is_said_in_one_line(fields: dict[str, Any], words: str | None) -> None:
    assert request_words({"status": 200, "endpoint": "claimTask", **fields}) == (
        words or "claimTask: 503, away (fault 12345678)"
    )


def test_a_long_story_is_shortened_in_its_middle() -> None:
    moments = [{"time": format_time(NOW + number * SECOND), "what": f"m{number}"} for number in range(200)]
    short = shortened(moments)
    assert (short[:20], short[21:]) == (moments[:20], moments[70:])
    assert (short[20]["kind"], short[20]["what"]) == ("gap", "50 moments are not shown")
    assert shortened(moments[:151]) == moments[:151]
