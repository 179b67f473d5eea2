"""The sentences of a history and of the journal."""

from typing import Any

import pytest

from legacy_queue.domain.times import format_time
from legacy_queue.history.words import explanation_lines, request_words, shortened, task_line
from tests.domain.sample_tasks import NOW, SECOND, TASK_ID


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
def test_a_request_is_described_in_one_line(fields: dict[str, Any], words: str | None) -> None:
    assert request_words({"status": 200, "endpoint": "claimTask", **fields}) == (
        words or "claimTask: 503, away (fault 12345678)"
    )


def test_a_long_history_is_shortened_in_its_middle() -> None:
    moments = [{"time": format_time(NOW + number * SECOND), "what": f"m{number}"} for number in range(200)]
    short = shortened(moments)
    assert (short[:20], short[21:]) == (moments[:20], moments[100:])
    assert (short[20]["kind"], short[20]["what"]) == ("gap", "80 entries are not shown")
    assert shortened(moments[:121]) == moments[:121]


def test_status_uses_the_same_words_as_the_page_and_leaves_events_out() -> None:
    run = {"runId": 0, "state": "running", "workerGroup": "g", "workerId": "w", "takenUntil": "T2"}
    story = [
        {"time": "2026-01-02T03:04:05.678Z", "what": "pending", "kind": "change", "message": "visible"},
        {"time": "2026-01-02T03:04:06.678Z", "what": "event", "kind": "event"},
        *(
            {"time": f"2026-01-02T0{hour}:04:05.678Z", "what": "reclaimTask", "kind": "request"}
            | {"endpoint": "reclaimTask", "takenUntil": f"T{hour}"}
            for hour in (4, 5)
        ),
    ]
    status = {"taskId": TASK_ID, "provisionerId": "p", "workerType": "t", "state": "running", "runs": [run]}
    answer = {"status": status, "waitsFor": [{"sentence": "g/w has claimed run 0."}], "story": story}
    assert [*explanation_lines(answer)] == [
        f"{TASK_ID} p/t running: run 0 running by g/w until T2",
        "  g/w has claimed run 0.",
        "  2026-01-02 03:04:05.678 pending; its message is visible",
        "  2026-01-02 04:04:05.678 reclaimTask, taken until T5 (2 times)",
    ]
    named = {"name": "a\x1bname", "created": "2026-01-02T03:04:05.678Z", "now": "2026-01-02T03:09:05.678Z"}
    assert [*explanation_lines({**answer, **named})][1] == '  The task "a\ufffdname" was created 5 min ago.'
    done = {**run, "state": "exception", "reasonResolved": "canceled"}
    assert task_line({**status, "state": "exception", "runs": [done]}).endswith("canceled) by g/w")
    pending = {"runId": 0, "state": "pending"}
    assert task_line({**status, "state": "pending", "runs": [pending]}).endswith("pending: run 0 pending")
    assert task_line({**status, "state": "unscheduled", "runs": []}).endswith("unscheduled: no run")
