"""Azure's limits and latencies for a simulated world: what is above a limit is answered 503, and sent again.

Source: Azure's "Scalability and performance targets" of queues and tables.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass

from legacy_queue.domain.errors import ServiceUnavailable
from tests.simulation.world import Call, World

_BURST = 1.0  # seconds: what was not used for so long may be used at once
_DELAYS = {"queue": (0.1, 1.0), "table": (0.1, 0.2), "blob": (0.1, 1.0)}  # of the adapter, before each retry
_REFUSED_AFTER = 0.004  # seconds


@dataclass(frozen=True)
class Limits:
    """Calls a second of a queue, a partition and an account. ``retry_after`` is in seconds."""

    queue: float = 2000
    partition: float = 2000
    account: float = 20000
    retry_after: float = 1
    queue_latency: float = 0.008  # seconds, on average
    table_latency: float = 0.006

    def of(self, service: str) -> float:
        return self.queue if service == "queue" else self.partition


class AzureLimits:
    """Lets the calls of a world pass, by the limits, as often as the adapter sends them.

    ``sent`` counts requests by service, what they do, and their queue or partition; ``refused`` those that
    were answered 503. With ``scale`` all limits are so many times as high.
    """

    def __init__(self, world: World, limits: Limits, scale: float = 1) -> None:
        self._world = world
        self._limits = limits
        self._scale = scale
        self._free: dict[str, float] = defaultdict(lambda: -_BURST)
        self.sent: Counter[tuple[str, str, str]] = Counter()
        self.refused = 0
        world.before = self.admit
        world.latency = self._latency

    def admit(self, call: Call) -> None:
        """Return when Azure serves the call; raises ServiceUnavailable as the adapter does."""
        if call.service in _DELAYS:
            delays = () if call.method == "receive" else _DELAYS[call.service]
            self.send(call.service, call.name, call.place, delays)

    def send(self, service: str, name: str, place: str, delays: tuple[float, ...] = ()) -> None:
        """As ``admit``, for a client that sends a request again after each of the delays."""
        for delay in (*delays, None):
            self.sent[service, name, place] += 1
            if self._is_admitted(service, place):
                return
            self.refused += 1
            self._world.time.sleep(_REFUSED_AFTER)
            if delay is not None:
                pause = max(delay, self._limits.retry_after)
                self._world.time.sleep(pause * self._world.random("retry").uniform(1, 1.5))
        raise ServiceUnavailable("storage did not serve the request, try again")

    def _is_admitted(self, service: str, place: str) -> bool:
        now = self._world.time.now
        limits = {f"{service} {place}": self._limits.of(service), "account": self._limits.account}
        free = {
            key: max(self._free[key], now - _BURST) + 1 / limit / self._scale for key, limit in limits.items()
        }
        if max(free.values()) > now:
            return False
        self._free.update(free)
        return True

    def _latency(self, call: Call) -> float:
        average = self._limits.queue_latency if call.service == "queue" else self._limits.table_latency
        return average * self._world.random("latency").uniform(0.5, 1.5)
