"""Each place where a process can be killed in a task's life, and each order of the calls of two processes.

Nothing is random here. A life is repeated for each call of a port that its first process makes for it, and
the process is killed there, before the call or after it was applied. Two concurrent calls are repeated for
each order in which their calls of ports can happen.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from gevent.event import Event as Flag

from legacy_queue.domain.errors import QueueError
from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import parse_time
from legacy_queue.services.composition import Services
from legacy_queue.services.tasks.claims import ClaimProof
from legacy_queue.stores import LeaseStore
from tests.simulation.record import Record
from tests.simulation.workload import PROTOCOLS, Scheduler, SimulatedWorker, Unanswered
from tests.simulation.world import LATENCY, PREFIX, SETTINGS, Call, Process, World

_PERIODIC = ("leases", "broker.check", "timers.page", "account", "blob")  # calls that no task causes
# calls about what only the process itself uses meanwhile: their order makes no difference to the other
_OWN = ("timers", "workers", "leases", "work.create", "broker.check")
_MAX_SWITCHES = 3  # from one process to the other: a defect that needs more has not been seen
_END = 45 * 60.0  # seconds: each task has ended
_SETTINGS = replace(SETTINGS, claim_timeout=timedelta(seconds=20), poll_visibility=timedelta(seconds=10))


class _FirstAlive:
    """Clients of this kind ask the process with the lowest number that is alive."""

    world: World

    def process(self) -> Process:
        return self.world.alive[0]


class _Scheduler(_FirstAlive, Scheduler): ...


class _Worker(_FirstAlive, SimulatedWorker):
    deeds: list[str]

    def deed(self) -> str:
        return self.deeds.pop(0) if self.deeds else "completed"


class Trial:
    """A world with two processes, and what was answered there."""

    def __init__(self, note: Callable[[str], None] | None = None, *, starts: bool = True) -> None:
        self.world = World(note=note, settings=_SETTINGS)
        self.record = Record(self.world)
        self._do_jobs()
        self.first = self.world.new_process(starts=starts)
        self.second = self.world.new_process(starts=starts)
        self.scheduler = _Scheduler(self.world, self.record, "scheduler")
        self.task_id = self.further_id = ""
        self.body: Mapping[str, Any] = {}
        self.proof = ClaimProof(None, None, None)
        self.taken_until = self.world.clock.now()

    def _do_jobs(self) -> None:
        """The periodic jobs were done just now: most calls of a process that starts are about them."""
        leases = LeaseStore(self.world.account.table(f"{PREFIX}leases"), self.world.clock)
        names = ("tasks", "groups", "artifacts", "dependencies", "workers", "work-queues")
        for job in ("sweep-tasks", "sweep-members", "discard-blocks", *(f"expire-{name}" for name in names)):
            leases.acquire(job, self.world.clock.at(_END))

    def ask(self, process: Process, call: str, act: Callable[[Services], Any]) -> Any:
        """What the process answers; None for a refusal."""
        try:
            return process.request(act) or True
        except QueueError as refusal:
            self.world.note(f"p{process.number} {call}: {refusal.status} {refusal.message}")
            return None

    def new_task(self, **changes: Any) -> str:
        """A task that was created, or whose creator has given up."""
        task_id = self.world.task_id()
        body = self.scheduler.body(workerType="one", priority="lowest", retries=5, **changes)
        self.record.creating(task_id, body)
        with suppress(QueueError, Unanswered):
            self.scheduler.ask("createTask", task_id, lambda services: services.tasks.create(task_id, body))
            self.record.created(task_id)
        return task_id

    def tell(self, call: str, task_id: str) -> None:
        """A call of ``Tasks`` about the task alone, such as cancel."""
        self.record.changing(task_id)
        with suppress(QueueError, Unanswered):
            self.scheduler.ask(call, task_id, lambda services: getattr(services.tasks, call)(task_id))

    def work(self, name: str, protocol: str, *deeds: str) -> None:
        """A worker does this with the runs that it claims, one after another, and then completes all."""
        worker = _Worker(self.world, self.record, name, protocol, "one")
        worker.deeds = [*deeds]
        self.world.spawn(worker.run)

    def live(self, life: "Life") -> None:
        """Let the life go on until each task has ended, and check the record. Raises Broken."""
        self.world.run(1)
        self.do(life)
        self.end()

    def do(self, life: "Life") -> None:
        is_over = Flag()

        def act() -> None:
            life(self)
            is_over.set()

        self.world.spawn(act)
        self.world.run(ended=is_over.is_set)

    def end(self, rest: float = 22.0) -> None:
        """Let each task end, and check the record some seconds later. Raises Broken."""
        while self.world.time.now < _END and not self._have_ended():
            self.world.run(self.world.time.now + 2)
        self.world.run(self.world.time.now + rest)
        self.record.check_end()

    def _have_ended(self) -> bool:
        return all(task.is_resolved for task in self.record.tasks().values())


# Kills

Life = Callable[[Trial], None]


def _life(protocol: str, *deeds: str) -> Life:
    def life(trial: Trial) -> None:
        trial.work("alice", protocol, *deeds)
        trial.new_task()

    return life


def _dependents(trial: Trial) -> None:
    trial.work("alice", "draft", "completed", "failed")
    first = trial.new_task()
    group = {"taskGroupId": first, "requires": "all-resolved"}
    trial.new_task(dependencies=[first], **group)


def _canceled(trial: Trial) -> None:
    trial.work("alice", "draft", "vanish")
    task_id = trial.new_task()
    trial.world.time.sleep(10)
    trial.tell("cancel", task_id)
    trial.tell("rerun", task_id)


def _scheduled(trial: Trial) -> None:
    trial.work("alice", "deployed")
    task_id = trial.world.task_id()
    body = trial.scheduler.body(workerType="one", dependencies=[task_id])
    trial.record.creating(task_id, body)
    with suppress(Unanswered):
        trial.scheduler.ask("defineTask", task_id, lambda services: services.tasks.create(task_id, body))
        trial.record.created(task_id)
    trial.tell("schedule", task_id)


LIVES: Mapping[str, Life] = {
    **{f"{protocol}: it completes": _life(protocol) for protocol in PROTOCOLS},
    **{f"{protocol}: the claim expires": _life(protocol, "vanish") for protocol in PROTOCOLS},
    "draft: it is reclaimed": _life("draft", "long"),
    "draft: the worker shuts down": _life("draft", "worker-shutdown", "intermittent-task"),
    "draft: it fails": _life("draft", "failed"),
    "draft: it has an artifact": _life("draft", "artifact"),
    "a group with dependencies": _dependents,
    "it is canceled and rerun": _canceled,
    "it is scheduled": _scheduled,
}


def kills(life: Life) -> Iterator[str]:
    """Kill the first process at each of its calls; yields where it was killed. Raises Broken."""
    number = 0
    while where := _killed_at(life, number):
        yield where
        number += 1


def _killed_at(life: Life, number: int, note: Callable[[str], None] | None = None) -> str:
    """Where the process was killed, "" if the life has fewer such places."""
    trial = Trial(note)
    places = 0
    where = ""
    last = ""

    def pass_by(call: Call, moment: str) -> None:
        nonlocal places, where, last
        if call.process is not trial.first or call.name.startswith(_PERIODIC) or trial.first.is_dead:
            return
        if call.name != "work.receive" or call.name not in last:  # many polls of empty queues are one place
            if places == number:
                where = f"{moment} {call.name}"
                trial.first.kill()
                trial.world.time.after(5, trial.world.new_process)
            places += 1
        last = f"{moment} {call.name}"

    trial.world.before = partial(pass_by, moment="before")
    trial.world.after = partial(pass_by, moment="after")
    trial.live(life)
    return where


# Interleavings


Act = Callable[[Trial, Process], object]


class Pair(NamedTuple):
    """Two concurrent calls, the first and the second process's, after what ``prepare`` does."""

    prepare: Life
    first: Act
    second: Act


