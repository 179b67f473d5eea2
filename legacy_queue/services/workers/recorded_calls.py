"""Keeps a record of calls: which worker or client uses which protocol, and when it last asked for work."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Lock

from legacy_queue.domain.call_statistics import (
    CALLS_KEPT,
    POLL,
    READERS,
    Caller,
    CallingClient,
    CallKind,
    Calls,
    caller_name,
    merge_clients,
)
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.worker_record import PoolPath
from legacy_queue.ports import Clock
from legacy_queue.services.workers.buffered_rows import BufferedRows
from legacy_queue.services.workers.workers import Workers
from legacy_queue.stores import ClientRow, WorkerStore

_COUNTED_FOR = timedelta(seconds=30)


class RecordedCalls:
    """Records the calls of clients. Also finds the calls of workers, which ``Workers.call`` records."""

    def __init__(
        self, rows: BufferedRows[CallingClient, ClientRow], store: WorkerStore, workers: Workers, clock: Clock
    ) -> None:
        self._rows = rows
        self._store = store
        self._workers = workers
        self._clock = clock
        self._counted: dict[tuple[CallingClient, CallKind], Calls] = {}
        self._noted_at = clock.monotonic()
        self._lock = Lock()

    def record_call(self, client: CallingClient, kind: CallKind) -> None:
        """Record a call of a client, and that its pool is active."""
        now = self._clock.now()
        self._workers.record_activity(PoolPath(client.provisioner_id, client.worker_type))
        self._note(client, kind, Calls(1, now, now))

    def record_read(self, client_id: str, kind: CallKind) -> None:
        """Count a read that the client's own scopes do not allow. ``client_id`` is "" without credentials."""
        self._count(CallingClient(*READERS, caller_name(client_id)), kind)

    def record_poll(self, queue: WorkQueue, caller: str) -> None:
        """Count a poll with a signed URL that the caller got from pollTaskUrls."""
        self._count(CallingClient(queue.provisioner_id, queue.worker_type, caller), (POLL, ()))

    def _count(self, client: CallingClient, kind: CallKind) -> None:
        """Count a call that comes too often for a write each time."""
        now = self._clock.now()
        calls = Calls(1, now, now)
        with self._lock:
            earlier = self._counted.get((client, kind))
            self._counted[client, kind] = earlier.plus(calls) if earlier else calls

    def note_counted(self) -> None:
        """Pass on what was counted since the last time."""
        with self._lock:
            self._noted_at = self._clock.monotonic()
            counted = self._counted
            self._counted = {}
        for (client, kind), calls in counted.items():
            self._note(client, kind, calls)

    def _note(self, client: CallingClient, kind: CallKind, more: Calls) -> None:
        self._rows.note(client, lambda row: replace(row, statistics=row.statistics.counted(kind, more)))

    def flush(self) -> None:
        """Write the noted calls, and every half minute the counted ones. If storage is away, keep them."""
        if self._clock.monotonic() - self._noted_at >= _COUNTED_FOR:
            self.note_counted()
        self._rows.flush()
        self._workers.flush()

    def callers(self) -> Sequence[Caller]:
        """Returns whose calls for work are on record, for all pools: see ``merge_clients``."""
        callers = self.callers_since(self._clock.now() - CALLS_KEPT)
        return merge_clients([each for each in callers if (each.provisioner_id, each.worker_type) != READERS])

    def callers_since(
        self, time: datetime, provisioner_id: str | None = None, worker_type: str | None = None
    ) -> Sequence[Caller]:
        """The callers with a last call at or after ``time``; None is any pool. Raises ServiceUnavailable."""
        self.note_counted()
        self.flush()
        return self._store.callers_since(time, provisioner_id, worker_type)
