"""What a server process tells Prometheus. No label holds what a client sent: their number is bounded."""

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

from legacy_queue.http.request_log import RequestRecord
from legacy_queue.services import Services


class Metrics:
    """Of this process, since it was started."""

    def __init__(self, services: Services) -> None:
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
        waiting.set_function(services.pollers.waiting)

    def answered(self, record: RequestRecord) -> None:
        """Count a request; what no endpoint serves has the label ``none``."""
        self._answered.labels(record.endpoint_name or "none", record.status).inc()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)