def _claim(name: str) -> Act:
    def claim(trial: Trial, process: Process) -> None:
        worker = Worker("g", name)
        answer = trial.ask(
            process,
            "claimTask",
            lambda services: services.claims.claim(
                services.tasks.recall(trial.task_id), 0, worker, trial.proof
            ),
        )
        if answer:
            trial.record.claimed(name, answer)
            trial.taken_until = parse_time(answer["takenUntil"])

    return claim


def _reclaim(trial: Trial, process: Process) -> None:
    answer = trial.ask(process, "reclaimTask", lambda services: services.claims.reclaim(trial.task_id, 0))
    if answer:
        trial.record.reclaimed("alice", answer)


def _report(deed: str) -> Act:
    def report(trial: Trial, process: Process) -> None:
        state = deed if deed in ("completed", "failed") else "exception"
        trial.record.reporting(trial.task_id, 0, deed)
        if trial.ask(
            process, f"report {deed}", lambda services: services.tasks.report(trial.task_id, 0, state, deed)
        ):
            trial.record.accepted(trial.task_id, 0, deed)

    return report


def _expire(trial: Trial, process: Process) -> None:
    trial.ask(process, "expire", lambda services: services.advance.end_if_due(trial.task_id))


def _change(call: str, *words: str) -> Act:
    def change(trial: Trial, process: Process) -> None:
        trial.record.changing(trial.task_id)
        trial.ask(process, call, lambda services: getattr(services.tasks, call)(trial.task_id, *words))

    return change


