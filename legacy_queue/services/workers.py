"""The records of provisioners, worker types and workers: declared, active, quarantined.

Activity is recorded in memory and written to storage in the background, new workers within a second. So it
costs a claim nothing, and a failure here fails no claim. In the original it failed claims that were made.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import Any

import structlog

from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.task import Worker
from legacy_queue.domain.worker_record import (
    ACTION_CONTEXTS,
    RECENT_TASKS,
    Activity,
    Claimed,
    Path,
    WorkerRecord,
    parents,
    worker_path,
)
from legacy_queue.ports import AlreadyExists, Changed, Clock, Corrupt
from legacy_queue.services.pages import Page, read_page
from legacy_queue.services.quarantine import Quarantine
from legacy_queue.stores import StoredWorkerRecord, WorkerStore
from legacy_queue.stores.lru_cache import SharedLruCache

log = structlog.get_logger()

_MAX_WRITE_TIME = timedelta(seconds=2)  # then other background work continues
MAX_NEW = 32  # new records that are written at a time
_MAX_ATTEMPTS = 10


class Workers:
    """``record_claims`` and ``record_activity`` never raise and never wait for storage."""

    def __init__(self, store: WorkerStore, clock: Clock, max_records: int = 10_000) -> None:
        """At most ``max_records`` have unwritten activity, and as many that are written are remembered."""
        self._store, self._clock, self._max_records = store, clock, max_records
        self._quarantine = Quarantine(store, clock)
        self._unwritten: dict[Path, Activity] = {}  # the oldest first
        self._written: SharedLruCache[Path, StoredWorkerRecord] = SharedLruCache(max_records)
        self._dropped = 0
        self._lock, self._writing_new = Lock(), Lock()

    def record_claims(
        self, provisioner_id: str, worker_type: str, worker: Worker, claims: Sequence[Claimed]
    ) -> None:
        """The worker has claimed these runs, in this order."""
        self._record(worker_path(provisioner_id, worker_type, worker), tuple(claims[-RECENT_TASKS:]))

    def record_activity(self, provisioner_id: str, worker_type: str, worker: Worker | None = None) -> None:
        """The worker, or a worker of the type, works or asks for work."""
        pool = provisioner_id, worker_type
        self._record(worker_path(*pool, worker) if worker else pool, ())

    def quarantined_until(self, provisioner_id: str, worker_type: str, worker: Worker) -> datetime | None:
        """When the worker's quarantine ends, None if it has none. Raises ServiceUnavailable.

        All calls together cost one storage operation in 5 s.
        """
        return self._quarantine.until(worker_path(provisioner_id, worker_type, worker))

    def quarantine(
        self, worker: Path, until: datetime, client_id: str = "", info: str = ""
    ) -> Mapping[str, Any]:
        """Quarantine the worker until then, a past time too; returns the body that getWorker answers.

        Records the client, and ``info``, its reason. The worker keeps its claims. Raises ResourceNotFound for
        a worker that is not known; a new worker is known to other processes within a second.
        """
        self.load(worker)
        now = self._clock.now()
        until = max(until, now)
        self._quarantine.put(worker, until)
        return self._changed(worker, lambda record: record.quarantined(until, now, client_id, info))

    def declare(self, path: Path, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store the properties in the body, and that the provisioner, worker type or worker is active now.

        Creates it and its parents if they are unknown. Returns the body that describes it. Raises InputError.
        """
        now = self._clock.now()
        active = Activity(now, now)
        return self._changed(path, lambda record: record.after(active).declared(body, now))

    def describe(self, path: Path) -> Mapping[str, Any]:
        """The body that getProvisioner, getWorkerType or getWorker answers; raises ResourceNotFound."""
        return self._answer(self.load(path))

    def load(self, path: Path) -> WorkerRecord:
        """The record of a provisioner, worker type or worker; raises ResourceNotFound."""
        stored = self._store.load(path)
        record = self._with_unwritten(path, stored.record if stored else None)
        if record is None or record.kept_until <= self._clock.now():
            kind = ACTION_CONTEXTS[len(parents(path))].replace("-", " ")
            raise ResourceNotFound(f"there is no {kind} {'/'.join(path)}: never active, or expired")
        return record

    def list(
        self,
        parent: Path,
        after: Path,
        limit: int,
        render: Callable[[WorkerRecord], bytes],
        is_quarantined: bool | None = None,
    ) -> Page[Path]:
        """Up to ``limit`` records directly below ``parent`` behind the path ``after``, () for provisioners.

        ``is_quarantined`` selects the quarantined workers, or the others. A page that is not the last may be
        shorter than ``limit``. Writes new records first, as ``flush_new``.
        """
        return self._page(partial(self._store.list, parent), after, limit, render, is_quarantined)

    def task_queues(self, after: Path, limit: int, render: Callable[[WorkerRecord], bytes]) -> Page[Path]:
        """As ``list``, for the worker types of all provisioners."""
        return self._page(self._store.worker_types, after, limit, render)

    def _page(
        self,
        ask: Callable[[Path, int], Sequence[WorkerRecord]],
        after: Path,
        limit: int,
        render: Callable[[WorkerRecord], bytes],
        is_quarantined: bool | None = None,
    ) -> Page[Path]:
        self.flush_new()
        now = self._clock.now()

        def item(stored: WorkerRecord) -> bytes | None:
            record = (self._with_unwritten(stored.path, stored) or stored).as_of(now)
            is_selected = is_quarantined in (None, record.is_quarantined(now))
            return render(record) if is_selected and record.kept_until > now else None

        return read_page(ask, lambda record: record.path, after, limit, item)

    def flush(self) -> None:
        """Write recorded activity to storage, for up to two seconds; the rest stays in memory.

        Raises ServiceUnavailable; unwritten activity then stays in memory, too.
        """
        end = self._clock.wall_time() + _MAX_WRITE_TIME
        for path in [*self._unwritten]:
            if self._clock.wall_time() > end:
                break
            self._write(path)
        if self._dropped:
            log.warning("worker-activity-dropped", count=self._dropped)
            self._dropped = 0

    def flush_new(self) -> None:
        """Write some of the records that are new to this process, so that other processes see them soon.

        Costs at most one write more for each record than ``flush`` alone. Raises nothing. Does nothing while
        another thread does it.
        """
        if self._writing_new.acquire(blocking=False):
            try:
                new = [path for path in [*self._unwritten] if not self._written.get(path)]
                for path in new[:MAX_NEW]:
                    self._write(path)
            except ServiceUnavailable:
                pass
            finally:
                self._writing_new.release()

    def _record(self, path: Path, claims: tuple[Claimed, ...]) -> None:
        now = self._clock.now()
        with self._lock:
            for level in (*parents(path), path):
                activity = Activity(now, now, claims if level == path else ())
                written, unwritten = self._written.get(level), self._unwritten.get(level)
                if unwritten:
                    self._unwritten[level] = unwritten.then(activity)
                elif written and not written.record.needs_write(activity):
                    continue
                elif len(self._unwritten) < self._max_records:
                    self._unwritten[level] = activity
                else:
                    self._dropped += 1

    def _write(self, path: Path) -> None:
        activity = self._unwritten.get(path)
        if activity is None:
            return
        try:
            self._change(path, lambda record: _active(record, path, activity), self._written.get(path))
        except ServiceUnavailable:
            raise
        except Corrupt:
            pass  # it is logged; the next activity reads it again
        except Exception:
            log.exception("activity-not-written", path="/".join(path))
        with self._lock:
            latest = self._unwritten.pop(path, activity)
            if latest is not activity:  # there is more by now: it is safe to write the first part again
                self._unwritten[path] = latest

    def _changed(self, path: Path, change: Callable[[WorkerRecord], WorkerRecord]) -> Mapping[str, Any]:
        """Store the change, also of an unknown or expired record; returns the body that describes it."""
        now = self._clock.now()
        for parent in parents(path):
            with suppress(Corrupt):  # a corrupt parent fails only its own calls
                self._change(parent, partial(_alive, parent, now))
        return self._answer(self._change(path, lambda record: change(_alive(path, now, record))))

    def _change(
        self,
        path: Path,
        change: Callable[[WorkerRecord | None], WorkerRecord],
        stored: StoredWorkerRecord | None = None,
    ) -> WorkerRecord:
        """Store the result of ``change``, which gets the record, if any; ``stored`` may be old."""
        for _ in range(_MAX_ATTEMPTS):
            stored = stored or self._store.load(path)
            record = change(stored.record if stored else None)
            try:
                if stored is None:
                    stored = self._store.insert(record)
                elif record != stored.record:
                    stored = self._store.replace(stored, record)
            except (AlreadyExists, Changed):
                stored = None
                continue
            self._written.put(path, stored)
            return record
        raise ServiceUnavailable(f"{'/'.join(path)} is being changed by many callers, try again")

    def _with_unwritten(self, path: Path, record: WorkerRecord | None) -> WorkerRecord | None:
        activity = self._unwritten.get(path)
        return _active(record, path, activity) if activity else record

    def _answer(self, record: WorkerRecord) -> Mapping[str, Any]:
        record = (self._with_unwritten(record.path, record) or record).as_of(self._clock.now())
        above = parents(record.path)
        if not above:
            return record.to_wire()
        stored = self._store.load(above[0])
        actions = stored.record.actions if stored else ()
        context = ACTION_CONTEXTS[len(above)]
        return {**record.to_wire(), "actions": [action for action in actions if action["context"] == context]}


def _alive(path: Path, now: datetime, record: WorkerRecord | None) -> WorkerRecord:
    """The record, or a new record if there is none or it has expired."""
    return record if record and record.kept_until > now else WorkerRecord.new(path, now)


def _active(record: WorkerRecord | None, path: Path, activity: Activity) -> WorkerRecord:
    if record is None:
        record = WorkerRecord.new(path, activity.first)
    return record.after(activity) if record.needs_write(activity) else record
