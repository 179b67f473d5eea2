"""The metrics: how many requests were answered, and how many wait for work now."""

from concurrent.futures import ThreadPoolExecutor

from prometheus_client.parser import text_string_to_metric_families

from tests.http.calls import POOL, WORKER, Queue, succeeded
from tests.system.processes import wait_until


def metric(queue: Queue, name: str, **labels: str) -> float | None:
    """The value of the metric with these labels, if it has one."""
    answer = succeeded(queue.send("GET", "/metrics", credentials=None))
    assert answer.content_type.startswith("text/plain; version=")
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    return next((sample.value for sample in samples if (sample.name, sample.labels) == (name, labels)), None)


def test_answered_requests_are_counted_by_endpoint_and_status() -> None:
    queue = Queue()
    for path in ("/v1/ping", "/api/queue/v1/ping", "/v1/task/none", "/nowhere", "/nowhere/else"):
        queue.send("GET", path, credentials=None).close()
    name = "legacy_queue_requests_total"
    assert metric(queue, name, endpoint="ping", status="200") == 2
    assert metric(queue, name, endpoint="task", status="400") == 1
    assert metric(queue, name, endpoint="none", status="404") == 2


def test_requests_of_claim_work_are_counted_while_they_wait() -> None:
    queue = Queue()
    assert metric(queue, "legacy_queue_waiting_requests") == 0
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.call, "claimWork", {**WORKER, "tasks": 1}, **POOL)
        assert wait_until(lambda: metric(queue, "legacy_queue_waiting_requests") == 1)
        queue.create()
        assert len(waiting.result(60).get_json()["tasks"]) == 1
    assert metric(queue, "legacy_queue_waiting_requests") == 0
