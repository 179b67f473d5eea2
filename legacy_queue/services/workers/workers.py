"""The records of provisioners, pools and workers: declared, active, quarantined, and how they call.

A failure to write a call never fails the call: in the original it failed claims that were made.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial, reduce
from threading import Lock
from typing import Any

import structlog

from legacy_queue.domain.call_statistics import CALLS_KEPT, POLL, READERS, CallKind, Calls, caller_name
from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import given, parse_time
from legacy_queue.domain.worker_record import (
    ACTION_CONTEXTS,
    RecordPath,
    WorkerRecord,
    parents,
    with_polls,
)
from legacy_queue.ports import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.services.pages import Page, read_page, read_rows
from legacy_queue.stores import StoredWorkerRecord, WorkerStore
from legacy_queue.stores.lru_cache import SharedLruCache

log = structlog.get_logger()

_MAX_ATTEMPTS = 10
_MAX_AGE = timedelta(seconds=5)  # of what a call knows of its worker
_COUNTED_FOR = timedelta(seconds=30)
_MAX_KNOWN = 10_000  # records
_MAX_NOTED = 1000  # calls of a worker

_Change = Callable[[WorkerRecord], WorkerRecord]


class Workers:
    """Declarations and quarantines are written at once. Calls are noted, and written by ``flush``: a worker's
    calls of a second in one write. A quarantine by another process takes effect within five seconds.
    """

    def __init__(self, store: WorkerStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._noted: dict[RecordPath, list[_Change]] = {}
        self._counted: dict[tuple[RecordPath, CallKind], Calls] = {}
        self._noted_at = clock.monotonic()
        self._lock = Lock()
        self._writes = Lock()
        # with the time when it was so
        self._known: SharedLruCache[RecordPath, tuple[StoredWorkerRecord | None, timedelta]]
        self._known = SharedLruCache(_MAX_KNOWN)

    @contextmanager
    def call(self, worker: RecordPath, kind: CallKind, client_id: str = "") -> Iterator[list[RunKey]]:
        """A context for a call of the worker: a list for the runs that it claims.

        At its end they and the call are noted, also if it fails. ``client_id`` is that of a client that may
        have polled for the worker.
        """
        claims: list[RunKey] = []
        self.record_activity(worker)
        try:
            yield claims
        finally:
            now = self._clock.now()
            client = caller_name(client_id)
            self._note(worker, lambda record: record.active(now, claims).called(kind, now, client))

    def record_call(self, client: RecordPath, kind: CallKind) -> None:
        """Note a call of a client."""
        with self.call(client, kind):
            pass

    def record_read(self, client_id: str, kind: CallKind) -> None:
        """Count a read that the client's own scopes do not allow, "" without credentials."""
        self._count((*READERS, caller_name(client_id)), kind)

    def record_poll(self, queue: WorkQueue, caller: str) -> None:
        """Count a poll by a signed URL that the caller got from pollTaskUrls."""
        self._count((queue.provisioner_id, queue.worker_type, caller), (POLL, ()))

    def _count(self, path: RecordPath, kind: CallKind) -> None:
        """Count what comes too often for a write of each."""
        now = self._clock.now()
        calls = Calls(1, now, now)
        with self._lock:
            earlier = self._counted.get((path, kind))
            self._counted[path, kind] = earlier.plus(calls) if earlier else calls

    def note_counted(self) -> None:
        """Note what was counted since the last time."""
        with self._lock:
            self._noted_at = self._clock.monotonic()
            counted = self._counted
            self._counted = {}
        for (path, kind), calls in counted.items():
            self._note(path, lambda record, kind=kind, calls=calls: record.counted(kind, calls))  # type: ignore[misc]

    def record_activity(self, worker: RecordPath) -> None:
        """Note that the worker is active, and with it its parents, once in each half hour."""
        now = self._clock.now()
        stored, _ = self._known.get(worker) or (None, None)

        def active(record: WorkerRecord) -> WorkerRecord:
            return record if record.is_active_in(now) else record.active(now)

        if stored is None or not stored.record.is_active_in(now):
            for path in (*parents(worker), worker):
                self._note(path, active)

    def flush(self) -> None:
        """Write what was noted, and what was counted in half a minute.

        Raises nothing: while storage is away, it is kept.
        """
        if self._clock.monotonic() - self._noted_at >= _COUNTED_FOR:
            self.note_counted()
        with self._writes:
            with self._lock:
                noted = self._noted
                self._noted = {}
            for path, changes in noted.items():
                self._write(path, changes)

    def _write(self, path: RecordPath, changes: list[_Change]) -> None:
        try:
            self._change(path, partial(reduce, lambda record, change: change(record), changes))
        except Corrupt:
            pass  # the row is logged
        except ServiceUnavailable as error:
            if len(changes) > _MAX_NOTED:
                log.warning("worker-not-recorded", path="/".join(path), why=error.message)
                return
            with self._lock:
                self._noted[path] = [*changes, *self._noted.get(path, ())]
        except Exception:
            log.exception("worker-not-recorded", path="/".join(path))

    def quarantined_until(self, worker: RecordPath) -> datetime | None:
        """When the quarantine of the worker ends, None if it has none. Raises ServiceUnavailable."""
        stored = self._recall(worker)
        record = stored.record if stored else None
        return record.quarantine_until if record and record.is_quarantined(self._clock.now()) else None

    def callers(self) -> Sequence[WorkerRecord]:
        """The workers and clients whose calls for work are on record, of all pools: see
        ``with_polls``.
        """
        callers = self.callers_since(self._clock.now() - CALLS_KEPT)
        return with_polls([record for record in callers if record.path[:2] != READERS])

    def callers_since(
        self, time: datetime, provisioner_id: str | None = None, worker_type: str | None = None
    ) -> Sequence[WorkerRecord]:
        """The workers and clients whose last call was not before that time, of any pool where a name is None.

        Raises ServiceUnavailable.
        """
        self.note_counted()
        self.flush()
        return self._store.callers_since(time, provisioner_id, worker_type)

    def quarantine(
        self, worker: RecordPath, until: datetime, client_id: str = "", info: str = ""
    ) -> Mapping[str, Any]:
        """Quarantine the worker until then, a past time too; returns the body that getWorker answers.

        Records the client, and ``info``, its reason. The worker keeps its claims. Raises ResourceNotFound for
        a worker that is not known.
        """
        self.load(worker)
        now = self._clock.now()
        until = max(until, now)
        return self._changed(worker, lambda record: record.quarantined(until, now, client_id, info), now)

    def declare(self, path: RecordPath, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the properties in the body. Returns the body that describes the provisioner, pool or
        worker.

        Creates it and its parents if they are unknown. They expire no earlier than it. Raises InputError.
        """
        now = self._clock.now()
        expires = given(body, "expires", parse_time) if "expires" in body else now
        return self._changed(
            path, lambda record: record.active_by_declaration(now).declared(body, now), expires
        )

    def describe(self, path: RecordPath) -> Mapping[str, Any]:
        """The body that getProvisioner, getWorkerType or getWorker answers; raises ResourceNotFound."""
        return self._answer(self.load(path))

    def load(self, path: RecordPath) -> WorkerRecord:
        """The record of a provisioner, pool or worker; raises ResourceNotFound."""
        self.flush()
        stored = self._store.load(path)
        if stored is None or stored.record.kept_until <= self._clock.now():
            kind = ACTION_CONTEXTS[len(parents(path))].replace("-", " ")
            raise ResourceNotFound(f"there is no {kind} {'/'.join(path)}: never active, or expired")
        return stored.record

    def list(
        self,
        parent: RecordPath,
        after: RecordPath,
        limit: int,
        render: Callable[[WorkerRecord], bytes],
        is_quarantined: bool | None = None,
    ) -> Page[RecordPath]:
        """Up to ``limit`` records directly below ``parent`` behind the path ``after``, () for provisioners.

        ``is_quarantined`` selects the quarantined workers, or the others. A page that is not the last may be
        shorter than ``limit``.
        """

        def selected(record: WorkerRecord, now: datetime) -> WorkerRecord | None:
            return record if is_quarantined in (None, record.is_quarantined(now)) else None

        return self._page(partial(self._store.list, parent), after, limit, render, selected)

    def task_queues(
        self, after: RecordPath, limit: int, render: Callable[[WorkerRecord], bytes]
    ) -> Page[RecordPath]:
        """As ``list``, for the pools of all provisioners."""
        return self._page(self._store.worker_types, after, limit, render, lambda record, _: record)

    def provisioners_of_today(
        self, after: RecordPath, limit: int, render: Callable[[WorkerRecord], bytes]
    ) -> Page[RecordPath]:
        """As ``list``, for the provisioners as ``provisioner_of_today`` returns them."""
        return self._page(partial(self._store.list, ()), after, limit, render, self._of_its_pools)

    def provisioner_of_today(self, path: RecordPath) -> WorkerRecord:
        """The provisioner as today's queue has it: what its pools make it, which ends with the last of them.

        Raises ResourceNotFound, also if it has no pool.
        """
        record = self._of_its_pools(self.load(path), self._clock.now())
        if record is None:
            raise ResourceNotFound(f"there is no provisioner {path[0]}: it has no task queue now")
        return record

    def _of_its_pools(self, record: WorkerRecord, now: datetime) -> WorkerRecord | None:
        begin: RecordPath = ()

        def read(after: RecordPath, count: int) -> Sequence[WorkerRecord]:
            return self._store.list(record.path, after, count, now)

        pools = [*read_rows(read, lambda pool: pool.path, begin)]
        if not pools:
            return None
        expires = max(pool.expires for pool in pools)
        return replace(record, expires=expires, last_active=max(pool.last_active for pool in pools))

    def _page(
        self,
        ask: Callable[[RecordPath, int, datetime], Sequence[WorkerRecord]],
        after: RecordPath,
        limit: int,
        render: Callable[[WorkerRecord], bytes],
        selected: Callable[[WorkerRecord, datetime], WorkerRecord | None],
    ) -> Page[RecordPath]:
        self.flush()
        now = self._clock.now()

        def read(behind: RecordPath, count: int) -> Sequence[WorkerRecord]:
            return ask(behind, count, now)

        def item(record: WorkerRecord) -> bytes | None:
            shown = selected(record, now)
            return render(shown.as_of(now)) if shown else None

        return read_page(read, lambda record: record.path, after, limit, item)

    def _recall(self, path: RecordPath) -> StoredWorkerRecord | None:
        """The record as it was at most five seconds ago."""
        now = self._clock.monotonic()
        stored, known_at = self._known.get(path) or (None, None)
        if known_at is None or now - known_at >= _MAX_AGE:
            stored = None
            with suppress(Corrupt):  # the row is logged, and stays as it is
                stored = self._store.load(path)
            self._known.put(path, (stored, now))
        return stored

    def _note(self, path: RecordPath, change: _Change) -> None:
        with self._lock:
            self._noted.setdefault(path, []).append(change)

    def _changed(self, path: RecordPath, change: _Change, expires: datetime) -> Mapping[str, Any]:
        """Store the change, also of an unknown or expired record; returns the body that describes it.

        Its parents do not expire before ``expires``.
        """
        for parent in parents(path):
            with suppress(Corrupt):  # a corrupt parent fails only its own calls
                self._change(parent, lambda record: record.outliving(expires))
        return self._answer(self._change(path, change))

    def _change(self, path: RecordPath, change: _Change) -> WorkerRecord:
        """Store the result of ``change`` of the record, a new one if there is none.

        Needs no read if the record is known: if it has changed since, the write fails.
        """
        now = self._clock.now()
        stored, _ = self._known.get(path) or (None, None)
        for _ in range(_MAX_ATTEMPTS):
            stored = stored or self._store.load(path)
            record = change(stored.record.alive(now) if stored else WorkerRecord.new(path, now))
            if stored and record == stored.record:
                return record
            try:
                written = self._store.replace(stored, record) if stored else self._store.insert(record)
            except (AlreadyExists, Changed):
                stored = None
                continue
            self._known.put(path, (written, self._clock.monotonic()))
            return record
        raise ServiceUnavailable(f"{'/'.join(path)} is being changed by many callers, try again")

    def _answer(self, record: WorkerRecord) -> Mapping[str, Any]:
        record = record.as_of(self._clock.now())
        above = parents(record.path)
        if not above:
            return record.to_wire()
        stored = self._store.load(above[0])
        actions = stored.record.actions if stored else ()
        context = ACTION_CONTEXTS[len(above)]
        return {**record.to_wire(), "actions": [action for action in actions if action["context"] == context]}
