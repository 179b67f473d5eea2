"""The metrics of a server process. No label holds data of clients: the number of values is bounded."""

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

from legacy_queue.http.request_log import RequestRecord
from legacy_queue.services.poller_registry import PollerRegistry


class Metrics:
    """The metrics of this process since its start."""

    def __init__(self, pollers: PollerRegistry) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._answered = Counter(
            "legacy_queue_requests",
            "Requests that were answered.",
            ["endpoint", "status"],
            registry=self._registry,
        )
        waiting = Gauge(
            "legacy_queue_waiting_requests",
            "Requests of claimWork that wait for work now.",
            registry=self._registry,
        )
        waiting.set_function(pollers.waiting)

    def answered(self, record: RequestRecord) -> None:
        """Count a request. Without an endpoint its label is ``none``."""
        self._answered.labels(record.endpoint_name or "none", record.status).inc()

    def render(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
