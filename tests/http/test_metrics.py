"""The metrics of requests, operations, tasks, timers and events; and that their labels are bounded."""

from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.http.metrics import monitoring_app
from tests.http.calls import PROVISIONER, WORKER_TYPE, Queue, succeeded

POOL = f"{PROVISIONER}/{WORKER_TYPE}"


def text_of(queue: Queue) -> str:
    answer = succeeded(queue.send("GET", "/metrics", credentials=None))
    assert answer.content_type.startswith("text/plain; version=")
    return str(answer.text)


def metric(queue: Queue, name: str, **labels: str) -> float | None:
    """The value of the metric with these labels, if it has one."""
    families = text_string_to_metric_families(text_of(queue))
    samples = [sample for family in families for sample in family.samples]
    return next((each.value for each in samples if (each.name, each.labels) == (name, labels)), None)


def test_answered_requests_are_counted_and_measured_by_endpoint() -> None:
    queue = Queue()
    for path in ("/v1/ping", "/api/queue/v1/ping", "/v1/task/none", "/nowhere", "/nowhere/else"):
        queue.send("GET", path, credentials=None).close()
    name = "legacy_queue_requests_total"
    assert metric(queue, name, endpoint="ping", status="200") == 2
    assert metric(queue, name, endpoint="task", status="400") == 1
    assert metric(queue, name, endpoint="none", status="404") == 2
    assert metric(queue, "legacy_queue_request_seconds_count", endpoint="ping") == 2
    assert metric(queue, "legacy_queue_request_seconds_bucket", endpoint="ping", le="+Inf") == 2


def test_tasks_are_counted_by_worker_type_and_state() -> None:
    queue = Queue()
    queue.running()
    queue.clock.advance(timedelta(seconds=30))
    queue.create()
    queue.clock.advance(timedelta(seconds=10))
    task_id = queue.create()
    tasks, oldest = "legacy_queue_tasks", "legacy_queue_oldest_pending_seconds"
    assert metric(queue, tasks, task_queue_id=POOL, state="pending") == 2
    assert metric(queue, tasks, task_queue_id=POOL, state="running") == 1
    assert metric(queue, oldest, task_queue_id=POOL) == 10
    for each in [task_id, *(each.task_id for each in queue.messages() if each.task_id != task_id)]:
        queue.call("cancelTask", taskId=each)
    assert metric(queue, tasks, task_queue_id=POOL, state="pending") == 0
    assert metric(queue, oldest, task_queue_id=POOL) == 0
    assert metric(queue, "legacy_queue_events_total", exchange="task-exception") == 3


def test_worker_types_beyond_the_setting_are_summed() -> None:
    queue = Queue(metrics_pools=1)
    queue.create()
    assert metric(queue, "legacy_queue_tasks", task_queue_id=POOL, state="pending") == 1
    for number in range(3):
        queue.create(workerType=f"more-{number}")
    assert metric(queue, "legacy_queue_tasks", task_queue_id="other", state="pending") == 3
    assert "more-" not in text_of(queue)


def test_operations_that_fail_are_counted_and_the_rest_is_shown_without_storage() -> None:
    queue = Queue()
    text_of(queue)
    queue.clock.advance(timedelta(minutes=1))  # what was read is used no longer
    queue.server.storage.account.close()
    with pytest.raises(ServiceUnavailable):
        queue.server.storage.account.check()
    assert (metric(queue, "legacy_queue_failed_operations_total", service="file") or 0) >= 1
    assert metric(queue, "legacy_queue_tasks", task_queue_id=POOL, state="pending") is None


def test_a_resolver_says_whether_storage_answers() -> None:
    queue = Queue()
    client = monitoring_app(queue.server.services, queue.server.metrics).test_client()
    assert client.get("/ready").json == {"ready": True}
    assert b"legacy_queue_timers 0.0" in client.get("/metrics").data
    queue.server.storage.account.close()
    assert client.get("/ready").status_code == 503


def test_ready_says_that_the_broker_is_away() -> None:
    queue = Queue(amqp_url="amqp://guest:a-password@127.0.0.1:1")
    assert succeeded(queue.send("GET", "/ready", credentials=None)).json == {"ready": True}
    queue.server.services.publisher.check()
    answer = succeeded(queue.send("GET", "/ready", credentials=None)).json
    broker = "ConnectionRefusedError: events wait; broker-failed in the log says why"
    assert answer == {"ready": True, "broker": broker}