def _seal(trial: Trial, process: Process) -> None:
    trial.ask(process, "sealTaskGroup", lambda services: services.groups.seal(trial.task_id))


def _create(trial: Trial, process: Process) -> None:
    """A further task of the group; the same by both processes."""
    task_id = trial.further_id
    trial.record.creating(task_id, trial.body)
    if trial.ask(process, "createTask", lambda services: services.tasks.create(task_id, trial.body)):
        trial.record.created(task_id)


def _created(trial: Trial) -> None:
    trial.task_id = trial.new_task()
    trial.further_id = trial.world.task_id()
    trial.body = trial.scheduler.body(workerType="one", priority="lowest", taskGroupId=trial.task_id)
    queue = WorkQueue("p", "one", "lowest")
    (message,) = trial.world.account.queue(queue.name(PREFIX)).receive(1, _SETTINGS.poll_visibility)
    _, _, signature = read_message(message.text)
    trial.proof = ClaimProof(message.lease.message_id, message.lease.receipt, signature)


def _claimed(trial: Trial) -> None:
    _created(trial)
    _claim("alice")(trial, trial.first)


def _nearly_expired(trial: Trial) -> None:
    _claimed(trial)
    left = trial.taken_until - trial.world.clock.now()
    trial.world.time.sleep(left.total_seconds() - 2.5 * LATENCY)


PAIRS: Mapping[str, Pair] = {
    "claim x claim": Pair(_created, _claim("alice"), _claim("bob")),
    "claim x cancel": Pair(_created, _claim("alice"), _change("cancel")),
    "priority x claim": Pair(_created, _change("change_priority", "lowest", "high"), _claim("alice")),
    "expire x reclaim": Pair(_nearly_expired, _expire, _reclaim),
    "expire x report": Pair(_nearly_expired, _expire, _report("completed")),
    "report x report": Pair(_claimed, _report("completed"), _report("failed")),
    "report x cancel": Pair(_claimed, _report("worker-shutdown"), _change("cancel")),
    "create x create": Pair(_created, _create, _create),
    "seal x create": Pair(_created, _seal, _create),
}


def orders(pair: Pair) -> Iterator[str]:
    """Repeat the pair in each order of the calls of ports; yields each order, as "0" and "1" for each call.

    Raises Broken.
    """
    order = ""
    while True:
        taken, choices = _in_order(pair, order)
        yield taken
        # the next order: the last place where the first process went on, and the second could have
        place = max(
            (place for place, could in enumerate(choices) if could and taken[place] == "0"), default=None
        )
        if place is None:
            return
        order = taken[:place] + "1"


def _in_order(pair: Pair, order: str, note: Callable[[str], None] | None = None) -> tuple[str, list[bool]]:
    """The order that was taken, which begins with ``order``, and where the other process could go on, too."""
    trial = Trial(note, starts=False)
    trial.do(pair.prepare)
    processes = (trial.first, trial.second)
    waiting: dict[Process, list[Flag]] = {process: [] for process in processes}
    busy = [*processes]

    def wait(call: Call) -> None:
        if call.name.startswith(_OWN):
            return
        flag = Flag()
        waiting[call.process].append(flag)
        flag.wait()

    def do(process: Process, act: Act) -> None:
        act(trial, process)
        busy.remove(process)

    trial.world.before = wait
    for process, act in zip(processes, pair[1:], strict=True):
        trial.world.spawn(partial(do, process, act))
    trial.world.run(trial.world.time.now)
    taken, choices = "", []
    while True:
        trial.world.run(ended=lambda: all(waiting[each] for each in busy))
        ready = [str(number) for number, each in enumerate(processes) if each in busy]
        if not ready:
            break
        wanted = order[len(taken) : len(taken) + 1]
        chosen = wanted if wanted in ready else ready[0]
        switches = sum(one != other for one, other in pairwise(taken + "1"))
        choices.append(len(ready) == 2 and switches <= _MAX_SWITCHES)
        taken += chosen
        waiting[processes[int(chosen)]].pop(0).set()
    trial.world.before = lambda _: None
    for flag in [flag for flags in waiting.values() for flag in flags]:
        flag.set()
    for process in processes:
        process.start()
    trial.work("carol", "draft")
    trial.end(3)
    return taken, choices
