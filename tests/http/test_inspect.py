"""What an operator can ask the server: ``/inspect/v1``, ``/metrics`` and ``/migration``."""

from collections import Counter
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.times import format_time
from tests.http.calls import (
    NOW,
    POOL_NAME,
    PROVISIONER,
    ROOT,
    TASK_ID,
    TESTED,
    WORKER,
    Queue,
    example_call,
    holding,
    refused,
    succeeded,
)

ALICE = "/".join(WORKER.values())
MINUTE = timedelta(minutes=1)


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True)


def inspected(queue: Queue, target: str) -> Any:
    return succeeded(queue.send("GET", f"/inspect/v1/{target}")).get_json()


@pytest.mark.parametrize("target", ["task/VLdaX5vAQ0iW8JIr3sGQZw", "tasks", "pools", "messages/a/b"])
def test_inspecting_the_server_needs_a_scope_of_its_own(target: str) -> None:
    queue = holding("queue:control", "queue:migration")
    for credentials in (None, TESTED):
        answer = queue.send("GET", f"/inspect/v1/{target}", credentials=credentials)
        refused(answer, 403, "InsufficientScopes", "queue:inspect")


def test_with_control_the_history_of_a_task_also_has_its_requests_and_the_moves_of_the_clock(
    queue: Queue,
) -> None:
    for each in (queue, Queue()):
        task_id = each.create()
        succeeded(queue.send("POST", "/control/v1/clock", b'{"advance": "5m"}'))
        each.claim(task_id)
        story = inspected(each, f"task/{task_id}")["story"]
        told = [moment["what"] for moment in story if moment["kind"] in ("request", "clock")]
        moved, claim = "the clock was moved by 5m", f"claimTask of run 0 by {ALICE}: 200"
        assert told == (["createTask by root: 200", moved, claim] if each is queue else [])
        assert Counter(moment["kind"] for moment in story if moment["what"] not in told) == {
            "change": 3,
            "event": 3,
        }


def test_a_pool_shows_its_tasks_and_messages_by_priority_and_its_callers(queue: Queue) -> None:
    queue.create(workerType="another", priority="high")
    queue.clock.advance(MINUTE)
    claimed = queue.running()
    queue.clock.advance(MINUTE)
    succeeded(queue.claim(queue.create(), workerId="zoe"))
    queue.poll_urls(workerType="zzz")
    another, pool, idle = inspected(queue, "pools")["pools"]
    assert [another["taskQueueId"], pool["taskQueueId"]] == [f"{PROVISIONER}/another", POOL_NAME]
    high = {"priority": "high", "pendingTasks": 1, "claimedTasks": 0, "oldest": format_time(NOW)}
    assert another["priorities"][2] == high
    assert [message["priority"] for message in another["messages"]] == ["high"]
    assert (another["callers"], pool["claimedTasks"], pool["policy"]) == ([], 2, "optional")
    last, caller = pool["callers"]  # the last caller comes first
    assert last["caller"].endswith("/zoe")
    assert (caller["caller"], caller["last"]) == (ALICE, format_time(NOW + MINUTE))
    assert caller["recentTasks"] == [{"taskId": claimed, "runId": 0}]
    assert [(it["caller"], it["method"]) for it in idle["callers"]] == [("root", "pollTaskUrls")]


# --- the metrics. Their labels must be bounded


def text_of(queue: Queue) -> str:
    answer = succeeded(queue.send("GET", "/metrics", credentials=None))
    assert answer.content_type.startswith("text/plain; version=")
    return str(answer.text)


def metric(queue: Queue, name: str, **labels: str) -> float | None:
    """The value of the metric with these labels, if it has one."""
    families = text_string_to_metric_families(text_of(queue))
    samples = [sample for family in families for sample in family.samples]
    return next((each.value for each in samples if (each.name, each.labels) == (name, labels)), None)


def test_requests_are_counted_and_timed_by_endpoint() -> None:
    queue = Queue()
    for path in ("/v1/ping", "/api/queue/v1/ping", "/v1/task/none", "/nowhere", "/nowhere/else"):
        queue.send("GET", path, credentials=None).close()
    name = "legacy_queue_requests_total"
    assert metric(queue, name, endpoint="ping", status="200") == 2
    assert metric(queue, name, endpoint="task", status="400") == 1
    assert metric(queue, name, endpoint="none", status="404") == 2
    assert metric(queue, "legacy_queue_request_seconds_count", endpoint="ping") == 2
    assert metric(queue, "legacy_queue_request_seconds_bucket", endpoint="ping", le="+Inf") == 2


