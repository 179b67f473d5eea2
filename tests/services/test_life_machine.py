"""Any sequence of calls, timers, faults and mishaps keeps invariants 1-3 and promises 1-4.

Two replicas and two workers of any protocol live on one storage. At the end of each example, however it went
so far, nothing fails any more: with somebody who polls every task that can run is run, without every task is
resolved by its deadline, and everybody was told.
"""

import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn

import structlog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from legacy_queue.adapters.memory import MemoryStorage
from legacy_queue.adapters.memory.event_log import MemoryEventLog
from legacy_queue.domain.errors import (
    InputError,
    QueueError,
    RequestConflict,
    ResourceNotFound,
    ServiceUnavailable,
)
from legacy_queue.domain.sweep import FIRST_LOOK
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.timers import RESOLVED, Timer
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import Changed, Clock
from legacy_queue.services.claims import Presented
from legacy_queue.services.core import Core
from tests.services import interleaving
from tests.services.bench import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    PROVISIONER,
    QUEUE,
    SECOND,
    WORKER_TYPE,
    At,
    Bench,
    Crash,
    Message,
    Told,
    failing,
    one_by_one,
    task_body,
)
from tests.services.invariants import QUEUES, check, check_history, check_runs, check_told

SETTINGS = settings(max_examples=1000, stateful_step_count=50)

PICKS = st.integers(0, 7)
REPLICAS = st.integers(0, 1)
WORKERS = st.sampled_from([ALICE, BOB])
PROTOCOLS = st.sampled_from(["draft", "deployed", "without receipt"])
# who goes on, and for how many steps
SCHEDULES = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([1, 2, 3, 5, 20])), max_size=6)
WAITS = st.sampled_from([SECOND, 31 * SECOND, 5 * MINUTE, 10 * MINUTE, 19 * MINUTE, 21 * MINUTE])
REPORTS = st.sampled_from(
    [
        ("completed", "completed"),
        ("failed", "failed"),
        ("exception", "worker-shutdown"),
        ("exception", "intermittent-task"),
        ("exception", "malformed-payload"),
    ]
)
KINDS = st.sampled_from(["crash before", "crash after", "unavailable", "answer lost", "retried write"])
# which call, and of what: the first of those that matter, or any
CALLS = st.sampled_from(
    [
        *((0, of) for of in ("put", "hide", "insert", "replace", "log.append") * 2),
        *((call, "") for call in range(9)),
    ]
)
MOST_TASKS = 4

# all that may be answered here
REFUSALS = (InputError, RequestConflict, ResourceNotFound, ServiceUnavailable)

Action = Callable[[Core], None]


def _task_id(number: int) -> str:
    """The same in every run, and as the pattern wants it."""
    return f"Task{number:04}Q0C0000000000A"


GROUP = _task_id(0)


@dataclass(frozen=True)
class Shape:
    """What is said of a task; it may wait for tasks that were asked for before."""

    retries: int
    lasts: timedelta
    waits_for: str
    requires: str
    in_group: bool
    is_defined: bool


