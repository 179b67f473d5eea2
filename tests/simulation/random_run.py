"""A run of the world by a seed: tasks, workers and faults for some minutes, then calm until all has ended."""

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
# The seeds of the everyday run find the mutants that no kill and no order finds.
SEEDS = (1, 2, 3)
_CHECK_EVERY = 5.0  # seconds
_CALM_CHECK_EVERY = 15.0
_EXPIRED = 8 * 24 * 3600.0  # groups last up to the end of the day, dependencies six days
_TWO_PASSES = 3700.0  # of the periodic jobs
_SLOW = Intervals(*[timedelta(minutes=1)] * 4)  # of a process that has nothing else to do


def faults_of(seed: int) -> Faults:
    """In every third run the clocks of the processes are wrong by up to a minute."""
    return FAULTS if seed % 3 else replace(FAULTS, skew=60)


@dataclass(frozen=True)
class Plan:
    seed: int
    tasks: int = 200
    processes: int = 6
    faults: Faults = FAULTS
    seconds: float = 240.0  # in which the tasks are created


@dataclass
class Outcome:
    """What a run has shown. ``broken`` is the promise that was broken, if any; ``story`` its lines."""

    plan: Plan
    broken: Broken | None
    calls: int
    kills: int
    # the name of the broken promise's task in the story
    about: str = ""
    story: list[str] = field(repr=False, default_factory=list)


ERRORS: list[str] = []  # that the services have logged with a traceback: none is expected


def _log(_logger: Any, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if method in ("error", "critical") or "exception" in entry:
        ERRORS.append(f"{entry}")
    raise structlog.DropEvent


structlog.configure(processors=[structlog.processors.format_exc_info, _log])


def run(plan: Plan, note: Callable[[str], None] | None = None) -> Outcome:
    """Run the plan; ``note`` gets each line of its story. A run that breaks a promise is run again for it."""
    trial = _Run(plan, note)
    try:
        trial.run()
        broken = None
    except Broken as found:
        broken = found
    world = trial.world
    story: list[str] = []
    if broken:
        world.note(f"BROKEN {broken}")
        if not note:
            run(plan, story.append)
    about = world.named(broken.about) if broken else ""
    return Outcome(plan, broken, world.calls.total(), world.kills, about, story)


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
        # what waits for a dependency that did not complete needs no worker, and ends at its deadline
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
        """Wait until each task is resolved, or in one of the states."""
        while not all(task.is_resolved or task.state in states for task in self.record.tasks().values()):
            if self.world.time.now > EXPIRES.total_seconds():
                return  # the record says what has not ended
            self.world.run(self.world.time.now + _CALM_CHECK_EVERY)

    def _check(self) -> None:
        while self.world.time.now < EXPIRES.total_seconds():
            self.world.time.sleep(_CALM_CHECK_EVERY if self._is_calm else _CHECK_EVERY)
            self.record.check()

    def _calm(self) -> None:
        """No more faults; two processes are enough from now on."""
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
        """Start a process for each that was killed, some seconds later."""
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
