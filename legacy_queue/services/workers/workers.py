"""Declares, quarantines and lists provisioners, pools and workers, and records their activity."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from legacy_queue.domain.call_statistics import CallKind, Calls, caller_name
from legacy_queue.domain.errors import ResourceNotFound
from legacy_queue.domain.ids import RunKey
from legacy_queue.domain.times import parse_field, parse_time
from legacy_queue.domain.worker_record import (
    ACTION_CONTEXTS,
    PoolPath,
    ProvisionerPath,
    RecordPath,
    RecordPlace,
    WorkerPath,
    WorkerRecord,
    parents,
)
from legacy_queue.ports import Clock, Corrupt
from legacy_queue.services.pagination import Page, read_page, read_rows
from legacy_queue.services.workers.buffered_rows import BufferedRows
from legacy_queue.stores import WorkerRow, WorkerStore

_RecordChange = Callable[[WorkerRecord], WorkerRecord]


class Workers:
    """The records of provisioners, pools and workers.

    Declarations and quarantines are written at once, activity and claims soon after the call. If another
    process quarantines a worker, this takes effect here within five seconds.
    """

    def __init__(self, rows: BufferedRows[RecordPath, WorkerRow], store: WorkerStore, clock: Clock) -> None:
        self._rows = rows
        self._store = store
        self._clock = clock

    @contextmanager
    def call(self, worker: WorkerPath, kind: CallKind, client_id: str = "") -> Iterator[list[RunKey]]:
        """Returns a context for a call of the worker. Put the runs that it claims into the list.

        At the end the call and its claims are recorded, even if the call fails. ``client_id`` is the client
        that may have polled for the worker.
        """
        claims: list[RunKey] = []
        self.record_activity(worker)
        try:
            yield claims
        finally:
            now = self._clock.now()
            client = caller_name(client_id)

            def called(row: WorkerRow) -> WorkerRow:
                statistics = row.statistics.counted(kind, Calls(1, now, now), client)
                return WorkerRow(row.record.alive(now).active(now, claims), statistics, row.etag)

            self._rows.note(worker, called)

    def record_activity(self, path: PoolPath | WorkerPath) -> None:
        """Record, at most every half hour, that the pool or worker and its parents are active."""
        now = self._clock.now()
        cached = self._rows.cached(path)

        def active(row: WorkerRow) -> WorkerRow:
            record = row.record.alive(now)
            return replace(row, record=record if record.is_active_in(now) else record.active(now))

        if cached is None or not cached.record.is_active_in(now):
            for each in (*parents(path), path):
                self._rows.note(each, active)

    def flush(self) -> None:
        """Write what calls have recorded. Raises nothing: while storage is away, it is kept."""
        self._rows.flush()

    def quarantined_until(self, worker: WorkerPath) -> datetime | None:
        """Returns when the quarantine of the worker ends, None without one. Raises ServiceUnavailable."""
        row = self._rows.recent(worker)
        until = row.record.quarantine_until if row else None
        return until if until and until > self._clock.now() else None

    def quarantine(
        self, worker: WorkerPath, until: datetime, client_id: str = "", info: str = ""
    ) -> Mapping[str, Any]:
        """Quarantine the worker until ``until``. Returns the body for an answer of getWorker.

        A time in the past ends a quarantine. Records the client and its reason, ``info``. The worker keeps
        its claims. Raises ResourceNotFound if the worker is unknown.
        """
        self.load(worker)
        now = self._clock.now()
        until = max(until, now)
        return self._changed(worker, lambda record: record.quarantined(until, now, client_id, info), now)

    def declare(self, path: RecordPath, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the properties in the body. Returns the body that describes the provisioner, pool or worker.

        Creates unknown records, and unknown parents. Parents do not expire before it. Raises InputError.
        """
        now = self._clock.now()
        expires = parse_field(body, "expires", parse_time) if "expires" in body else now
        return self._changed(
            path, lambda record: record.active_by_declaration(now).declared(body, now), expires
        )

    def describe(self, path: RecordPath) -> Mapping[str, Any]:
        """Returns the body for getProvisioner, getWorkerType or getWorker. Raises ResourceNotFound."""
        return self._answer(self.load(path))

    def load(self, path: RecordPath) -> WorkerRecord:
        """Returns the record of a provisioner, pool or worker. Raises ResourceNotFound."""
        self._rows.flush()
        row = self._store.load(path)
        record = row.record if row else None
        if record is None or record.kept_until <= self._clock.now():
            kind = ACTION_CONTEXTS[type(path)].replace("-", " ")
            raise ResourceNotFound(
                f"there is no {kind} {'/'.join(path)}: it was never active, or has expired"
            )
        return record

    def list(
        self,
        parent: ProvisionerPath | PoolPath | None,
        after: RecordPlace,
        limit: int,
        render: Callable[[WorkerRecord], bytes],
        is_quarantined: bool | None = None,
    ) -> Page[RecordPlace]:
        """Returns up to ``limit`` records directly below ``parent`` that come after ``after``.

        If ``parent`` is None, these are provisioners. ``is_quarantined`` selects the quarantined workers, or
        the others. A page before the last may be shorter than ``limit``.
        """

        def selected(record: WorkerRecord, now: datetime) -> WorkerRecord | None:
            return record if is_quarantined in (None, record.is_quarantined(now)) else None

        return self._page(partial(self._store.list, parent), after, limit, render, selected)

    def task_queues(
        self, after: RecordPlace, limit: int, render: Callable[[WorkerRecord], bytes]
    ) -> Page[RecordPlace]:
        """Lists the pools of all provisioners: see ``list``."""
        return self._page(self._store.worker_types, after, limit, render, lambda record, _: record)

    def provisioners_of_today(
        self, after: RecordPlace, limit: int, render: Callable[[WorkerRecord], bytes]
    ) -> Page[RecordPlace]:
        """Lists provisioners as ``provisioner_of_today`` returns them: see ``list``."""
        return self._page(partial(self._store.list, None), after, limit, render, self._of_its_pools)

    def provisioner_of_today(self, path: ProvisionerPath) -> WorkerRecord:
        """Returns the provisioner as today's queue shows it: derived from its pools, gone with the last.

        Raises ResourceNotFound, also if it has no pool.
        """
        record = self._of_its_pools(self.load(path), self._clock.now())
        if record is None:
            raise ResourceNotFound(
                f"there is no provisioner {path.provisioner_id}: it has no task queue any more"
            )
        return record

    def _of_its_pools(self, record: WorkerRecord, now: datetime) -> WorkerRecord | None:
        begin: RecordPlace = ()
        provisioner = ProvisionerPath(record.path.provisioner_id)

        def read(after: RecordPlace, count: int) -> Sequence[WorkerRecord]:
            return self._store.list(provisioner, after, count, now)

        pools = [*read_rows(read, lambda pool: pool.path, begin)]
        if not pools:
            return None
        expires = max(pool.expires for pool in pools)
        return replace(record, expires=expires, last_active=max(pool.last_active for pool in pools))

    def _page(
        self,
        ask: Callable[[RecordPlace, int, datetime], Sequence[WorkerRecord]],
        after: RecordPlace,
        limit: int,
        render: Callable[[WorkerRecord], bytes],
        selected: Callable[[WorkerRecord, datetime], WorkerRecord | None],
    ) -> Page[RecordPlace]:
        self._rows.flush()
        now = self._clock.now()

        def read(behind: RecordPlace, count: int) -> Sequence[WorkerRecord]:
            return ask(behind, count, now)

        def item(record: WorkerRecord) -> bytes | None:
            shown = selected(record, now)
            return render(shown.as_of(now)) if shown else None

        return read_page(read, lambda record: record.path, after, limit, item)

    def _changed(self, path: RecordPath, change: _RecordChange, expires: datetime) -> Mapping[str, Any]:
        """Store the change, even if the record is unknown or expired. Returns the body that describes it.

        Its parents do not expire before ``expires``.
        """
        for parent in parents(path):
            with suppress(Corrupt):  # a corrupt parent must not fail calls for its children
                self._change(parent, lambda record: record.outliving(expires))
        return self._answer(self._change(path, change))

    def _change(self, path: RecordPath, change: _RecordChange) -> WorkerRecord:
        now = self._clock.now()
        return self._rows.change(path, lambda row: replace(row, record=change(row.record.alive(now)))).record

    def _answer(self, record: WorkerRecord) -> Mapping[str, Any]:
        record = record.as_of(self._clock.now())
        above = parents(record.path)
        if not above:
            return record.to_wire()
        row = self._store.load(above[0])
        actions = row.record.actions if row else ()
        context = ACTION_CONTEXTS[type(record.path)]
        return {**record.to_wire(), "actions": [action for action in actions if action["context"] == context]}