def test_tasks_are_counted_by_pool_and_state() -> None:
    queue = Queue()
    running = queue.running()
    queue.clock.advance(timedelta(seconds=30))
    pending = queue.create()
    queue.clock.advance(timedelta(seconds=10))
    tasks, oldest = "legacy_queue_tasks", "legacy_queue_oldest_pending_seconds"
    for state in ("pending", "running"):
        assert metric(queue, tasks, task_queue_id=POOL_NAME, state=state) == 1
    assert metric(queue, oldest, task_queue_id=POOL_NAME) == 10
    for task_id in (running, pending):
        queue.call("cancelTask", taskId=task_id)
    assert metric(queue, tasks, task_queue_id=POOL_NAME, state="pending") == 0
    assert metric(queue, oldest, task_queue_id=POOL_NAME) == 0
    assert metric(queue, "legacy_queue_events_total", exchange="task-exception") == 2


def test_pools_beyond_the_setting_metrics_pools_are_counted_together() -> None:
    queue = Queue(metrics_pools=1)
    queue.create()
    assert metric(queue, "legacy_queue_tasks", task_queue_id=POOL_NAME, state="pending") == 1
    for number in range(3):
        queue.create(workerType=f"more-{number}")
    assert metric(queue, "legacy_queue_tasks", task_queue_id="other", state="pending") == 3
    assert "more-" not in text_of(queue)


def test_failed_storage_operations_are_counted_and_other_metrics_are_shown_while_storage_is_away() -> None:
    queue = Queue()
    text_of(queue)
    queue.clock.advance(timedelta(minutes=1))  # what was read before is too old to be shown
    queue.server.storage.account.close()
    with pytest.raises(ServiceUnavailable):
        queue.server.storage.account.check()
    assert (metric(queue, "legacy_queue_failed_operations_total", service="file") or 0) >= 1
    assert metric(queue, "legacy_queue_tasks", task_queue_id=POOL_NAME, state="pending") is None


def test_ready_says_that_the_broker_is_away() -> None:
    queue = Queue(amqp_url="amqp://guest:a-password@127.0.0.1:1")
    assert succeeded(queue.send("GET", "/ready", credentials=None)).json == {"ready": True}
    queue.server.services.publisher.check()
    answer = succeeded(queue.send("GET", "/ready", credentials=None)).json
    broker = "ConnectionRefusedError: events wait for the broker. The event broker-failed in the log says why"
    assert answer == {"ready": True, "broker": broker}


# --- ``GET /migration``: its scope, its parameters, and a report on the calls that were made


def report(queue: Queue, query: str = "") -> Any:
    return succeeded(queue.send("GET", f"/migration{query}")).get_json()


def test_the_migration_report_counts_the_reads_that_only_the_anonymous_role_allows() -> None:
    queue = holding("queue:status:*", "queue:migration")
    task_id = queue.create()
    for credentials in (TESTED, TESTED, None, ROOT):
        for name in ("task", "status"):
            succeeded(queue.call(name, None, credentials, taskId=task_id))
    refused(queue.call("task", None, TESTED, taskId=TASK_ID), 404, "ResourceNotFound")
    status, get = ["queue:status:<taskId>"], ["queue:get-task:<taskId>"]
    counted = [("status", "", status, 1), ("task", "", get, 1), ("task", TESTED.client_id, get, 2)]
    times = dict.fromkeys(("first", "last"), format_time(NOW))
    assert report(queue)["reads"] == [
        {"method": method, "caller": caller, "missing": missing, "count": count, **times}
        for method, caller, missing, count in counted
    ]
    assert report(queue)["workerTypes"] == []
    assert report(queue, f"?provisionerId={PROVISIONER}")["reads"] == []


@pytest.mark.parametrize("name", ["pollTaskUrls", "claimTask"])
def test_a_call_that_was_refused_for_its_scopes_is_not_counted(name: str) -> None:
    queue, example = holding("queue:migration"), example_call(name)
    queue.create(TASK_ID)
    for credentials in (TESTED, None):
        answer = queue.call(name, example.body, credentials, **example.params)
        refused(answer, 403, "InsufficientScopes")
    assert report(queue)["workerTypes"] == []


def test_a_malformed_or_impossible_value_of_since_is_refused(queue: Queue) -> None:
    for since in ("59m", "14401m", "11d", "0h", "1", "h", "-2h", "1.5h", "2H", "1w", "24h ", "", "1" * 21):
        answered = queue.send("GET", f"/migration?since={quote(since)}")
        refused(answered, 400, "InvalidRequestArguments", "since is", "1h to 10d", "such as 90m")