SHAPES = st.builds(
    Shape,
    st.integers(0, 3),
    st.sampled_from([24 * HOUR, HOUR]),
    st.sampled_from(["none", "first", "last", "both"]),
    st.sampled_from(["all-completed", "all-resolved"]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
)


def faults(call: int, of: str, kind: str) -> At:
    match kind:
        case "crash before":
            return At(call, of=of, before=failing(Crash()))
        case "crash after":
            return At(call, of=of, after=failing(Crash()))
        case "unavailable":
            return At(call, of=of, before=failing(ServiceUnavailable("storage is away")))
        case "answer lost":
            return At(call, of=of, after=failing(ServiceUnavailable("the answer was lost")))
        case _:
            return At(0, of="replace", after=failing(Changed()))


class LastingLog(MemoryEventLog):
    """Nothing that was told is forgotten."""

    def trim(self, before: datetime) -> None:
        """For the readers' sake."""


class LastingStorage(MemoryStorage):
    def __init__(self, clock: Clock, queue_url: str, queue_prefix: str) -> None:
        super().__init__(clock, queue_url, queue_prefix)
        self.event_log = LastingLog(clock)


class Life(RuleBasedStateMachine):
    """``granted`` is what workers believe; ``lost`` the state in which a message of the task was lost.

    Events of a task that is ``forgotten`` may be missing: a crash and the loss of its timer came together.
    Somebody who schedules or reruns a task that was not ``announced`` yet, its creation being cut off or
    under way, may make task-pending come before task-defined: it is ``hurried``.
    """

    is_intact = False

    @initialize(
        has_faults=st.booleans(),
        has_losses=st.booleans(),
        has_worker=st.booleans(),
        tick=st.sampled_from([0 * SECOND, timedelta(milliseconds=300)]),
        is_required=st.sampled_from([False, False, True]),
        shapes=st.lists(SHAPES, min_size=1, max_size=3),
    )
    def start(
        self,
        has_faults: bool,
        has_losses: bool,
        has_worker: bool,
        tick: timedelta,
        is_required: bool,
        shapes: list[Shape],
    ) -> None:
        """``tick`` is what a port call takes."""
        self.tick = tick
        self.has_faults, self.has_losses, self.has_worker = has_faults, has_losses, has_worker
        required = [f"{PROVISIONER}/{WORKER_TYPE}"] if is_required else []
        self.bench = Bench(required=required, storage=LastingStorage)
        self.around: Callable[..., Any] | None = None
        self.servers = [self._server(), self._server()]
        self.servers[0].services.polling.poll_urls(PROVISIONER, WORKER_TYPE)
        self.bodies: dict[str, dict[str, Any]] = {}  # of each task that was asked for
        self.answered: set[str] = set()
        self.announced: set[str] = set()
        self.hurried: set[str] = set()
        self.seen: dict[str, Task] = {}
        self.polled: list[Message] = []
        self.granted: dict[tuple[str, int], tuple[Worker, datetime]] = {}
        self.reported: dict[tuple[str, int], tuple[str, str]] = {}
        self.scheduled: set[str] = set()
        self.lost: dict[str, tuple[int, str, datetime]] = {}
        self.ever_lost: set[str] = set()
        self.forgotten: set[str] = set()
        self.told: list[Told] = []
        for shape in shapes:
            self._create(shape)(self.servers[0])

    def _server(self) -> Core:
        return self.bench.server(self._around, remembers=True)

    def _around(self, name: str, call: Callable[[], Any]) -> Any:
        if self.around is not interleaving.pausing:
            self.bench.clock.advance(self.tick)
        return self.around(name, call) if self.around else call()

    # what clients do

    def _create(self, shape: Shape) -> Action:
        task_id, now, known = _task_id(len(self.bodies) + 1), self.bench.clock.now(), list(self.bodies)
        waits_for = {"first": known[:1], "last": known[-1:], "both": [*known[:1], *known[1:][-1:]]}
        self.bodies[task_id] = task_body(
            now,
            retries=shape.retries,
            deadline=format_time(now + shape.lasts),
            dependencies=waits_for.get(shape.waits_for, []),
            requires=shape.requires,
            **({"taskGroupId": GROUP, "schedulerId": "scheduler"} if shape.in_group else {}),
        )
        return self._create_again(task_id, "defineTask" if shape.is_defined else "createTask")

    def _create_again(self, task_id: str, how: str) -> Action:
        body = self.bodies[task_id]

        def act(server: Core) -> None:
            if how == "another":
                server.services.tasks.create(task_id, {**body, "payload": {}, "taskGroupId": task_id})
            elif how == "defineTask":
                self.bodies[task_id] = {**body, "dependencies": [*body["dependencies"], task_id]}
                server.services.tasks.define(task_id, body)
            else:
                server.services.tasks.create(task_id, body)
            self.answered.add(task_id)
            if not self.around:
                self.announced.add(task_id)

        return act

    def _claim(self, worker: Worker, pick: int, protocol: str) -> Action:
        message = self.polled[pick % len(self.polled)]
        presented = {
            "draft": message.presented,
            "deployed": Presented(),
            "without receipt": Presented(message.lease.message_id, None, message.signature),
        }[protocol]

        def act(server: Core) -> None:
            task, now = self.bench.task(message.task_id), self.bench.clock.now()
            run = task.runs[message.run_id] if message.run_id < len(task.runs) else None
            try:
                answer = self.bench.claim(message, worker, server.services, presented)
            except QueueError as refusal:
                if refusal.status < 500:
                    self.bench.delete_if_leased(message)
                is_due = run and run.state == "pending" and now < task.definition.deadline - MINUTE
                if is_due and not self.around and not isinstance(refusal, InputError):
                    raise AssertionError("a due claim is refused") from refusal
                raise
            self._grant(message.task_id, answer, worker)
            if protocol != "draft":
                self.bench.delete_if_leased(message)

        return act

    def _grant(self, task_id: str, answer: Mapping[str, Any], worker: Worker) -> None:
        run_id, until = answer["runId"], parse_time(answer["takenUntil"])
        holder, _ = self.granted.get((task_id, run_id), (worker, until))
        assert holder == worker, "two workers hold one run"
        self.granted[task_id, run_id] = worker, until

    def _reclaim(self, pick: int) -> Action:
        task_id, run_id = list(self.granted)[pick % len(self.granted)]

        def act(server: Core) -> None:
            run, now = self.bench.task(task_id).runs[run_id], self.bench.clock.now()
            is_due = run.state == "running" and run.taken_until and now < run.taken_until - MINUTE
            try:
                answer = server.services.claims.reclaim(task_id, run_id)
            except RequestConflict:
                assert not is_due or self.around, "a due reclaim is refused"
                raise
            worker, before = self.granted[task_id, run_id]
            self.granted[task_id, run_id] = worker, max(before, parse_time(answer["takenUntil"]))

        return act

    def _report(self, pick: int, report: tuple[str, str]) -> Action:
        task_id, run_id = list(self.granted)[pick % len(self.granted)]

        def act(server: Core) -> None:
            is_due = self.bench.task(task_id).runs[run_id].state == "running"
            try:
                server.services.tasks.report(task_id, run_id, *report)
            except RequestConflict:
                assert not is_due or self.around, "a due report is refused"
                raise
            self.reported[task_id, run_id] = report
            if pick % 2:
                self._look(RESOLVED)(server)  # the server's own watcher is quick

        return act

    def _cancel(self, task_id: str, pick: int) -> Action:
        def act(server: Core) -> None:
            server.services.tasks.cancel(task_id)
            if pick % 2:
                self._look(RESOLVED)(server)

        return act

    def _schedule(self, task_id: str) -> Action:
        self.scheduled.add(task_id)
        self._hurry(task_id)
        return lambda server: server.services.tasks.schedule(task_id) and None

    def _rerun(self, task_id: str) -> Action:
        self._hurry(task_id)
        return lambda server: server.services.tasks.rerun(task_id) and None

    def _hurry(self, task_id: str) -> None:
        self.hurried |= {task_id} - self.announced

    # what the servers do

    def _look(self, queue: str) -> Action:
        return lambda server: server.watchers[queue].look(one_by_one) and None

    @staticmethod
    def _sweep(server: Core) -> None:
        assert server.chores
        server.chores.do_due(threading.Event())

    def _action(self, data: st.DataObject) -> Action:
        pick = data.draw(PICKS, "pick")
        task_id = list(self.bodies)[pick % len(self.bodies)]
        kinds = ["create"] if len(self.bodies) < MOST_TASKS else []
        kinds += ["claim"] * 4 if self.polled else []
        kinds += ["reclaim", "report", "report"] * 2 if self.granted else []
        kinds += ["poll", "look", "look", "settle", "again", "schedule", "cancel", "rerun", "sweep"]
        match data.draw(st.sampled_from(kinds), "action"):
            case "create":
                return self._create(data.draw(SHAPES, "shape"))
            case "poll":
                return lambda _: self._poll()
            case "claim":
                return self._claim(data.draw(WORKERS, "worker"), pick, data.draw(PROTOCOLS, "protocol"))
            case "reclaim":
                return self._reclaim(pick)
            case "report":
                return self._report(pick, data.draw(REPORTS, "report"))
            case "look":
                return self._look(QUEUES[pick % len(QUEUES)])
            case "settle":
                return lambda server: server.timers.settle_all(HOUR) if pick > 3 else server.timers.settle()
            case "again":
                return self._create_again(task_id, "another" if pick > 5 else "createTask")
            case "schedule":
                return self._schedule(task_id)
            case "cancel":
                return self._cancel(task_id, pick)
            case "rerun":
                return self._rerun(task_id)
            case _:
                return self._sweep

    @rule(data=st.data(), replica=REPLICAS)
    def one(self, data: st.DataObject, replica: int) -> None:
        self._perform(replica, self._action(data), data)

    @precondition(lambda self: len(self.bodies) < MOST_TASKS)
    @rule(data=st.data(), replica=REPLICAS, shape=SHAPES)
    def ask_for_another(self, data: st.DataObject, replica: int, shape: Shape) -> None:
        self._perform(replica, self._create(shape), data)

    @rule(data=st.data(), replica=REPLICAS, worker=WORKERS, protocol=PROTOCOLS, stays=st.booleans())
    def next_message(
        self, data: st.DataObject, replica: int, worker: Worker, protocol: str, stays: bool
    ) -> None:
        """Whatever becomes visible next, some worker polls and claims; where it ``stays``, reclaims."""
        coming = self.bench.messages()
        if coming:
            self._wait_for(coming[0].next_visible)
            self._poll()
            self._perform(replica, self._claim(worker, 0, protocol), data)
        if stays and self.granted:
            self.bench.clock.advance(10 * MINUTE)
            self._perform(1 - replica, self._reclaim(-1), data)

    @rule(data=st.data(), replica=REPLICAS, queue=st.sampled_from(QUEUES))
    def next_timer(self, data: st.DataObject, replica: int, queue: str) -> None:
        coming = self.bench.own_messages(queue)
        if coming:
            self._wait_for(coming[0].next_visible)
            self._perform(replica, self._look(queue), data)

    def _perform(self, replica: int, action: Action, data: st.DataObject) -> None:
        if self.has_faults and data.draw(st.booleans(), "fault"):
            self.around = faults(*data.draw(CALLS, "call"), data.draw(KINDS, "kind"))
        try:
            action(self.servers[replica])
        except Crash:
            self.servers[replica] = self._server()
        except REFUSALS:
            pass
        else:
            if action == self._sweep and not self.around:
                self._swept()
        finally:
            self.around = None

    @rule(data=st.data(), schedule=SCHEDULES)
    def two_at_once(self, data: st.DataObject, schedule: list[tuple[int, int]]) -> None:
        actions = [(self._action(data), server) for server in self.servers]
        order = (who for who, steps in schedule for _ in range(steps))
        self.around = interleaving.pausing
        try:
            results = interleaving.run(
                [lambda action=action, server=server: action(server) for action, server in actions],  # type: ignore[misc]
                lambda count: next(order, 0) % count,
            )
        finally:
            self.around = None
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, REFUSALS):
                raise result

    # what happens by itself

    @rule(wait=WAITS)
    def wait(self, wait: timedelta) -> None:
        self.bench.clock.advance(wait)

    def _wait_for(self, time: datetime) -> None:
        self.bench.clock.advance(max(time - self.bench.clock.now(), 0 * SECOND))

    def _poll(self) -> None:
        self.polled = [*self.bench.receive(1), *self.polled][:8]

    @rule(
        kind=st.sampled_from(["doubled", "early", "lost", "lost"]), queue=st.sampled_from(QUEUES), pick=PICKS
    )
    def mishap(self, kind: str, queue: str, pick: int) -> None:
        """To a timer."""
        messages, own = self.bench.own_messages(queue), self.bench.storage.own_queues
        if not messages:
            return
        one = messages[pick % len(messages)]
        match kind:
            case "doubled":
                own.put(queue, one.text, max(one.next_visible - self.bench.clock.now(), 0 * SECOND))
            case "early":
                own.hide(queue, one.lease, one.text, 0 * SECOND)
            case _ if self.has_losses:
                own.remove(queue, one.lease)
                task_id = Timer.from_text(queue, one.text).task_id
                self._lose(task_id)
                if self.has_faults:
                    self.forgotten.add(task_id)

    @rule(is_lost=st.booleans(), gives_up=st.booleans(), pick=PICKS)
    def mishap_at_work(self, is_lost: bool, gives_up: bool, pick: int) -> None:
        """To a message for workers; the worker whose claim it is held for may give up then."""
        messages, queues = self.bench.messages(), self.bench.storage.work_queues
        if not messages:
            return
        one, now = messages[pick % len(messages)], self.bench.clock.now()
        if not is_lost:
            queues.put(QUEUE, one.text, one.expires - now, max(one.next_visible - now, 0 * SECOND))
        elif self.has_losses:
            queues.remove(QUEUE, one.lease)
            task_id = Message.read(one).task_id
            self._lose(task_id)
            claims = list(self.granted)
            claim = task_id, len(self.bench.task(task_id).runs) - 1
            if gives_up and claim in claims:
                with suppress(*REFUSALS):
                    self._report(claims.index(claim), ("exception", "worker-shutdown"))(self.servers[0])

    def _lose(self, task_id: str) -> None:
        self.ever_lost.add(task_id)
        stored = self.bench.storage.tasks.load(task_id)
        if stored:
            self.lost[task_id] = len(stored.task.runs), stored.task.state, self.bench.clock.now()

    def _swept(self) -> None:
        """The sweeper has offered again what was lost, once it looks at it: after 10 minutes, 20, 40, ..."""
        for task_id, (runs, state, when) in list(self.lost.items()):
            task = self.bench.task(task_id)
            if (len(task.runs), task.state, state) == (runs, state, "pending"):
                since = task.runs[-1].scheduled
                if self.bench.clock.now() - since >= max(FIRST_LOOK, 2 * (when - since)):
                    del self.lost[task_id]

    # what must be so

    @invariant()
    def promises_hold(self) -> None:
        self.is_intact = False
        told = self.bench.events()
        self.told += told
        for task_id in self.bodies:
            stored = self.bench.storage.tasks.load(task_id)
            if stored is None:
                assert task_id not in self.answered, "an answered createTask is lost"
                continue
            self._check_life(stored.task, told)
            runs, state, _ = self.lost.get(task_id, (-1, "", None))
            if (len(stored.task.runs), stored.task.state) == (runs, state):
                check_runs(stored.task)
            else:
                check(self.bench, task_id, after_faults=self.has_faults, skew=self.tick)
        self.is_intact = True

    def _check_life(self, task: Task, told: Sequence[Told]) -> None:
        before = self.seen.get(task.task_id)
        if task is before:
            group_resolved = ("task-group-resolved", task.definition.task_group_id, None)
            assert task.is_resolved or group_resolved not in told, (
                "told that a group is resolved, and it is not"
            )
            return
        if before:
            check_history(before, task)
        self.seen[task.task_id] = task
        first = task.runs[0] if task.runs else None
        if first and first.reason_created == "scheduled" and not (before and before.runs):
            assert task.task_id in self.scheduled or not task.waits_for, "pending before it was scheduled"
        waits_for = before.waits_for if before else task.definition.dependencies
        for one in set(waits_for) - set(task.waits_for):
            assert self._was_satisfied(task, one), "a dependency was taken for satisfied"
        for run in task.runs:
            _, until = self.granted.get((task.task_id, run.run_id), (None, NOW))
            if run.reason_resolved == "claim-expired":
                assert run.resolved
                assert until <= run.resolved, "a claim ended early"
            elif run.state == "running" and run.taken_until:
                assert until <= run.taken_until, "a claim was cut short"
            report = self.reported.get((task.task_id, run.run_id), (run.state, run.reason_resolved))
            assert report == (run.state, run.reason_resolved), "an answered report does not count"

    def _was_satisfied(self, task: Task, required_id: str, since: datetime = NOW) -> bool:
        """Whether what the task waits for has ended as it should, if only until it was rerun."""
        required = self.bench.task(required_id)
        return any(
            required.ended_with(run.run_id)
            and (run.state == "completed" or task.definition.requires == "all-resolved")
            and run.resolved is not None
            and run.resolved >= since
            for run in required.runs
        )

    def teardown(self) -> None:
        """However it went so far: from now on nothing fails."""
        if not self.is_intact:
            return  # which has been told
        start = self.bench.clock.now()
        self._come_to_an_end(self.bench.server())
        tasks = [stored.task for task_id in self.bodies if (stored := self.bench.storage.tasks.load(task_id))]
        for task in tasks:
            check_runs(task)
            self._check_life(task, [])
            self._check_end(task, start)
        told = [*self.told, *self.bench.events()]
        check_told(tasks, told, self.forgotten, self.hurried)

    def _come_to_an_end(self, server: Core) -> None:
        """Every timer and, if there is a worker, every message as it comes.

        The sweeper helps, less and less often, where a message was lost; otherwise only at last, to tidy up.
        """
        next_sweep, pause = self.bench.clock.now(), FIRST_LOOK
        for _ in range(500):
            coming = [one.next_visible for queue in QUEUES for one in self.bench.own_messages(queue)]
            coming += [one.next_visible for one in self.bench.messages()] if self.has_worker else []
            assert coming or self.ever_lost or not self._unresolved(), "nothing will ever end a task"
            self._wait_for(min(coming if coming and not self.ever_lost else [next_sweep, *coming]))
            server.timers.settle()
            for watcher in server.watchers.values():
                watcher.look(one_by_one)
            if self.bench.clock.now() >= next_sweep and (self.ever_lost or not coming):
                self._check_groups()
                self._sweep(server)
                next_sweep, pause = self.bench.clock.now() + pause, 2 * pause
            if self.has_worker:
                self._work(server)
            if self._has_ended():
                return
        raise AssertionError("it never comes to an end")

    def _check_groups(self) -> None:
        """The sweeper is not needed but for what a rerun leaves that loses a race."""
        if self.has_faults or self.ever_lost:
            return
        for active in self.bench.storage.groups.all_active("", 100).active:
            task = self.bench.task(active.task_id)
            is_current = active.activation in (0, task.activation(len(task.runs)))
            assert not is_current, "a group waits for a task that has ended"

    def _unresolved(self) -> bool:
        return bool(self.bench.storage.tasks.unresolved("", 1).tasks)

    def _has_ended(self) -> bool:
        storage = self.bench.storage
        return (
            not any(self.bench.own_messages(queue) for queue in QUEUES)
            and not self._unresolved()
            and not storage.groups.all_active("", 1).active
        )

    def _work(self, server: Core) -> None:
        for message in self.bench.receive():
            try:
                answer = self.bench.claim(message, BOB, server.services)
            except (RequestConflict, ResourceNotFound):
                self.bench.delete_if_leased(message)
            except ServiceUnavailable:
                pass
            else:
                self._grant(message.task_id, answer, BOB)
                self.bench.complete(message.task_id, answer["runId"], server.services)

    def _check_end(self, task: Task, start: datetime) -> None:
        last, deadline = task.runs[-1], task.definition.deadline
        if last.reason_resolved == "deadline-exceeded" and last.taken_until:
            is_late = deadline - max(last.taken_until, start) < 3 * HOUR  # the sweeper comes seldom
            assert is_late, "the claim of a dead worker never ended"
        if last.reason_resolved == "deadline-exceeded" and last.reason_created != "exception":
            waited = max(start - last.scheduled, 0 * SECOND)
            is_late = deadline - max(start, last.scheduled) < 4 * waited + 3 * HOUR
            assert is_late or not self.has_worker, "a lost message strands a task"
        if task.task_id in self.ever_lost:
            return  # it came to an end, by the sweeper
        soon = (
            3 * MINUTE + SECOND
        )  # a timer may be leased to a process that is gone, or put off for clocks' sake
        for run in task.runs:
            if run.reason_resolved == "claim-expired" and run.resolved and run.taken_until:
                assert run.resolved <= max(run.taken_until, start) + soon, "a claim expired late"
        assert last.resolved
        if last.reason_resolved != "deadline-exceeded":
            return
        assert last.resolved <= max(deadline, start) + soon, "the deadline ended the task late"
        if last.reason_created != "exception":
            is_late = deadline - max(last.scheduled, start) < HOUR
            assert is_late or not self.has_worker, "a task is stranded"
            return
        for one in task.waits_for:
            created = task.definition.created + SECOND
            if one != task.task_id and one not in self.ever_lost and self._was_satisfied(task, one, created):
                resolved = self.bench.task(one).runs[-1].resolved
                assert resolved
                assert max(resolved, start) + 2 * soon > deadline, "a dependent was forgotten"


def _only_crashes(_logger: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
    """A log in which an error that is not of our making stands out."""
    error = sys.exc_info()[1]
    if level in ("error", "exception") and not isinstance(error, Crash):
        raise AssertionError(f"logged as an error: {event['event']}") from error
    raise structlog.DropEvent


def run(settings: settings) -> None:
    """Raises AssertionError where a promise is broken."""
    before = structlog.get_config()
    structlog.configure(processors=[_only_crashes])
    try:
        run_state_machine_as_test(Life, settings=settings)
    finally:
        structlog.configure(**before)


def test_no_sequence_of_calls_faults_and_mishaps_breaks_a_promise() -> None:
    run(SETTINGS)
