"""The lines of a failed test's section; the whole of it is in test_pytest_plugin.py."""

from typing import Any

import pytest

from legacy_queue.testing.summary import (
    request_line,
    request_lines,
    task_line,
)

ENTRY = {
    "time": "2026-01-02T03:04:05.678Z",
    "method": "POST",
    "path": "/v1/claim",
    "status": 200,
    "ms": 3.1,
}
RUN = {"runId": 0, "state": "running", "workerGroup": "g", "workerId": "w", "takenUntil": "soon"}
TASK = {"taskId": "T", "provisionerId": "p", "workerType": "b"}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "03:04:05.678 POST /v1/claim  200 3.1 ms"),
        ({"endpoint": "status", "clientId": "c"}, "03:04:05.678 status          200 3.1 ms by c"),
        (
            {"endpoint": "claimTask", "status": 409, "code": "C", "reason": "why", "taskId": "T", "runId": 0},
            "03:04:05.678 claimTask       409 C 3.1 ms T/0: why",
        ),
        (
            {"endpoint": "claimWork", "taskIds": ["T", "U"], "workerGroup": "g", "workerId": "w"},
            "03:04:05.678 claimWork       200 3.1 ms T U by g/w",
        ),
        (
            {"endpoint": "reclaimTask", "clientId": "task-client/T/0/on/g/w/until/1"},
            "03:04:05.678 reclaimTask     200 3.1 ms by g/w",
        ),
        (
            {"endpoint": "claimTask", "status": 503, "fault": "f", "reason": "by fault f"},
            "03:04:05.678 claimTask       503 3.1 ms: by fault f",
        ),
        (
            {"endpoint": "upload", "status": 0, "fault": "f"},
            "03:04:05.678 upload          no answer 3.1 ms (fault f)",
        ),
    ],
)
def test_a_request_is_one_line(more: dict[str, Any], line: str) -> None:
    assert request_line({**ENTRY, **more}) == line


def test_equal_requests_in_a_row_share_a_line() -> None:
    empty = {**ENTRY, "endpoint": "azure.receive"}
    journal = [empty, {**empty, "path": "/other", "ms": 0.5}, {**empty, "taskId": "T", "runId": 0}, empty]
    assert request_lines(journal) == [
        "03:04:05.678 azure.receive   200 3.1 ms (2 times)",
        "03:04:05.678 azure.receive   200 3.1 ms T/0",
        "03:04:05.678 azure.receive   200 3.1 ms",
    ]


def test_the_line_of_a_task_shows_its_runs() -> None:
    expired = {**RUN, "state": "exception", "reasonResolved": "claim-expired"}
    runs = [expired, {**RUN, "runId": 1}, {"runId": 2, "state": "completed", "reasonResolved": "completed"}]
    assert task_line({**TASK, "state": "completed", "runs": runs}) == (
        "T p/b completed: run 0 exception (claim-expired) by g/w, run 1 running by g/w until soon, "
        "run 2 completed"
    )
    assert task_line({**TASK, "state": "unscheduled", "runs": []}) == "T p/b unscheduled: no run"
