"""The story of a task, and what it waits for where real calls rarely lead."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.explanation import Facts, explain
from legacy_queue.domain.messages import Peeked
from legacy_queue.domain.story import request_words, story
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import WorkerRecord
from tests.domain.tasks import CLAIM_TIMEOUT, HOUR, MINUTE, NOW, SECOND, TASK_ID, pending, running

MS = timedelta(milliseconds=1)


def told(task: Task, *requests: Any) -> list[tuple[str, str]]:
    return [(moment.time[11:19], moment.what) for moment in story(task, requests)]


def test_a_story_has_the_runs_and_the_changes_of_priority() -> None:
    task = running().with_priority("high", NOW + MINUTE)
    task = transitions.resolve(task, 0, "exception", "worker-shutdown", NOW + HOUR).task
    until = format_time(NOW + CLAIM_TIMEOUT)
    assert told(task) == [
        ("03:04:05", "defined for provisioner/worker-Type_1, with priority lowest"),
        ("03:04:05", "run 0 is pending (scheduled)"),
        ("03:04:05", f"run 0 is running: claimed by group/alice, taken until {until}"),
        ("03:05:05", "priority changed from lowest to high"),
        ("04:04:05", "run 0 is exception (worker-shutdown)"),
        ("04:04:05", "run 1 is pending (retry)"),
    ]


def test_a_task_that_was_canceled_before_it_was_scheduled_was_never_pending() -> None:
    task = transitions.cancel(replace(pending(), runs=()), NOW + MINUTE).task
    assert [what for _, what in told(task)][1:] == ["run 0 is exception (canceled)"]


def request(**fields: Any) -> dict[str, Any]:
    return {"time": format_time(NOW), "ms": 2.0, "status": 200, "endpoint": "claimTask", **fields}


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
    assert request_words(request(**fields)) == (words or "claimTask: 503, away (fault 12345678)")


def test_a_request_comes_before_what_it_has_changed() -> None:
    whats = [what for _, what in told(pending(), request(endpoint="createTask", time=format_time(NOW + MS)))]
    assert whats[0] == "createTask: 200"


def test_the_lines_of_a_story_are_in_the_order_of_their_times() -> None:
    slow = request(endpoint="claimWork", time=format_time(NOW + 20 * SECOND), ms=15_000.0)
    times = [moment.time for moment in story(running(), [slow, request(time=format_time(NOW + HOUR))])]
    assert times == sorted(times)
    assert times[-2] == format_time(NOW + 5 * SECOND)


def test_the_last_worker_may_poll_unseen_where_azure_is_polled() -> None:
    caller = WorkerRecord.new(("provisioner", "worker-Type_1", "client"), NOW).called(
        ("pollTaskUrls", ()), NOW
    )
    facts = Facts(NOW, {}, [caller], Peeked([], 1), 1, is_proof_required=False, sees_polls=False)
    [polled] = [wait.sentence for wait in explain(pending(), facts) if wait.situation == "polled"]
    assert polled.endswith(" ago. Polls of Azure are not shown.")


def test_a_message_that_azure_does_not_show_is_not_called_missing() -> None:
    facts = Facts(NOW, {}, [], Peeked([], hidden=3), 0, is_proof_required=False)
    assert [wait.situation for wait in explain(pending(), facts)] == ["never-polled", "not-shown", "deadline"]
