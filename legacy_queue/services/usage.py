"""Counts calls by caller: in memory in each process, written regularly in the background.

Counting must never fail or slow the call that it counts.
"""

from collections.abc import Sequence
from datetime import timedelta
from threading import Lock
from typing import Any

import structlog

from legacy_queue.domain.usage_key import HOUR, NOT_RECORDED, Calls, UsageKey, caller_name, report
from legacy_queue.ports import Clock
from legacy_queue.stores import UsageStore

log = structlog.get_logger()


class Usage:
    """Counts every call that its scopes allow, also if it is refused later."""

    def __init__(self, store: UsageStore, clock: Clock, max_keys: int = 10_000) -> None:
        """``max_keys`` is how many keys are counted separately before they are written."""
        self._store, self._clock, self._max_keys = store, clock, max_keys
        self._lock, self._flushing = Lock(), Lock()
        self._counted: dict[UsageKey, Calls] = {}

    def record(
        self, provisioner_id: str, worker_type: str, method: str, caller: str, missing: Sequence[str] = ()
    ) -> None:
        """Count a call of one of ``METHODS``. ``missing`` are the fields that a claimTask left out."""
        now = self._clock.now()
        key = UsageKey(provisioner_id, worker_type, method, caller_name(caller), tuple(missing))
        self._add(key, Calls(1, now, now))

    def flush(self) -> None:
        """Write the calls since the last flush. Raises ServiceUnavailable, and then they are kept."""
        with self._flushing:
            with self._lock:
                counted, self._counted = self._counted, {}
            if NOT_RECORDED in counted:
                log.warning("calls-not-recorded", count=counted[NOT_RECORDED].count)
            try:
                for written in self._store.add(counted.copy()):
                    for key in written:
                        del counted[key]
            finally:
                for key, calls in counted.items():
                    self._add(key, calls)

    def report(
        self, window: timedelta, provisioner_id: str | None = None, worker_type: str | None = None
    ) -> dict[str, Any]:
        """The calls in the time up to now, see ``usage_key.report``; None is any provisionerId or
        workerType.

        The calls that other processes have not written yet are missing. Raises ServiceUnavailable.
        """
        self.flush()
        until = self._clock.now()
        since = until - window
        return report(self._store.since(since - HOUR, provisioner_id, worker_type), since, until)

    def _add(self, key: UsageKey, calls: Calls) -> None:
        with self._lock:
            if len(self._counted) >= self._max_keys and key not in self._counted:
                key = NOT_RECORDED
            before = self._counted.get(key)
            self._counted[key] = before.plus(calls) if before else calls
