"""A random run, decided by its seed: some minutes of tasks, workers and faults, then calm until the end."""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import structlog

from legacy_queue.services.recovery.job_definitions import Intervals
from tests.simulation.promises import Broken, Record
from tests.simulation.workload import EXPIRES, POOLS, PROTOCOLS, Scheduler, SimulatedWorker
from tests.simulation.world import Faults, World

FAULTS = Faults(
    refused=0.01,
    unanswered=0.01,
    repeated=0.01,
    slow=0.002,
    paged=0.2,
    lost=0.01,
    doubled=0.02,
    late=0.01,
    forged=0.01,
    misplaced=0.01,
    forgotten=0.003,
    hung_up=0.05,
    skew=0,
    killed=0.002,
    frozen=0.0005,
    away_every=60,
)
# With these seeds, the tests find the mutants that kills and orders do not find.
SEEDS = (2, 3, 12)
_CHECK_EVERY = 5.0  # seconds
_CALM_CHECK_EVERY = 15.0
# by then everything has expired: groups at the end of the day, dependencies after six days
_EXPIRED = 8 * 24 * 3600.0
_TWO_PASSES = 3700.0  # seconds for two passes of the periodic jobs
_SLOW = Intervals(*[timedelta(minutes=1)] * 4)  # for a process that has nothing else to do


def faults_of(seed: int) -> Faults:
    """The faults of this run. In every third run the clocks of the processes are wrong by up to a minute."""
    return FAULTS if seed % 3 else replace(FAULTS, skew=60)


@dataclass(frozen=True)
class Plan:
    seed: int
    tasks: int = 200
    processes: int = 6
    faults: Faults = FAULTS
    seconds: float = 240.0  # during this time the tasks are created


@dataclass
class Outcome:
    """The result of a run. If a promise was broken, ``broken`` says which, and ``trace`` has all steps."""

    plan: Plan
    broken: Broken | None
    calls: int
    kills: int
    # the name in the trace for the task of the broken promise
    about: str = ""
    trace: list[str] = field(repr=False, default_factory=list)


ERRORS: list[str] = []  # errors and tracebacks that the services logged; none is expected


def _log(_logger: Any, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if method in ("error", "critical") or "exception" in entry:
        ERRORS.append(f"{entry}")
    raise structlog.DropEvent


structlog.configure(processors=[structlog.processors.format_exc_info, _log])


def run(plan: Plan, note: Callable[[str], None] | None = None) -> Outcome:
    """Run the plan.

    ``note`` gets each step. If a promise is broken, the plan is run again to get the trace.
    """
    trial = _Run(plan, note)
    try:
        trial.run()
        broken = None
    except Broken as found:
        broken = found
    world = trial.world
    trace: list[str] = []
    if broken:
        world.note(f"BROKEN {broken}")
        if not note:
            run(plan, trace.append)
    about = world.named(broken.about) if broken else ""
    return Outcome(plan, broken, world.calls.total(), world.kills, about, trace)


class _Run:
    def __init__(self, plan: Plan, note: Callable[[str], None] | None) -> None:
        self.plan = plan
        self.world = World(plan.seed, plan.faults, note)
        self.record = Record(self.world)
        self._is_calm = False
        self._workers = [
            SimulatedWorker(self.world, self.record, f"{worker_type}-{protocol}", protocol, worker_type)
            for worker_type in POOLS
            for protocol in PROTOCOLS
        ]
        ERRORS.clear()

    def run(self) -> None:
        world, plan = self.world, self.plan
        for _ in range(plan.processes):
            world.new_process()
        for worker in self._workers:
            world.spawn(worker.run)
        scheduler = Scheduler(world, self.record, "scheduler")
        for worker in self._workers:
            worker.scheduler = scheduler
        world.spawn(lambda: scheduler.tasks(plan.tasks, plan.seconds / plan.tasks))
        world.spawn(self._check)
        world.spawn(self._replace_killed)
        if plan.faults.away_every:
            world.spawn(self._lose_broker)
        world.run(plan.seconds * 1.5)
        self._calm()
        # unscheduled tasks whose dependency was not completed need no worker, and are resolved at their
        # deadline
        self._wait_until_all_in(("unscheduled",))
        for worker in self._workers:
            worker.is_stopped = True
        self._wait_until_all_in(())
        world.run(world.time.now + 60)
        self._fail_on_errors()
        self.record.check_end()
        for process in world.alive:
            process.kill()
        world.time.now += _EXPIRED
        world.intervals = _SLOW
        world.new_process()
        world.run(world.time.now + _TWO_PASSES)
        self._fail_on_errors()
        self.record.check_nothing_left()

    def _fail_on_errors(self) -> None:
        if ERRORS:
            raise Broken("no-error-is-logged", "", ERRORS[0])

    def _wait_until_all_in(self, states: Sequence[str]) -> None:
        """Wait until every task is resolved or in one of these states."""
        while not all(task.is_resolved or task.state in states for task in self.record.tasks().values()):
            if self.world.time.now > EXPIRES.total_seconds():
                return  # the record will say which task is not resolved
            self.world.run(self.world.time.now + _CALM_CHECK_EVERY)

    def _check(self) -> None:
        while self.world.time.now < EXPIRES.total_seconds():
            self.world.time.sleep(_CALM_CHECK_EVERY if self._is_calm else _CHECK_EVERY)
            self.record.check()

    def _calm(self) -> None:
        """From now on there are no faults, and only two processes."""
        self._is_calm = True
        self.world.faults = Faults(skew=self.plan.faults.skew)
        for worker in self._workers:
            worker.interval = 10.0
            worker.scheduler = None
        for process in self.world.alive[2:]:
            process.kill()
        while len(self.world.alive) < 2:
            self.world.new_process()

    def _replace_killed(self) -> None:
        """Some seconds after a process was killed, start another."""
        while not self._is_calm:
            self.world.time.sleep(self.world.random("births").uniform(0, 10))
            if len(self.world.alive) < self.plan.processes and not self._is_calm:
                self.world.new_process()

    def _lose_broker(self) -> None:
        rng = self.world.random("away")
        while not self._is_calm:
            self.world.time.sleep(rng.expovariate(1 / self.plan.faults.away_every))
            if not self._is_calm:
                self.world.note("the broker is away")
                away_until = self.world.time.now + rng.uniform(1, 30)
                self.world.broker.away_until = away_until
                self.world.stalls.append((self.world.time.now, away_until))


def shrunk(outcome: Outcome) -> Outcome:
    best = outcome

    def breaks(plan: Plan) -> bool:
        nonlocal best
        smaller = run(plan)
        assert outcome.broken
        if smaller.broken is None or smaller.broken.promise != outcome.broken.promise:
            return False
        best = smaller
        return True

    for kind in outcome.plan.faults.kinds:
        breaks(replace(best.plan, faults=best.plan.faults.without(kind)))
    while best.plan.tasks > 1 and breaks(replace(best.plan, tasks=best.plan.tasks // 2)):
        pass
    while best.plan.processes > 1 and breaks(replace(best.plan, processes=best.plan.processes - 1)):
        pass
    return best
