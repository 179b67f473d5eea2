"""Who calls what: counted in memory by each process, and written down now and then.

It is bookkeeping: nothing here may fail or slow the call that it counts.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

import structlog

from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage_key import (
    CLAIM_TASK,
    CLAIM_WORK,
    HOUR,
    NOT_RECORDED,
    POLL_TASK_URLS,
    TODAYS_CLAIM_WORK,
    Calls,
    CountedUsage,
    UsageKey,
    beginning_of_hour,
    client_name,
    report,
)
from legacy_queue.ports import Clock
from legacy_queue.stores import UsageStore

log = structlog.get_logger()

MOST = 10_000  # uses that a process counts at a time
_STEP_BACK = timedelta(minutes=5)  # of a clock, after which an hour that was over goes on

Key = tuple[datetime, UsageKey]


class Usage:
    """Counts calls, also those that are refused by the policy, a wrong signature, a conflict: all but those
    that their scopes do not allow.
    """

    def __init__(self, store: UsageStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._lock, self._flushing = Lock(), Lock()
        self._counted: dict[Key, Calls] = {}
        self._unwritten: set[Key] = set()
        self._process = ""  # named by its first call: it may still have to be forked

    def record_poll(self, provisioner_id: str, worker_type: str, client_id: str) -> None:
        """The client called pollTaskUrls."""
        self._count(UsageKey(provisioner_id, worker_type, POLL_TASK_URLS, client_name(client_id)))

    def record_claim(
        self, provisioner_id: str, worker_type: str, worker: Worker, missing: Sequence[str]
    ) -> None:
        """The worker called claimTask, without those of messageId, receipt and signature."""
        self._count(UsageKey(provisioner_id, worker_type, CLAIM_TASK, _name(worker), tuple(missing)))

    def record_claim_work(
        self, provisioner_id: str, worker_type: str, worker: Worker, names_task_queue: bool = False
    ) -> None:
        """The worker called claimWork."""
        method = TODAYS_CLAIM_WORK if names_task_queue else CLAIM_WORK
        self._count(UsageKey(provisioner_id, worker_type, method, _name(worker)))

    def flush(self) -> None:
        """Write down what was counted since the last time; raises ServiceUnavailable, and then it is kept."""
        with self._flushing:
            with self._lock:
                counted = [CountedUsage(*key, self._counted[key]) for key in self._unwritten]
            for one in counted:
                if one.use == NOT_RECORDED:
                    log.warning("calls-not-recorded", hour=format_time(one.hour), count=one.calls.count)
            self._store.put(self._process, counted)
            with self._lock:
                for one in counted:
                    if self._counted[one.hour, one.use] == one.calls:  # else it was called meanwhile
                        self._unwritten.remove((one.hour, one.use))
                over = self._clock.now() - HOUR - _STEP_BACK
                for key in [key for key in self._counted if key[0] <= over and key not in self._unwritten]:
                    del self._counted[key]

    def report(
        self, window: timedelta, provisioner_id: str | None = None, worker_type: str | None = None
    ) -> dict[str, Any]:
        """Who called what, by all processes, in the time up to now, of that provisionerId and workerType: as
        ``domain.usage.report`` says.

        What other processes have not written down yet is not in it. Raises ServiceUnavailable.
        """
        self.flush()
        until = self._clock.now()
        since = until - window
        counted = self._store.since(beginning_of_hour(since) - HOUR, provisioner_id, worker_type)
        return report(counted, since, until)

    def _count(self, use: UsageKey) -> None:
        with self._lock:
            now = self._clock.now()
            hour = beginning_of_hour(now)
            if len(self._counted) >= MOST and (hour, use) not in self._counted:
                use = NOT_RECORDED
            key, calls = (hour, use), Calls(1, now)
            known = self._counted.get(key)
            self._counted[key] = known.plus(calls) if known else calls
            self._unwritten.add(key)
            self._process = self._process or slugid()


def _name(worker: Worker) -> str:
    return f"{worker.worker_group}/{worker.worker_id}"
