"""Kills a process at each point of a scenario, and makes two concurrent calls in each order.

Nothing is random here. A scenario is repeated, and each time its first process is killed at another point.
Points between which nothing changes count as one. Two concurrent calls are repeated in each order in which
their calls of ports can happen.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from gevent.event import Event as Flag

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import format_time
from legacy_queue.services.tasks.claims import ClaimProof
from tests.simulation.promises import Record
from tests.simulation.workload import PROTOCOLS, Scheduler, SimulatedWorker, Unanswered
from tests.simulation.world import LATENCY, PREFIX, SETTINGS, Call, Process, World

# calls that no task causes
_PERIODIC = ("broker.check", "processes.page", "account", "blob")
# calls about things that only the process itself uses, so their order makes no difference to the other
# process
_OWN = ("processes", "workers", "work.create", "broker.check")
_READS = ("get", "page", "peek", "count")  # methods of ports
_END = 45 * 60.0  # seconds, after which every task has been resolved
_SETTINGS = replace(SETTINGS, claim_timeout=timedelta(seconds=20), poll_visibility=timedelta(seconds=10))


class Trial:
    """A world with two processes, and the record of its answers."""

    def __init__(self, *, starts: bool = True) -> None:
        self.world = World(settings=_SETTINGS)
        self.record = Record(self.world)
        self.first = self.world.new_process(starts=starts)
        self.second = self.world.new_process(starts=starts)
        self.scheduler = _Scheduler(self)
        self.task_id = self.further_id = ""
        self.body: Mapping[str, Any] = {}
        self.proof = ClaimProof()

    def work(self, name: str, protocol: str, *deeds: str) -> "_Worker":
        """Start a worker. It does one deed with each run that it claims, then completes all further runs."""
        worker = _Worker(self, name, protocol)
        worker.deeds = [*deeds]
        self.world.spawn(worker.run)
        return worker

    def do(self, scenario: "Scenario") -> None:
        is_over = Flag()

        def act() -> None:
            scenario(self)
            is_over.set()

        self.world.spawn(act)
        self.world.run(ended=is_over.is_set)

    def end(self, rest: float) -> None:
        """Wait until every task is resolved, then ``rest`` seconds more, and check the record.

        Raises Broken.
        """
        while self.world.time.now < _END and not self._have_ended():
            self.world.run(self.world.time.now + 2)
            self.record.check()
        self.world.run(self.world.time.now + rest)
        self.record.check_end()

    def _have_ended(self) -> bool:
        return all(task.is_resolved for task in self.record.tasks().values())


class _Chosen:
    """A client that calls this process, or by default the living process with the lowest number."""

    world: World
    chosen: Process | None = None

    def process(self) -> Process:
        return self.chosen or self.world.alive[0]


class _Scheduler(_Chosen, Scheduler):
    def __init__(self, trial: Trial, chosen: Process | None = None) -> None:
        super().__init__(trial.world, trial.record, "scheduler")
        self.chosen = chosen

    def body(self, **changes: Any) -> dict[str, Any]:
        return super().body(**{"workerType": "one", "priority": "lowest", "retries": 5, **changes})

    def new_task(self, task_id: str = "", **changes: Any) -> str:
        """Create a task, or try to and give up. Returns its taskId."""
        task_id = task_id or self.world.task_id()
        with suppress(QueueError):
            self.create(task_id, self.body(**changes))
        return task_id

    def tell(self, call: str, task_id: str, *words: str) -> None:
        """Call a method of ``Tasks``, such as cancel, for the task."""
        self.record.changing(task_id)
        with suppress(QueueError, Unanswered):
            self.ask(call, task_id, lambda services: getattr(services.tasks, call)(task_id, *words))


class _Worker(_Chosen, SimulatedWorker):
    deeds: list[str]

    def __init__(
        self, trial: Trial, name: str, protocol: str = "draft", chosen: Process | None = None
    ) -> None:
        super().__init__(trial.world, trial.record, name, protocol, "one")
        self.chosen = chosen

    def deed(self) -> str:
        return self.deeds.pop(0) if self.deeds else "completed"

    def claim(self, task_id: str, proof: ClaimProof) -> None:
        with suppress(QueueError):
            self.record.claimed(self.name, self._claim_task(task_id, 0, self._worker, proof))


# Kills

Scenario = Callable[[Trial], None]


def _one_task(protocol: str, *deeds: str) -> Scenario:
    def scenario(trial: Trial) -> None:
        trial.work("alice", protocol, *deeds)
        trial.scheduler.new_task()

    return scenario


def _abandoned(trial: Trial) -> None:
    """No worker is left, so the claim expires and the task is resolved at its deadline."""
    worker = trial.work("alice", "draft", "vanish")
    trial.scheduler.new_task(deadline=format_time(trial.world.clock.at(160)))
    trial.world.time.sleep(10)
    worker.is_stopped = True


def _dependents(trial: Trial) -> None:
    trial.work("alice", "draft", "completed", "failed")
    first = trial.scheduler.new_task()
    trial.scheduler.new_task(taskGroupId=first, dependencies=[first], requires="all-resolved")


def _canceled(trial: Trial) -> None:
    trial.work("alice", "draft", "vanish")
    task_id = trial.scheduler.new_task()
    trial.world.time.sleep(10)
    trial.scheduler.tell("cancel", task_id)
    trial.scheduler.tell("rerun", task_id)


def _scheduled(trial: Trial) -> None:
    trial.work("alice", "deployed")
    task_id = trial.world.task_id()
    trial.scheduler.new_task(task_id, dependencies=[task_id])
    trial.scheduler.tell("schedule", task_id)


SCENARIOS: Mapping[str, Scenario] = {
    **{f"{protocol}: it completes": _one_task(protocol) for protocol in PROTOCOLS},
    **{f"{protocol}: the claim expires": _one_task(protocol, "vanish") for protocol in PROTOCOLS},
    "draft: it is reclaimed": _one_task("draft", "long"),
    "draft: the worker shuts down": _one_task("draft", "worker-shutdown", "intermittent-task"),
    "draft: it has an artifact": _one_task("draft", "artifact"),
    "draft: no worker is left": _abandoned,
    "a group with dependencies": _dependents,
    "it is canceled and rerun": _canceled,
    "it is scheduled": _scheduled,
}


def kills(scenario: Scenario, known: set[tuple[str, ...]]) -> Iterator[str]:
    """Kill the first process at each point of the scenario. Yields where it was killed. Raises Broken.

    The points are after each call that changes something and after each answer, because in between a process
    only reads. ``known`` collects what the process had done before each kill. If a scenario comes to a point
    after the same calls again, the process is not killed there again.
    """
    while where := _killed(scenario, known):
        yield where


def _killed(scenario: Scenario, known: set[tuple[str, ...]]) -> str:
    """Run the scenario and kill the process at a new point. Returns where, or "" if all points are known."""
    trial = Trial()
    first = trial.first
    passed: list[str] = []
    answers = 0

    def pass_by(call: Call, place: str) -> None:
        if call.process is not first or first.is_dead or call.name.startswith(_PERIODIC):
            return
        passed.append(place)
        if tuple(passed) not in known:
            known.add(tuple(passed))
            first.kill()
            trial.world.time.after(5, trial.world.new_process)

    def before(call: Call) -> None:
        nonlocal answers
        if first.answers > answers:
            pass_by(call, "an answer")
        answers = first.answers

    def after(call: Call) -> None:
        # empty queues are polled many times
        is_again = call.name == "work.receive" and passed[-1:] == [call.name]
        if call.method not in _READS and not is_again:
            pass_by(call, call.name)

    trial.world.before = before
    trial.world.after = after
    trial.world.run(1)
    trial.do(scenario)
    trial.end(22)
    if not first.is_dead:  # after a kill, others may remember the task until it would be due
        trial.record.check_ledgers()
    return passed[-1] if first.is_dead else ""


Act = Callable[[Trial, Process], object]


class Pair(NamedTuple):
    """Two concurrent calls, one to each process, after ``prepare``.

    If ``is_timed``, the time that each call takes matters too, so no two orders are the same.
    """

    prepare: Scenario
    first: Act
    second: Act
    is_timed: bool = False


def _claim(name: str) -> Act:
    return lambda trial, process: _Worker(trial, name, chosen=process).claim(trial.task_id, trial.proof)


def _reclaim(trial: Trial, process: Process) -> None:
    _Worker(trial, "alice", chosen=process).reclaim(trial.task_id, 0)


def _report(deed: str) -> Act:
    return lambda trial, process: _Worker(trial, "alice", chosen=process).report(trial.task_id, 0, deed)


def _end(trial: Trial, process: Process) -> None:
    """A report, and then its effects."""
    _report("completed")(trial, process)
    process.services.tick()
    process.services.resolver.handle_all()


def _change(call: str, *words: str) -> Act:
    return lambda trial, process: _Scheduler(trial, process).tell(call, trial.task_id, *words)


def _expire(trial: Trial, process: Process) -> None:
    process.request(lambda services: services.advance.end_if_due(trial.task_id))


def _seal(trial: Trial, process: Process) -> None:
    trial.record.sealing(trial.task_id)
    process.request(lambda services: services.groups.seal(trial.task_id))
    trial.record.sealed(trial.task_id)


def _create(trial: Trial, process: Process) -> None:
    """Create another task of the group. Both processes create the same task."""
    with suppress(QueueError):
        _Scheduler(trial, process).create(trial.further_id, trial.body)


def _follow(trial: Trial, process: Process) -> None:
    _Scheduler(trial, process).new_task(taskGroupId=trial.task_id, dependencies=[trial.task_id])


def _created(trial: Trial) -> None:
    trial.task_id = trial.scheduler.new_task()
    trial.further_id = trial.world.task_id()
    trial.body = trial.scheduler.body(taskGroupId=trial.task_id)
    queue = WorkQueue("p", "one", "lowest")
    (message,) = trial.world.account.queue(queue.name(PREFIX)).receive(1, _SETTINGS.poll_visibility)
    _, _, signature = read_message(message.text)
    trial.proof = ClaimProof(message.lease.message_id, message.lease.receipt, signature)


def _joined(trial: Trial) -> None:
    """The second process has the group in its cache."""
    _created(trial)
    _Scheduler(trial, trial.second).create(trial.world.task_id(), trial.body)


def _claimed(trial: Trial) -> None:
    _created(trial)
    _claim("alice")(trial, trial.first)


def _nearly_expired(trial: Trial) -> None:
    _claimed(trial)
    taken_until = trial.record.known[trial.task_id].holders[0].until
    left = taken_until - trial.world.clock.now()
    trial.world.time.sleep(left.total_seconds() - 2.5 * LATENCY)


PAIRS: Mapping[str, Pair] = {
    "claim x claim": Pair(_created, _claim("alice"), _claim("bob")),
    "claim x cancel": Pair(_created, _claim("alice"), _change("cancel")),
    "priority x claim": Pair(_created, _change("change_priority", "lowest", "high"), _claim("alice")),
    "expire x reclaim": Pair(_nearly_expired, _expire, _reclaim, is_timed=True),
    "expire x report": Pair(_nearly_expired, _expire, _report("completed"), is_timed=True),
    "report x report": Pair(_claimed, _report("completed"), _report("failed")),
    "report x cancel": Pair(_claimed, _report("worker-shutdown"), _change("cancel")),
    "report x create dependent": Pair(_claimed, _end, _follow),
    "create x create": Pair(_created, _create, _create),
    "seal x create": Pair(_joined, _seal, _create),
}


def orders(pair: Pair) -> Iterator[str]:
    """Repeat the pair in each order of its calls of ports. Yields each order, as "0" or "1" for each call.

    If two orders differ only in calls that touch nothing in common, they count as one: the one in which the
    first process is as early as possible. Raises Broken.
    """
    order = ""
    while True:
        taken, choices, is_new = _in_order(pair, order)
        if is_new:
            yield taken
        # the next order differs at the last place where the second process could have gone on instead of the
        # first
        place = max((place for place, could in enumerate(choices) if could), default=None)
        if place is None:
            return
        order = taken[:place] + "1"


def _in_order(pair: Pair, order: str) -> tuple[str, list[bool], bool]:
    """Run the pair in an order that begins with ``order``.

    Returns the whole order, whether at each place the second process could have gone on instead of the first,
    and whether the order is new.
    """
    trial = Trial(starts=False)
    trial.do(pair.prepare)
    processes = (trial.first, trial.second)
    waiting: dict[Process, list[tuple[Call, Flag]]] = {process: [] for process in processes}
    busy = [*processes]

    def wait(call: Call) -> None:
        if not call.name.startswith(_OWN):
            flag = Flag()
            waiting[call.process].append((call, flag))
            flag.wait()

    def do(process: Process, act: Act) -> None:
        act(trial, process)
        busy.remove(process)

    trial.world.before = wait
    for process, act in zip(processes, pair[1:3], strict=True):
        trial.world.spawn(partial(do, process, act))
    trial.world.run(trial.world.time.now)
    taken = ""
    choices: list[bool] = []
    # the call just before, if it was the second process's
    last: Call | None = None
    while True:
        trial.world.run(ended=lambda: all(waiting[each] for each in busy))
        ready = [str(number) for number, each in enumerate(processes) if each in busy]
        if not ready:
            break
        if last and "0" in ready and not pair.is_timed and _are_apart(last, waiting[trial.first][0][0]):
            ready.remove("0")  # the same as an order in which it went on before
            if not ready:
                return taken, choices, False
        wanted = order[len(taken) : len(taken) + 1]
        chosen = wanted if wanted in ready else ready[0]
        choices.append(len(ready) == 2 and chosen == "0")
        taken += chosen
        call, flag = waiting[processes[int(chosen)]].pop(0)
        last = call if chosen == "1" else None
        flag.set()
    trial.world.before = lambda _: None
    for _, flag in waiting[trial.first] + waiting[trial.second]:
        flag.set()
    for process in processes:
        process.start()
    trial.work("carol", "draft")
    trial.end(3)
    return taken, choices, True


def _are_apart(one: Call, other: Call) -> bool:
    """Whether the calls touch nothing in common, so that their order makes no difference."""
    if one.method in _READS and other.method in _READS:
        return True
    places = sorted((f"{one.service}/{one.place}/", f"{other.service}/{other.place}/"))
    return not places[1].startswith(places[0])
