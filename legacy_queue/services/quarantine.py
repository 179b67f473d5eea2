"""Which workers get no work, as this process knows it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from threading import Lock

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.worker_record import Path
from legacy_queue.ports import Clock
from legacy_queue.stores import WorkerStore

log = structlog.get_logger()

_KNOWN_FOR = timedelta(seconds=5)


class Quarantine:
    """Storage is asked when a caller wants to know and what is known is 5 s old: once for all callers."""

    def __init__(self, store: WorkerStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: Mapping[Path, datetime] | None = None
        self._looked: datetime | None = None
        self._looks = 0
        self._failure = ServiceUnavailable("it is not known which workers are quarantined, try again")
        self._lock = Lock()

    def until(self, worker: Path) -> datetime | None:
        """When the worker's quarantine ends, None for one that has none.

        While storage is away, what was known goes on; raises ServiceUnavailable where nothing was.
        """
        looks = self._looks
        if self._is_old() and self._lock.acquire(blocking=self._known is None):
            try:
                if self._is_old() and looks == self._looks:  # else another thread has looked meanwhile
                    self._look()
            finally:
                self._lock.release()
        if self._known is None:
            raise self._failure
        until = self._known.get(worker)
        return until if until and until > self._clock.now() else None

    def put(self, worker: Path, until: datetime) -> None:
        """The worker is quarantined until then: for this process at once, for others within 5 s."""
        with self._lock:
            self._store.quarantine(worker, until)
            if self._known is not None:
                self._known = {**self._known, worker: until}

    def _is_old(self) -> bool:
        return self._looked is None or not timedelta(0) <= self._clock.wall_time() - self._looked < _KNOWN_FOR

    def _look(self) -> None:
        """While storage is away, what was known is good for 5 s more; else the next call asks again."""
        try:
            self._known = self._store.quarantined()
        except ServiceUnavailable as failure:
            log.warning("quarantines-not-read")
            self._failure = failure
        self._looks += 1
        if self._known is not None:
            self._looked = self._clock.wall_time()
