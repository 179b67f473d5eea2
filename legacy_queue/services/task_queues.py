"""How much there is to do in each task queue, read no more often than is worth it."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock

from legacy_queue.domain.task import Task
from legacy_queue.ports import Clock
from legacy_queue.services.listing import Listing
from legacy_queue.services.pages import Page
from legacy_queue.stores import Backlog, TaskStore

KNOWN_FOR = timedelta(seconds=2)  # the original's 20 s start machines for work that others have done
REST = 4  # times as long as a reading took, from its beginning, before the next one begins


@dataclass(eq=False)
class _Reading:
    """``until`` is when the backlog is read again; its result comes when it has been read."""

    begun: datetime
    backlog: Backlog
    until: "Future[datetime]" = field(default_factory=Future)

    def is_good(self, now: datetime) -> bool:
        """Whether it may be used, or waited for."""
        return not self.until.done() or (self.begun <= now < self.until.result() and not self.backlog.is_over)


class TaskQueues:
    """One reading of the table for all callers, whatever the task queue, and what this process did since.

    What other processes did is known within 2 s, or within four times as long as the reading takes, if that
    is more: so no more than a quarter of the time is spent on it. Raises ServiceUnavailable, also for the
    callers that share the reading; the next call reads again.
    """

    def __init__(self, tasks: TaskStore, listing: Listing, clock: Clock) -> None:
        self._tasks, self._listing, self._clock = tasks, listing, clock
        self._reading: _Reading | None = None
        self._lock = Lock()

    def counts(self, task_queue_ids: list[str]) -> list[tuple[int, int]]:
        """How many tasks of each are pending, and how many are claimed."""
        backlog = self._backlog()
        return [backlog.counts(one) for one in task_queue_ids]

    def tasks(
        self, task_queue_id: str, state: str, after: str, limit: int, render: Callable[[Task], bytes]
    ) -> Page[str]:
        """The tasks that are ``pending`` or ``running``, those first that have been so for the longest time.

        ``after`` is the place behind which the page begins, ``<time>/<taskId>``. No message is received.
        """
        places = self._backlog().places(task_queue_id, state, after, limit + 1)
        return self._listing.places(places, limit, lambda task: task.state == state, render)

    def _backlog(self) -> Backlog:
        with self._lock:
            reading, now = self._reading, self._clock.wall_time()
            is_known = reading is not None and reading.is_good(now)
            if reading is None or not is_known:
                reading = self._reading = _Reading(now, self._tasks.begin_backlog())
        if not is_known:
            self._read(reading)
        reading.until.result()
        return reading.backlog

    def _read(self, reading: _Reading) -> None:
        try:
            after: str | None = ""
            while after is not None:
                after = self._tasks.read_into(reading.backlog, after)
            took = self._clock.wall_time() - reading.begun
            reading.until.set_result(reading.begun + max(KNOWN_FOR, REST * took))
        except BaseException as error:  # also when the thread is being ended: others wait
            with self._lock:
                self._reading = None
            reading.until.set_exception(error)
            raise
