"""What a process does without a request: what each job is for, when it is done, and its defaults.

Each process, for its own calls (``Background`` has the threads):

* ``tick``: it replaces rows of timers before they are due, and hands the timers that fired to the resolver.
* ``RESOLVERS`` threads of the resolver ``advance`` the tasks of these: they repeat the effects that a call
  has left missing, and end a claim or a task whose time is over.
* ``flush`` stores what it has counted of the calls of workers.
* ``check`` asks for the broker: when it is back, unpublished events are published.

Each process, for the calls of all:

* ``receive`` takes the rows of timers that are due: what a process that died was working on goes on here.

One process at a time, by a lease, in pages: ``periodic_jobs``.

Source: docs/explanation/recovery.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

# A row of a timer about missing effects is due after it. A call that takes longer has its row replaced.
TIMER_LEASE = timedelta(seconds=15)
# The same of effects that wait for a retry, as for the broker: no call is under way that could need the time.
RETRY_LEASE = timedelta(seconds=24)
# Threads of the resolver: few, so that many timers do not slow calls.
RESOLVERS = 2
# Tries of a timer that fails, 2, 4, 8 s apart and so on. After the last, the sweeper checks its task.
MAX_TRIES = 10
# Between tries while storage is away; while the broker is, the first.
RETRY_DELAY = timedelta(seconds=2)
# Between tries after an error, or while the broker is away.
MAX_RETRY_DELAY = timedelta(minutes=2)

# A periodic job goes on elsewhere after it. Longer than a page takes, since it is renewed after each; short,
# so that another process soon continues for a dead one. A page that takes longer is done by another process,
# too: its steps are safe to repeat.
JOB_LEASE = timedelta(seconds=25)
# Rows of a page. The pause after it is as long as it took, up to MAX_PAUSE: half of the time is left to calls
# where the work is this process's own, and a page that waits for Azure is not held up much longer.
PAGE = 100
MAX_PAUSE = timedelta(seconds=0.1)
# Then the next job goes on: so one that takes an hour holds the others up for seconds.
TURN = timedelta(seconds=5)
_SWEEP_INTERVAL = timedelta(minutes=10)
_EXPIRE_INTERVAL = timedelta(hours=1)
_ENROLL_INTERVAL = timedelta(days=1)


@dataclass(frozen=True)
class Pace:
    """How often a process does each job of its own."""

    tick: timedelta = timedelta(seconds=0.5)
    flush: timedelta = timedelta(seconds=1)
    check: timedelta = timedelta(seconds=1)
    # with RETRY_LEASE, the longer: the work of a killed process goes on within 30 s
    receive: timedelta = timedelta(seconds=5)


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
    enroll_founders: PageStep,
    expire: Mapping[str, PageStep],
) -> list[PeriodicJob]:
    """The jobs that one process at a time does."""
    return [
        # a message or a timer that storage has lost: of an unresolved task, of the end of a group's member
        PeriodicJob("sweep-tasks", _SWEEP_INTERVAL, sweep_tasks),
        PeriodicJob("sweep-members", _SWEEP_INTERVAL, sweep_groups),
        # rows of expired artifacts with their bytes, and parts of uploads that nothing finished
        PeriodicJob("expire-artifacts", _EXPIRE_INTERVAL, expire_artifacts),
        PeriodicJob("discard-blocks", _EXPIRE_INTERVAL, discard_blocks),
        # members that 0.1.0 stored without a row of their group
        PeriodicJob("enroll-founders", _ENROLL_INTERVAL, enroll_founders),
        # expired rows of each other kind
        *(PeriodicJob(f"expire-{kind}", _EXPIRE_INTERVAL, step) for kind, step in expire.items()),
    ]
