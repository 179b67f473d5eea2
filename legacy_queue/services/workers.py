"""Provisioners, worker types and workers: declared by people, seen by the queue, kept from work.

What workers do is noted in memory and written down now and then, who is new within a second: it costs a
claim nothing, and no failure here is one of a claim. The original failed claims that were
already made over it.
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

MAX_NOTED = 10_000  # provisioners, worker types and workers; as many are remembered
_WRITES_FOR = timedelta(seconds=2)  # at a time: others are to get their turn
MAX_NEW = 32  # new ones that are written at a time, of those that are written soon
_ATTEMPTS = 10


class Workers:
    """``record_claims`` and ``record_activity`` only note, never raise and never wait for storage."""

    def __init__(self, store: WorkerStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._quarantine = Quarantine(store, clock)
        self._noted: dict[Path, Activity] = {}  # who waits longest to be written comes first
        self._written: SharedLruCache[Path, StoredWorkerRecord] = SharedLruCache(MAX_NOTED)
        self._dropped = 0
        self._lock, self._writing_new = Lock(), Lock()

    def record_claims(
        self, provisioner_id: str, worker_type: str, worker: Worker, claims: Sequence[Claimed]
    ) -> None:
        """The worker has claimed those runs, in that order."""
        self._note(worker_path(provisioner_id, worker_type, worker), tuple(claims[-RECENT_TASKS:]))

    def record_activity(self, provisioner_id: str, worker_type: str, worker: Worker | None = None) -> None:
        """Somebody of that worker type, or that worker, is at work or asks for it."""
        pool = provisioner_id, worker_type
        self._note(worker_path(*pool, worker) if worker else pool, ())

    def quarantined_until(self, provisioner_id: str, worker_type: str, worker: Worker) -> datetime | None:
        """When the worker may have work again, None for one that may now; raises ServiceUnavailable.

        It costs a storage operation in 5 s, however often it is asked.
        """
        return self._quarantine.until(worker_path(provisioner_id, worker_type, worker))

    def is_quarantined(self, provisioner_id: str, worker_type: str, worker: Worker) -> bool:
        """Whether the worker is to get no work now; as ``quarantined_until``."""
        return self.quarantined_until(provisioner_id, worker_type, worker) is not None

    def quarantine(
        self, worker: Path, until: datetime, client_id: str = "", info: str = ""
    ) -> Mapping[str, Any]:
        """Keep the worker from work until then, which may be in the past; the body that getWorker answers.

        It is kept who asked for it, and ``info``, why. What the worker has claimed stays its own. One that is
        not known comes into being, with those that it belongs to: another process may have seen it just now.
        """
        now = self._clock.now()
        until = max(until, now)
        self._quarantine.put(worker, until)
        return self._changed(worker, lambda known: known.quarantined(until, now, client_id, info))

    def declare(self, path: Path, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store what the body gives of a provisioner, worker type or worker, and that it is active now; leave
        the rest as it is.

        They, and those that they belong to, come into being where they are not known. The body that describes
        them; raises InputError.
        """
        now = self._clock.now()
        active = Activity(now, now)
        return self._changed(path, lambda known: known.after(active).declared(body, now))

    def describe(self, path: Path) -> Mapping[str, Any]:
        """The body that getProvisioner, getWorkerType or getWorker answers; raises ResourceNotFound."""
        return self._answer(self.load(path))

    def load(self, path: Path) -> WorkerRecord:
        """What is known of a provisioner, worker type or worker; raises ResourceNotFound."""
        stored = self._store.load(path)
        known = self._with_noted(path, stored.record if stored else None)
        if known is None or known.kept_until <= self._clock.now():
            kind = ACTION_CONTEXTS[len(parents(path))].replace("-", " ")
            raise ResourceNotFound(f"there is no {kind} {'/'.join(path)}: it was never seen, or has expired")
        return known

    def list(
        self,
        parent: Path,
        after: Path,
        limit: int,
        render: Callable[[WorkerRecord], bytes],
        is_quarantined: bool | None = None,
    ) -> Page[Path]:
        """Up to ``limit`` of those right below ``parent``, () for provisioners, behind the path ``after``.

        ``is_quarantined`` asks for only such workers, or for all others. The page may be shorter than asked
        for, and not be the last. Who is new to this process is written down first, as by ``flush_new``.
        """
        return self._page(partial(self._store.list, parent), after, limit, render, is_quarantined)

    def task_queues(self, after: Path, limit: int, render: Callable[[WorkerRecord], bytes]) -> Page[Path]:
        """As ``list``, the worker types of all provisioners."""
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
            known = (self._with_noted(stored.path, stored) or stored).as_of(now)
            is_asked_for = is_quarantined in (None, known.is_quarantined(now))
            return render(known) if is_asked_for and known.kept_until > now else None

        return read_page(ask, lambda known: known.path, after, limit, item)

    def flush(self) -> None:
        """Write down what was noted, until it is done or two seconds are over; the rest is kept.

        Raises ServiceUnavailable, and then all is kept that was not written.
        """
        end = self._clock.wall_time() + _WRITES_FOR
        for path in [*self._noted]:
            if self._clock.wall_time() > end:
                break
            self._write(path)
        if self._dropped:
            log.warning("worker-activity-dropped", count=self._dropped)
            self._dropped = 0

    def flush_new(self) -> None:
        """Write down some who were seen and are new to this process, so that others see them soon.

        Each is written once more than by ``flush`` alone, at most. While storage is away ``flush`` says so.
        Does nothing while another thread is at it.
        """
        if self._writing_new.acquire(blocking=False):
            try:
                new = [path for path in [*self._noted] if not self._written.get(path)]
                for path in new[:MAX_NEW]:
                    self._write(path)
            except ServiceUnavailable:
                pass
            finally:
                self._writing_new.release()

    def _note(self, path: Path, claims: tuple[Claimed, ...]) -> None:
        now = self._clock.now()
        with self._lock:
            for one in (*parents(path), path):
                activity = Activity(now, now, claims if one == path else ())
                written, noted = self._written.get(one), self._noted.get(one)
                if noted:
                    self._noted[one] = noted.then(activity)
                elif written and not written.record.needs_write(activity):
                    continue
                elif len(self._noted) < MAX_NOTED:
                    self._noted[one] = activity
                else:
                    self._dropped += 1

    def _write(self, path: Path) -> None:
        activity = self._noted.get(path)
        if activity is None:
            return
        try:
            self._change(path, lambda known: _active(known, path, activity), self._written.get(path))
        except ServiceUnavailable:
            raise
        except Corrupt:
            pass  # it is logged, and read again when they are active again
        except Exception:
            log.exception("activity-not-written", path="/".join(path))
        with self._lock:
            noted = self._noted.pop(path, activity)
            if noted is not activity:  # more happened meanwhile: it is safe to write the first part again
                self._noted[path] = noted

    def _changed(self, path: Path, change: Callable[[WorkerRecord], WorkerRecord]) -> Mapping[str, Any]:
        """Store the change, also of who was not known or has expired; the body that describes them."""
        now = self._clock.now()
        for parent in parents(path):
            with suppress(Corrupt):  # its own matter
                self._change(parent, partial(_alive, parent, now))
        return self._answer(self._change(path, lambda known: change(_alive(path, now, known))))

    def _change(
        self,
        path: Path,
        change: Callable[[WorkerRecord | None], WorkerRecord],
        stored: StoredWorkerRecord | None = None,
    ) -> WorkerRecord:
        """Store what ``change`` makes of what is known; ``stored`` may be old."""
        for _ in range(_ATTEMPTS):
            stored = stored or self._store.load(path)
            known = change(stored.record if stored else None)
            try:
                if stored is None:
                    stored = self._store.insert(known)
                elif known != stored.record:
                    stored = self._store.replace(stored, known)
            except (AlreadyExists, Changed):
                stored = None
                continue
            self._written.put(path, stored)
            return known
        raise ServiceUnavailable(f"{'/'.join(path)} is being changed by many at once, try again")

    def _with_noted(self, path: Path, known: WorkerRecord | None) -> WorkerRecord | None:
        activity = self._noted.get(path)
        return _active(known, path, activity) if activity else known

    def _answer(self, known: WorkerRecord) -> Mapping[str, Any]:
        known = (self._with_noted(known.path, known) or known).as_of(self._clock.now())
        above = parents(known.path)
        if not above:
            return known.to_wire()
        stored = self._store.load(above[0])
        actions = stored.record.actions if stored else ()
        context = ACTION_CONTEXTS[len(above)]
        return {**known.to_wire(), "actions": [one for one in actions if one["context"] == context]}


def _alive(path: Path, now: datetime, known: WorkerRecord | None) -> WorkerRecord:
    """What is known, unless it has expired and was only not removed yet."""
    return known if known and known.kept_until > now else WorkerRecord.new(path, now)


def _active(known: WorkerRecord | None, path: Path, activity: Activity) -> WorkerRecord:
    if known is None:
        known = WorkerRecord.new(path, activity.first)
    return known.after(activity) if known.needs_write(activity) else known
