"""The metrics: how many requests were answered, and how many wait for work now."""

from prometheus_client.parser import text_string_to_metric_families

from tests.http.calls import Queue, succeeded


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
