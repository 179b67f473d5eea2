"""What a process does without a request: what each job is for, when it is done, and its defaults.

Each process, for its own calls (``Background`` has the threads):

* ``tick``: it shows that the process lives, by its row, and gives what is due to the resolver.
* ``RESOLVERS`` threads of the resolver look at these tasks: they repeat the effects that a call has left
  missing, and end a claim or a task whose time is over.
* ``flush`` stores what it has counted of the calls of workers.
* ``check`` asks for the broker: when it is back, unpublished events are published.

Each process, for the calls of all:

* ``read``: it reads the rows of the others. What a process that died owed is done here.

The process with the lowest name, in pages: ``periodic_jobs``.

Source: docs/explanation/recovery.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from legacy_queue.services.process.liveness import READ_EVERY

# Threads of the resolver: few, so that many tasks do not slow calls.
RESOLVERS = 2
# Tries of a look that fails, 2, 4, 8 s apart and so on. After the last, the sweeper checks its task.
MAX_TRIES = 10
# Between tries while storage is away; while the broker is, the first.
RETRY_DELAY = timedelta(seconds=2)
# Between tries after an error, or while the broker is away.
MAX_RETRY_DELAY = timedelta(minutes=2)

# Rows of a page. The pause after it is as long as it took, up to MAX_PAUSE: half of the time is left to calls
# where the work is this process's own, and a page that waits for Azure is not held up much longer.
PAGE = 100
MAX_PAUSE = timedelta(seconds=0.1)
# Then the next job goes on: so one that takes an hour holds the others up for seconds.
TURN = timedelta(seconds=5)
_SWEEP_INTERVAL = timedelta(minutes=10)
_EXPIRE_INTERVAL = timedelta(hours=1)


@dataclass(frozen=True)
class Intervals:
    """How often a process does each job of its own."""

    tick: timedelta = timedelta(seconds=0.5)
    flush: timedelta = timedelta(seconds=1)
    check: timedelta = timedelta(seconds=1)
    read: timedelta = READ_EVERY


# (after, limit, begin of the previous pass) -> where to go on, None at the end
PageStep = Callable[[str, int, datetime | None], str | None]


@dataclass(frozen=True)
class PeriodicJob:
    """``step`` does one page. The next pass through all pages begins ``period`` after the end of this one."""

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
    """The jobs that one process at a time does."""
    return [
        # what storage has lost: a message of an unresolved task, or what a process owed to it or to its group
        PeriodicJob("sweep-tasks", _SWEEP_INTERVAL, sweep_tasks),
        PeriodicJob("sweep-members", _SWEEP_INTERVAL, sweep_groups),
        # rows of expired artifacts with their bytes, and parts of uploads that nothing finished
        PeriodicJob("expire-artifacts", _EXPIRE_INTERVAL, expire_artifacts),
        PeriodicJob("discard-blocks", _EXPIRE_INTERVAL, discard_blocks),
        # expired rows of each other kind
        *(PeriodicJob(f"expire-{kind}", _EXPIRE_INTERVAL, step) for kind, step in expire.items()),
    ]
