"""The metrics of one server process. Every label has a limited number of values."""

import platform
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from legacy_queue import __version__
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.http.request_log import RequestRecord
from legacy_queue.services.services import Services

OTHER_POOLS = "other"  # cannot be the name of a pool, which has a slash
# seconds; claimWork waits up to 20
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25)

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of this process since its start or its last reset."""

    def __init__(self, storage: str, max_pools: int) -> None:
        """``storage`` is the kind of storage. Only the first ``max_pools`` pools have values of their own."""
        self._registry = CollectorRegistry()
        self._max_pools = max_pools
        ProcessCollector(registry=self._registry)
        build = {"version": __version__, "python": platform.python_version(), "storage": storage}
        Info(
            "legacy_queue_build", "The version, Python and storage of this process.", registry=self._registry
        ).info(build)
        answered = self._counter("requests", "Requests that the server answered.", "endpoint", "status")
        seconds = self._histogram("request", "Seconds from a request to the end of its answer.", "endpoint")
        operations = self._histogram(
            "operation",
            "Seconds that an operation on storage (file, or table, queue, blob) or the broker took.",
            "service",
        )
        # cached, because a look-up of labels takes a lock
        self._answered_of = cache(answered.labels)
        self._seconds_of = cache(seconds.labels)
        self._operations_of = cache(operations.labels)
        self._failed = self._counter(
            "failed_operations", "Operations on storage and broker that failed.", "service"
        )

    def observe(self, service: str, seconds: float, is_answered: bool) -> None:
        """Counts an operation on storage or broker. It is a ``ports.Observe``."""
        self._operations_of(service).observe(seconds)
        if not is_answered:
            self._failed.labels(service).inc()

    def answered(self, record: RequestRecord) -> None:
        """Counts a request. If it has no endpoint, its label is ``none``."""
        name = record.endpoint or "none"
        self._answered_of(name, record.status).inc()
        self._seconds_of(name).observe(record.ms / 1000)

    def watch(self, services: Services) -> None:
        """Makes the metrics read these services. Call it once."""
        self._gauge("waiting_requests", "claimWork requests that are waiting now.", services.poller.waiting)
        self._gauge(
            "broker_away",
            "1 while the broker does not confirm events, otherwise 0.",
            lambda: services.publisher.is_away,
        )
        ledger = services.ledger
        what = "Tasks with a known due time, and writes with effects to apply."
        self._gauge("timers", what, ledger.in_memory)
        self._gauge("late_timers", "Tasks that this process should look at now.", ledger.late)
        self._registry.register(_Tasks(services, self._max_pools))

    def render(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"legacy_queue_{name}", _help(what, labels), labels, registry=self._registry)

    def _histogram(self, name: str, what: str, *labels: str) -> Histogram:
        return Histogram(
            f"legacy_queue_{name}_seconds",
            _help(what, labels),
            labels,
            registry=self._registry,
            buckets=_BUCKETS,
        )

    def _gauge(self, name: str, what: str, read: Any) -> None:
        Gauge(f"legacy_queue_{name}", what, registry=self._registry).set_function(read)


class _Tasks(Collector):
    """Counts unresolved tasks by pool and state. While storage is away it counts nothing.

    A pool that once had values keeps them: a gauge falls to 0 and does not vanish.
    """

    def __init__(self, services: Services, max_pools: int) -> None:
        self._services = services
        self._max_pools = max_pools
        self._names: dict[str, None] = {}

    def describe(self) -> Iterable[Any]:
        return []  # otherwise registration would read storage

    def collect(self) -> Iterator[Metric]:
        what = _help("Events that this process has published.", ["exchange"])
        events = CounterMetricFamily("legacy_queue_events", what, labels=["exchange"])
        for exchange, count in self._services.publisher.published.items():
            events.add_metric([exchange], count)
        yield events
        try:
            open_counts = self._services.task_queues.open_counts()
        except ServiceUnavailable:
            return
        now = self._services.clock.now()
        counts = {(name, state): 0 for name in self._names for state in ("pending", "running")}
        ages = dict.fromkeys(self._names, 0.0)
        for (task_queue_id, _, state), open_count in open_counts.items():
            if task_queue_id not in self._names and len(self._names) < self._max_pools:
                self._names[task_queue_id] = None
            name = task_queue_id if task_queue_id in self._names else OTHER_POOLS
            ages.setdefault(name, 0.0)
            counts[name, state] = counts.get((name, state), 0) + open_count.count
            if state == "pending" and open_count.oldest:
                ages[name] = max(ages[name], (now - open_count.oldest).total_seconds())
        tasks = _family("tasks", "Pending and running tasks.", "task_queue_id", "state")
        for labels, count in counts.items():
            tasks.add_metric(labels, count)
        yield tasks
        oldest = _family(
            "oldest_pending_seconds", "Seconds that the oldest pending task has waited.", "task_queue_id"
        )
        for name, age in ages.items():
            oldest.add_metric([name], age)
        yield oldest


def _family(name: str, what: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"legacy_queue_{name}", _help(what, labels), labels=labels)


def _help(what: str, labels: Sequence[str]) -> str:
    """Returns the sentence and the labels. A metric without a sample shows its labels nowhere else."""
    return f"{what} By {', '.join(labels)}." if labels else what
