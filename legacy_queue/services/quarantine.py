"""The quarantined workers, which get no work."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from threading import Lock

import structlog

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.worker_record import Path
from legacy_queue.ports import Clock
from legacy_queue.stores import WorkerStore

log = structlog.get_logger()

_MAX_AGE = timedelta(seconds=5)


class Quarantine:
    """The quarantines of all workers, read at most every 5 s, once for all callers."""

    def __init__(self, store: WorkerStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._quarantines: Mapping[Path, datetime] | None = None
        self._read_at: datetime | None = None
        self._reads = 0
        self._failure = ServiceUnavailable("it is not known which workers are quarantined, try again")
        self._lock = Lock()

    def until(self, worker: Path) -> datetime | None:
        """When the worker's quarantine ends; None if it is not quarantined.

        While storage is unavailable, answers from the last read. Raises ServiceUnavailable if there was none.
        """
        reads = self._reads
        if self._is_old() and self._lock.acquire(blocking=self._quarantines is None):
            try:
                if self._is_old() and reads == self._reads:  # else another thread has read meanwhile
                    self._read()
            finally:
                self._lock.release()
        if self._quarantines is None:
            raise self._failure
        until = self._quarantines.get(worker)
        return until if until and until > self._clock.now() else None

    def put(self, worker: Path, until: datetime) -> None:
        """Quarantine the worker until then. This process knows at once, others within 5 s."""
        with self._lock:
            self._store.quarantine(worker, until)
            if self._quarantines is not None:
                self._quarantines = {**self._quarantines, worker: until}

    def _is_old(self) -> bool:
        return self._read_at is None or not timedelta(0) <= self._clock.wall_time() - self._read_at < _MAX_AGE

    def _read(self) -> None:
        """If storage fails, the last read is used for 5 s more; without any, the next call reads again."""
        try:
            self._quarantines = self._store.quarantined()
        except ServiceUnavailable as failure:
            log.warning("quarantines-not-read")
            self._failure = failure
        self._reads += 1
        if self._quarantines is not None:
            self._read_at = self._clock.wall_time()
