"""The jobs that a process does without a request: what each is for, how often it is done, and its defaults.

Each process does these for its own calls, in the threads of ``Background``:

* ``tick`` writes the row of the process to show that it is alive, and hands the due tasks to the resolver.
* ``RESOLVERS`` threads of the resolver look at these tasks. They repeat the effects that a call did not
  complete, end claims after takenUntil, and end tasks after their deadlines.
* ``flush`` stores the counts of the calls of workers.
* ``check`` asks whether the broker is there. When it is back, unpublished events are published.

Each process also does this for the others:

* ``read`` reads their rows. If a process has died, this one does what it left unfinished.

Only the process with the lowest name does ``periodic_jobs``, a page at a time.

Source: docs/explanation/recovery.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.services.process.liveness import READ_EVERY

# Threads of the resolver. They are few, so that many tasks do not make calls slow.
RESOLVERS = 2
# A failed look is tried again after 2, 4, 8 s and so on. After the last try, the sweeper checks the task.
MAX_TRIES = 10
# Time between tries while storage is away, and before the first retry while the broker is away.
RETRY_DELAY = timedelta(seconds=2)
# Longest time between tries after an error, or while the broker is away.
MAX_RETRY_DELAY = timedelta(minutes=2)

# Rows of a page. The pause after a page is as long as the page took, up to MAX_PAUSE. So on embedded storage
# half of the time is left for calls, and on Azure, where a page mostly waits, the pause stays short.
PAGE = 100
MAX_PAUSE = timedelta(seconds=0.1)
# After this time, it is the next job's turn. So a job that takes an hour delays the others only by seconds.
TURN = timedelta(seconds=5)
_SWEEP_INTERVAL = timedelta(minutes=10)
_EXPIRE_INTERVAL = timedelta(hours=1)


@dataclass(frozen=True)
class Intervals:
    """How often a process does each of its own jobs."""

    tick: timedelta = timedelta(seconds=0.5)
    flush: timedelta = timedelta(seconds=1)
    check: timedelta = timedelta(seconds=1)
    read: timedelta = READ_EVERY


# (after, limit, when the previous pass began) -> where the next page begins, None at the end
PageStep = Callable[[str, int, datetime | None], str | None]


@dataclass(frozen=True)
class PeriodicJob:
    """A job that one process does for all, page by page.

    ``step`` does one page. After the last page, the next pass begins after ``period``.
    """

    name: str
    period: timedelta
    step: PageStep


def periodic_jobs(
    *,
    sweep_tasks: PageStep,
    sweep_groups: PageStep,
    expire_artifacts: PageStep,
    discard_blocks: PageStep,
    expire: Mapping[str, PageStep],
) -> list[PeriodicJob]:
    """Returns the jobs that only one process does at a time."""
    return [
        # a lost message of an unresolved task, or an effect that a dead process left out
        PeriodicJob("sweep-tasks", _SWEEP_INTERVAL, sweep_tasks),
        PeriodicJob("sweep-members", _SWEEP_INTERVAL, sweep_groups),
        # expired artifacts with their bytes, and parts of uploads that were never finished
        PeriodicJob("expire-artifacts", _EXPIRE_INTERVAL, expire_artifacts),
        PeriodicJob("discard-blocks", _EXPIRE_INTERVAL, discard_blocks),
        # the expired rows of every other kind
        *(PeriodicJob(f"expire-{kind}", _EXPIRE_INTERVAL, step) for kind, step in expire.items()),
    ]
