"""Any sequence of calls, timers, faults and mishaps keeps invariants 1-3 and promises 1-4.

Two replicas and two workers of any protocol use one storage. Clients of claimWork may disconnect. At the
end of each example nothing fails any more: with a worker every task that can run is run, without one every
task is resolved by its deadline, and all events are published.
"""

import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn

import pytest
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

from legacy_queue.domain.errors import (
    AuthorizationFailed,
    InputError,
    QueueError,
    RequestConflict,
    ResourceNotFound,
    ServiceUnavailable,
)
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.timer import FIRST_LOOK
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import BrokerAway, Changed
from legacy_queue.services.composition import Services
from legacy_queue.services.tasks.claims import ClaimProof
from tests.services import interleaving
from tests.services.harness import (
    ALICE,
    BOB,
    HIGH,
    HOUR,
    MINUTE,
    NOW,
    PROVISIONER,
    QUEUE,
    SECOND,
    WORKER_TYPE,
    Crash,
    FaultAt,
    Harness,
    Message,
    PublishedEvent,
    failing,
    task_body,
    visible_at,
)
from tests.services.invariants import (
    Claim,
    check,
    check_history,
    check_order,
    check_published,
    check_runs,
    is_genuine,
)

SETTINGS = settings(max_examples=100, stateful_step_count=50)

PICKS = st.integers(0, 7)
REPLICAS = st.integers(0, 1)
WORKERS = st.sampled_from([ALICE, BOB])
LEGACY = ("draft", "deployed", "without receipt")
PROTOCOLS = st.sampled_from([*LEGACY, "claimWork", "claimWork", "claimWork, not answered yet"])
# which action continues, and for how many steps
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
# number and method of the call: the first of important methods, or any call
CALLS = st.sampled_from(
    [
        *((0, of) for of in ("put", "hide", "insert", "replace", "broker.publish") * 2),
        *((call, "") for call in range(9)),
    ]
)
MAX_TASKS = 4
OURS = (HIGH, QUEUE)
ANOTHER_QUEUE = WorkQueue(PROVISIONER, "another-type", "lowest")

# the refusals that calls may get here
REFUSALS = (AuthorizationFailed, InputError, RequestConflict, ResourceNotFound, ServiceUnavailable)

Action = Callable[[Services], object]


def _task_id(number: int) -> str:
    """A valid taskId, the same in every run."""
    return f"Task{number:04}Q0C0000000000A"


GROUP = _task_id(0)


@dataclass(frozen=True)
class Shape:
    """The definition of a task, which may depend on earlier tasks."""

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


def faults(call: int, of: str, kind: str) -> FaultAt:
    match kind:
        case "crash before":
            return FaultAt(call, of=of, before=failing(Crash()))
        case "crash after":
            return FaultAt(call, of=of, after=failing(Crash()))
        case "unavailable":
            return FaultAt(call, of=of, before=failing(ServiceUnavailable("storage is away")))
        case "answer lost":
            return FaultAt(call, of=of, after=failing(ServiceUnavailable("the answer was lost")))
        case _:
            return FaultAt(0, of="replace", after=failing(Changed()))


class Life(RuleBasedStateMachine):
    """``polled``: the received messages and their queues. ``granted``: the claims that workers know.
    ``unanswered``: claims of claimWork that the client has not received yet. ``taken_back``: claims of
    clients that disconnected, whatever became of them. A worker that got the claim by claimTask too
    does not disconnect. ``lost``: the state of a task when a message of it was lost.

    Events of a task ``without_timer`` may be missing: a crash, or the end of a server with unpublished
    events, came together with the loss of its timer. Scheduling or rerunning a task that is not
    ``announced`` yet, because its creation was cut off or is under way, may publish task-pending before
    task-defined: it is ``hurried``. ``registered``: when a task was first seen among the dependents of
    another. If the other ended before that and was rerun, the task waits for it.
    """

    is_intact = False

    @initialize(
        has_faults=st.booleans(),
        has_losses=st.booleans(),
        has_worker=st.booleans(),
        end_well=st.booleans(),
        is_alone=st.booleans(),
        at_last=st.sampled_from(["draft", "claimWork"]),
        tick=st.sampled_from([0 * SECOND, timedelta(milliseconds=300)]),
        is_required=st.sampled_from([False, False, True]),
        shapes=st.lists(SHAPES, min_size=1, max_size=3),
    )
    def start(
        self,
        has_faults: bool,
        has_losses: bool,
        has_worker: bool,
        end_well: bool,
        is_alone: bool,
        at_last: str,
        tick: timedelta,
        is_required: bool,
        shapes: list[Shape],
    ) -> None:
        """``tick``: duration of a port call. ``end_well``: at the end the servers are stopped, not killed.
        ``is_alone``: one server makes one call after the other, so its events are in order.

        ``at_last``: the protocol of the worker at the end.
        """
        self.tick, self.end_well, self.at_last = tick, end_well, at_last
        self.has_faults, self.has_losses, self.has_worker = has_faults, has_losses, has_worker
        required = [f"{PROVISIONER}/{WORKER_TYPE}"] if is_required else []
        self.harness = Harness(required=required)
        self.intercept: Callable[..., Any] | None = None
        self.servers = [self._server()] * 2 if is_alone else [self._server(), self._server()]
        self.is_alone, self.is_ordered = is_alone, is_alone and not has_faults
        for queue in (QUEUE, ANOTHER_QUEUE):
            self.servers[0].polling.poll_urls(queue.provisioner_id, queue.worker_type, "client")
        self.bodies: dict[str, dict[str, Any]] = {}  # of each task that was asked for
        self.answered: set[str] = set()
        self.announced: set[str] = set()
        self.hurried: set[str] = set()
        self.seen: dict[str, Task] = {}
        self.polled: list[tuple[WorkQueue, Message]] = []
        self.granted: dict[tuple[str, int], tuple[Worker, datetime]] = {}
        self.unanswered: dict[tuple[str, int], tuple[Worker, Mapping[str, Any]]] = {}
        self.taken_back: set[Claim] = set()
        self.reported: dict[tuple[str, int], tuple[str, str]] = {}
        self.scheduled: set[str] = set()
        self.lost: dict[str, tuple[int, str, datetime]] = {}
        self.ever_lost: set[str] = set()
        self.was_away = False
        self.without_timer: set[str] = set()
        self.registered: dict[tuple[str, str], datetime] = {}  # by dependent and what it waits for
        self.published: list[PublishedEvent] = []
        self.is_sealed = False
        for shape in shapes:
            self._create(shape)(self.servers[0])

    def _server(self) -> Services:
        return self.harness.replica(self._intercept, caches_tasks=True)

    def _intercept(self, name: str, call: Callable[[], Any]) -> Any:
        if self.intercept is not interleaving.pausing:
            self.harness.clock.advance(self.tick)
        try:
            return self.intercept(name, call) if self.intercept else call()
        except ServiceUnavailable as away:
            raise BrokerAway if name.startswith("broker.") else away from None

    # the clients

    def _create(self, shape: Shape, *others: str) -> Action:
        task_id, now, known = _task_id(len(self.bodies) + 1), self.harness.clock.now(), list(self.bodies)
        waits_for = {"first": known[:1], "last": known[-1:], "both": [*known[:1], *known[1:][-1:]]}
        self.bodies[task_id] = task_body(
            now,
            retries=shape.retries,
            deadline=format_time(now + shape.lasts),
            dependencies=list(others) or waits_for.get(shape.waits_for, []),
            requires=shape.requires,
            **({"taskGroupId": GROUP, "schedulerId": "scheduler"} if shape.in_group else {}),
        )
        return self._create_again(task_id, "defineTask" if shape.is_defined else "createTask")

    def _create_again(self, task_id: str, how: str) -> Action:
        body = self.bodies[task_id]

        def act(server: Services) -> None:
            may_join = not self.is_sealed or body.get("taskGroupId") != GROUP or self._has_joined(task_id)
            if how == "another":
                server.tasks.create(task_id, {**body, "payload": {}, "taskGroupId": task_id})
            elif how == "defineTask":
                self.bodies[task_id] = {**body, "dependencies": [*body["dependencies"], task_id]}
                server.tasks.define(task_id, body)
            else:
                server.tasks.create(task_id, body)
            assert may_join or how == "another", "a sealed group takes a new task"
            self.answered.add(task_id)
            if not self.intercept:
                self.announced.add(task_id)

        return act

    def _has_joined(self, task_id: str) -> bool:
        """Whether the task is in the group, or a createTask has put it there."""
        return task_id in self.harness.storage.groups.members(GROUP, "", 100)

    def _seal(self, server: Services) -> None:
        server.groups.seal(GROUP)
        self.is_sealed = True

    def _cancel_group(self, server: Services) -> None:
        server.group_changes.cancel(GROUP)
        if not self.intercept:
            for stored in self.harness.storage.tasks.unresolved("", 100)[0]:
                is_left = stored.task.definition.task_group_id == GROUP
                is_late = self.harness.clock.now() >= stored.task.definition.deadline
                assert is_late or not is_left, "a task of a canceled group goes on"

    def _change_priority(self, task_id: str, pick: int) -> Action:
        new = OURS[pick % 2].priority

        def act(server: Services) -> None:
            if pick > 5:
                server.group_changes.change_priority(GROUP, new, ("raise", "lower"))
                return
            task = server.tasks.load(task_id)
            changed = server.tasks.change_priority(task_id, task.priority, new)
            assert changed.priority == new

        return act

    def _claim(self, worker: Worker, pick: int, protocol: str) -> Action:
        queue, message = self.polled[pick % len(self.polled)]
        if protocol not in LEGACY or queue not in OURS:
            return self._claim_work(queue, message, worker, is_answered=protocol == "claimWork")
        proof = {
            "draft": message.proof,
            "deployed": ClaimProof(),
            "without receipt": ClaimProof(message.lease.message_id, None, message.signature),
        }[protocol]

        def act(server: Services) -> None:
            is_due = self._is_due(message)
            try:
                answer = self.harness.claim(message, worker, server, proof)
            except QueueError as refusal:
                if refusal.status < 500:
                    self.harness.delete_if_leased(message, queue)
                if is_due and not self.intercept and not isinstance(refusal, InputError):
                    raise AssertionError("a due claim is refused") from refusal
                raise
            self._grant(answer, worker)
            if protocol != "draft":
                self.harness.delete_if_leased(message, queue)

        return act

    def _is_due(self, message: Message) -> bool:
        """Whether a claim with the message must be granted."""
        task, now = self.harness.task(message.task_id), self.harness.clock.now()
        run = task.runs[message.run_id] if message.run_id < len(task.runs) else None
        is_pending = run is not None and run.state == "pending"
        return is_pending and now < task.definition.deadline - MINUTE and is_genuine(message)

    def _claim_work(self, queue: WorkQueue, message: Message, worker: Worker, *, is_answered: bool) -> Action:
        is_ours = queue in OURS and is_genuine(message)

        def act(server: Services) -> None:
            is_here = is_ours and self.harness.task(message.task_id).work_queue == queue
            is_due, known = is_here and self._is_due(message), set(self.granted)
            try:
                answer = server.claims.claim_polled(queue, message.received, worker)
            except ServiceUnavailable:
                assert not is_due or self.intercept, "a due claim is refused"
                self.harness.services.pollers.release(queue, message.received, 2 * SECOND)
                raise
            if answer is None:
                assert not is_due or self.intercept, "a due claim is refused"
                self._check_gone(queue, message)
                return
            assert is_here or (is_ours and self.intercept), "what leads nowhere is claimed"
            key = message.task_id, answer["runId"]
            if key in known | self.unanswered.keys():
                # near the deadline, in one millisecond, two claims of a worker look the same
                assert not self.harness.task(message.task_id).held, "a claim was given twice"
                self._grant(answer, worker)
                return
            self.unanswered[key] = worker, answer
            if is_answered or key in self.granted:  # the same worker has heard of it by claimTask meanwhile
                self._answer(key)

        return act

    def _check_gone(self, queue: WorkQueue, message: Message) -> None:
        held = self.harness.task(message.task_id).held
        if not self.intercept and not (held and held.message_id == message.lease.message_id):
            leases = [message.lease for message in self.harness.messages(queue)]
            assert message.lease not in leases, "a stale message stays"

    def _answer(self, key: tuple[str, int]) -> None:
        """The client gets the answer with its claim, if it has not disconnected."""
        if key in self.unanswered:
            worker, answer = self.unanswered.pop(key)
            self._grant(answer, worker)

    def _answer_late(self, pick: int) -> Action:
        key = list(self.unanswered)[pick % len(self.unanswered)]
        return lambda _: self._answer(key)

    def _disconnect(self, pick: int) -> Action:
        key = list(self.unanswered)[pick % len(self.unanswered)]

        def act(server: Services) -> None:
            if key in self.unanswered:
                worker, answer = self.unanswered.pop(key)
                self.taken_back.add((*key, worker, parse_time(answer["takenUntil"])))
                server.claims.release_claim(answer, worker)

        return act

    def _grant(self, answer: Mapping[str, Any], worker: Worker) -> None:
        key, until = (answer["status"]["taskId"], answer["runId"]), parse_time(answer["takenUntil"])
        if (*key, worker, until) in self.taken_back:
            return  # its other request disconnected
        for holder, _ in (self.granted.get(key, (worker, until)), self.unanswered.pop(key, (worker, {}))):
            assert holder == worker, "two workers hold one run"
        self.granted[key] = worker, until

    def _reclaim(self, pick: int) -> Action:
        task_id, run_id = list(self.granted)[pick % len(self.granted)]

        def act(server: Services) -> None:
            task, now = self.harness.task(task_id), self.harness.clock.now()
            run = task.runs[run_id]
            ends = min(run.taken_until or now, task.definition.deadline)
            is_due = run.state == "running" and now < ends - MINUTE
            try:
                answer = server.claims.reclaim(task_id, run_id)
            except RequestConflict:
                assert not is_due or self.intercept, "a due reclaim is refused"
                raise
            worker, before = self.granted[task_id, run_id]
            self.granted[task_id, run_id] = worker, max(before, parse_time(answer["takenUntil"]))

        return act

    def _report(self, pick: int, report: tuple[str, str], *, is_prompt: bool = False) -> Action:
        """``is_prompt``: the server's own watcher is as quick as it can be."""
        task_id, run_id = list(self.granted)[pick % len(self.granted)]

        def act(server: Services) -> None:
            is_due = self.harness.task(task_id).runs[run_id].state == "running"
            try:
                server.tasks.report(task_id, run_id, *report)
            except RequestConflict:
                assert not is_due or self.intercept, "a due report is refused"
                raise
            self.reported[task_id, run_id] = report
            if is_prompt:
                self._look(server)

        return act

    def _cancel(self, task_id: str, pick: int) -> Action:
        def act(server: Services) -> None:
            server.tasks.cancel(task_id)
            if pick % 2:
                self._look(server)

        return act

    def _schedule(self, task_id: str) -> Action:
        self.scheduled.add(task_id)
        self._hurry(task_id)
        return lambda server: server.tasks.schedule(task_id)

    def _rerun(self, task_id: str) -> Action:
        self._hurry(task_id)
        return lambda server: server.tasks.rerun(task_id)

    def _hurry(self, task_id: str) -> None:
        self.hurried |= {task_id} - self.announced

    # the servers

    @staticmethod
    def _look(server: Services) -> None:
        if server.publisher.check():
            server.timers.retry_now()
        server.resolver.handle_all()

    @staticmethod
    def _sweep(server: Services) -> None:
        assert server.periodic_jobs
        server.periodic_jobs.do_due(threading.Event())

    def _action(self, data: st.DataObject) -> Action:
        pick = data.draw(PICKS, "pick")
        task_id = list(self.bodies)[pick % len(self.bodies)]
        kinds = ["create"] if len(self.bodies) < MAX_TASKS else []
        kinds += ["claim"] * 4 if self.polled else []
        kinds += ["reclaim", "report", "report"] * 2 if self.granted else []
        kinds += ["answer", "disconnect", "disconnect"] if self.unanswered else []
        kinds += ["poll", "look", "look", "tick", "receive", "again", "schedule", "cancel", "rerun", "sweep"]
        kinds += ["priority", "priority", "seal", "cancel group"]
        without_task: dict[str, Action] = {
            "poll": lambda _: self._poll(),
            "look": self._look,
            "tick": lambda server: server.timers.tick(),
            "receive": lambda server: server.timers.receive(),
            "sweep": self._sweep,
            "seal": self._seal,
            "cancel group": self._cancel_group,
        }
        match data.draw(st.sampled_from(kinds), "action"):
            case kind if kind in without_task:
                return without_task[kind]
            case "create":
                return self._create(data.draw(SHAPES, "shape"))
            case "claim":
                return self._claim(data.draw(WORKERS, "worker"), pick, data.draw(PROTOCOLS, "protocol"))
            case ("reclaim" | "answer" | "disconnect") as kind:
                of_claims = {
                    "reclaim": self._reclaim,
                    "answer": self._answer_late,
                    "disconnect": self._disconnect,
                }
                return of_claims[kind](pick)
            case "report":
                return self._report(pick, data.draw(REPORTS, "report"), is_prompt=pick % 2 == 1)
            case "again":
                return self._create_again(task_id, "another" if pick > 5 else "createTask")
            case "cancel":
                return self._cancel(task_id, pick)
            case "priority":
                return self._change_priority(task_id, pick)
            case kind:
                return {"schedule": self._schedule, "rerun": self._rerun}[kind](task_id)

    @rule(data=st.data(), replica=REPLICAS)
    def perform_one_action(self, data: st.DataObject, replica: int) -> None:
        self._perform(replica, self._action(data), data)

    @precondition(lambda self: len(self.bodies) < MAX_TASKS)
    @rule(data=st.data(), replica=REPLICAS, shape=SHAPES)
    def ask_for_another(self, data: st.DataObject, replica: int, shape: Shape) -> None:
        self._perform(replica, self._create(shape), data)

    @rule(data=st.data(), replica=REPLICAS, worker=WORKERS, protocol=PROTOCOLS, stays=st.booleans())
    def next_message(
        self, data: st.DataObject, replica: int, worker: Worker, protocol: str, stays: bool
    ) -> None:
        """A worker polls and claims the next visible message. If it ``stays``, it reclaims."""
        coming = [visible_at(message) for queue in OURS for message in self.harness.messages(queue)]
        if coming:
            self._wait_for(min(coming))
            self._poll()
            self._perform(replica, self._claim(worker, 0, protocol), data)
        if stays and self.granted:
            self.harness.clock.advance(10 * MINUTE)
            self._perform(1 - replica, self._reclaim(-1), data)
        elif self.unanswered and not stays:
            self._perform(replica, self._disconnect(-1), data)

    @rule(data=st.data(), replica=REPLICAS)
    def next_timer(self, data: st.DataObject, replica: int) -> None:
        coming = self.harness.timers()
        if coming:
            self._wait_for(coming[0].timer.due + SECOND)  # in which its own process handles it
            self._perform(replica, self._fire, data)

    @staticmethod
    def _fire(server: Services) -> None:
        server.timers.tick()
        server.timers.receive()
        server.resolver.handle_all()

    def _perform(self, replica: int, action: Action, data: st.DataObject) -> None:
        if self.has_faults and data.draw(st.booleans(), "fault"):
            self.intercept = faults(*data.draw(CALLS, "call"), data.draw(KINDS, "kind"))
        try:
            action(self.servers[replica])
        except Crash:
            self.servers[replica] = self._server()
        except REFUSALS:
            pass
        else:
            if action == self._sweep and not self.intercept:
                self._swept()
        finally:
            self.intercept = None

    @precondition(lambda self: not self.is_alone)  # interleaved greenlets cannot wait for each other
    @rule(data=st.data(), schedule=SCHEDULES)
    def perform_two_actions_concurrently(self, data: st.DataObject, schedule: list[tuple[int, int]]) -> None:
        self._at_once([self._action(data), self._action(data)], schedule)

    def _at_once(self, actions: list[Action], schedule: list[tuple[int, int]]) -> None:
        order = (who for who, steps in schedule for _ in range(steps))
        self.intercept = interleaving.pausing
        try:
            results = interleaving.run(
                [partial(action, server) for action, server in zip(actions, self.servers, strict=True)],
                lambda count: next(order, 0) % count,
            )
        finally:
            self.intercept = None
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, REFUSALS):
                raise result

    @precondition(lambda self: not self.is_alone and self.granted and len(self.bodies) < MAX_TASKS + 2)
    @rule(shape=SHAPES, pick=PICKS, report=REPORTS, steps=st.integers(0, 8))
    def ask_while_a_dependency_ends(
        self, shape: Shape, pick: int, report: tuple[str, str], steps: int
    ) -> None:
        """The dependency ends, with all effects, after ``steps`` steps of createTask."""
        claims = list(self.granted)
        running = [claim for claim in claims if self.harness.task(claim[0]).runs[claim[1]].state == "running"]
        if running:
            claim = running[pick % len(running)]
            report_it = self._report(claims.index(claim), report, is_prompt=True)
            self._at_once([self._create(shape, claim[0]), report_it], [(0, steps), (1, 100)])

    # the environment

    @rule(is_away=st.booleans())
    def broker(self, is_away: bool) -> None:
        """The broker goes away or comes back. Each server finds out by itself."""
        self.harness.broker.capacity = 0 if is_away else None
        self.was_away |= is_away

    @rule(wait=WAITS)
    def wait(self, wait: timedelta) -> None:
        self.harness.clock.advance(wait)

    def _wait_for(self, time: datetime) -> None:
        self.harness.clock.advance(max(time - self.harness.clock.now(), 0 * SECOND))

    def _poll(self) -> None:
        queues = (*OURS, ANOTHER_QUEUE)
        received = [(queue, message) for queue in queues for message in self.harness.receive(1, queue)]
        self.polled = [*received, *self.polled][:8]

    @precondition(lambda self: self.has_losses)
    @rule(pick=PICKS)
    def lose_a_timer(self, pick: int) -> None:
        if timers := self.harness.timers():
            lost = timers[pick % len(timers)]
            self.harness.timer_table.delete(lost.partition, lost.key)
            self._lose(lost.timer.task_id)
            self.without_timer.add(lost.timer.task_id)

    @rule(
        kind=st.sampled_from(["doubled", "forged", "misplaced", "lost", "lost"]),
        gives_up=st.booleans(),
        pick=PICKS,
    )
    def mishap_at_work(self, kind: str, gives_up: bool, pick: int) -> None:
        """Duplicate, forge, misplace or lose a work message. The worker that holds it may give up then."""
        messages, queues = self.harness.messages(), self.harness.storage.work_queues
        if not messages:
            return
        message, now = messages[pick % len(messages)], self.harness.clock.now()
        lives, hidden = message.expires - now, max(visible_at(message) - now, 0 * SECOND)
        match kind:
            case "doubled":
                queues.put(QUEUE, message.text, lives, hidden)
            case "forged":
                read = Message.read(message)
                text = message_text(read.task_id, read.run_id, b"the-secret-of-another-server")
                queues.put(QUEUE, text, lives, 0 * SECOND)
            case "misplaced":
                queues.put(ANOTHER_QUEUE, message.text, lives, hidden)
            case _ if self.has_losses:
                queues.remove(QUEUE, message.lease)
                self._lose_work(Message.read(message).task_id, gives_up)

    def _lose_work(self, task_id: str, gives_up: bool) -> None:
        self._lose(task_id)
        claims = list(self.granted)
        claim = task_id, len(self.harness.task(task_id).runs) - 1
        if gives_up and claim in claims:
            with suppress(*REFUSALS):
                self._report(claims.index(claim), ("exception", "worker-shutdown"))(self.servers[0])

    def _lose(self, task_id: str) -> None:
        self.ever_lost.add(task_id)
        stored = self.harness.storage.tasks.load(task_id)
        if stored:
            self.lost[task_id] = len(stored.task.runs), stored.task.state, self.harness.clock.now()

    def _swept(self) -> None:
        """The sweeper has offered lost runs again: after 10 minutes, 20, 40, ..."""
        for task_id, (runs, state, when) in list(self.lost.items()):
            task = self.harness.task(task_id)
            if (len(task.runs), task.state, state) == (runs, state, "pending"):
                since = task.runs[-1].scheduled
                if self.harness.clock.now() - since >= max(FIRST_LOOK, 2 * (when - since)):
                    del self.lost[task_id]

    # invariants

    @invariant()
    def promises_hold(self) -> None:
        self.is_intact = False
        events = self.harness.events()
        self.published += events
        for task_id in self.bodies:
            stored = self.harness.storage.tasks.load(task_id)
            if stored is None:
                assert task_id not in self.answered, "an answered createTask is lost"
                continue
            self._check_life(stored.task, events)
            for dependent in self.harness.storage.dependencies.dependents(task_id, "", 100):
                self.registered.setdefault((dependent.task_id, task_id), self.harness.clock.now())
            runs, state, _ = self.lost.get(task_id, (-1, "", None))
            if (len(stored.task.runs), stored.task.state) == (runs, state):
                check_runs(stored.task)
            else:
                # the put is the last of up to three calls: a lease that is lost, a queue that is made
                check(self.harness, task_id, after_faults=self.has_faults, skew=3 * self.tick)
        self.is_intact = True

    def _check_life(self, task: Task, events: Sequence[PublishedEvent]) -> None:
        before = self.seen.get(task.task_id)
        if task is before:
            group_resolved = ("task-group-resolved", task.definition.task_group_id, None)
            assert task.is_resolved or group_resolved not in events, (
                "published that a group is resolved, and it is not"
            )
            return
        if before:
            check_history(before, task, self.taken_back)
        self.seen[task.task_id] = task
        first = task.runs[0] if task.runs else None
        if first and first.reason_created == "scheduled" and not (before and before.runs):
            assert task.task_id in self.scheduled or not task.waits_for, "pending before it was scheduled"
        waits_for = before.waits_for if before else task.definition.dependencies
        for required_id in set(waits_for) - set(task.waits_for):
            assert self._was_satisfied(task, required_id), "a dependency was taken for satisfied"
        for run in task.runs:
            worker, until = self.granted.get((task.task_id, run.run_id), (None, NOW))
            assert worker in (None, run.worker), "an answered claim does not count"
            if run.reason_resolved == "claim-expired":
                assert run.resolved
                assert until <= run.resolved, "a claim ended early"
            elif run.state == "running" and run.taken_until:
                assert until <= run.taken_until, "a claim was cut short"
            report = self.reported.get((task.task_id, run.run_id), (run.state, run.reason_resolved))
            assert report == (run.state, run.reason_resolved), "an answered report does not count"

    def _was_satisfied(self, task: Task, required_id: str, since: datetime = NOW) -> bool:
        """Whether the dependency ended as required, even if it was rerun later."""
        required = self.harness.task(required_id)
        return any(
            required.ended_with(run.run_id)
            and (run.state == "completed" or task.definition.requires == "all-resolved")
            and run.resolved is not None
            and run.resolved >= since
            for run in required.runs
        )

    def teardown(self) -> None:
        """From now on nothing fails: all tasks come to an end."""
        if not self.is_intact:
            return  # the failure is reported already
        self.harness.broker.capacity = None
        for server in self.servers if self.end_well and not self.is_ordered else ():
            server.timers.hand_over()
        start = self.harness.clock.now()
        self._come_to_an_end(self.servers[0] if self.is_ordered else self.harness.replica())
        tasks = [
            stored.task for task_id in self.bodies if (stored := self.harness.storage.tasks.load(task_id))
        ]
        for task in tasks:
            check_runs(task)
            self._check_life(task, [])
            self._check_end(task, start)
        published = [*self.published, *self.harness.events()]
        is_killed = not (self.end_well or self.is_ordered)  # with effects that a call left to its timer
        incomplete = self.without_timer if self.has_faults or self.was_away or is_killed else set()
        is_hurried = self.was_away and not self.is_ordered  # another process may have published first
        hurried = {*self.bodies} if is_hurried else self.hurried
        check_published(tasks, published, incomplete, hurried, self.taken_back)
        if self.is_ordered:
            check_order([task for task in tasks if task.task_id not in incomplete], published)

    def _come_to_an_end(self, server: Services) -> None:
        """Handle every timer and, if there is a worker, every message.

        If a message was lost, the sweeper runs too, less and less often; otherwise only at the end.
        """
        next_sweep, pause = self.harness.clock.now(), FIRST_LOOK
        for _ in range(500):
            coming = [row.timer.due + SECOND for row in self.harness.timers()]
            queues = OURS if self.has_worker else ()
            coming += [visible_at(message) for queue in queues for message in self.harness.messages(queue)]
            assert coming or self.ever_lost or not self._unresolved(), (
                "no timer or message will ever end a task"
            )
            self._wait_for(min(coming if coming and not self.ever_lost else [next_sweep, *coming]))
            if server.publisher.check():
                server.timers.retry_now()
            server.timers.tick()
            server.timers.receive()
            server.resolver.handle_all()
            if self.harness.clock.now() >= next_sweep and (self.ever_lost or not coming):
                self._check_groups()
                self._sweep(server)
                next_sweep, pause = self.harness.clock.now() + pause, 2 * pause
            if self.has_worker:
                self._work(server)
                server.resolver.handle_all()  # a message was lost: only this process knows of the task
            if self._has_ended():
                return
        raise AssertionError("it never comes to an end")

    def _check_groups(self) -> None:
        """The sweeper has work only for a rerun that lost a race."""
        if self.has_faults or self.ever_lost:
            return
        for active in self.harness.storage.groups.all_active("", 100)[0]:
            task = self.harness.task(active.task_id)
            is_current = active.activation in (0, task.activation(len(task.runs)))
            assert not is_current, "a group waits for a task that has ended"

    def _unresolved(self) -> bool:
        return bool(self.harness.storage.tasks.unresolved("", 1)[0])

    def _has_ended(self) -> bool:
        storage = self.harness.storage
        return (
            not self.harness.timers() and not self._unresolved() and not storage.groups.all_active("", 1)[0]
        )

    def _work(self, server: Services) -> None:
        received = [(queue, message) for queue in OURS for message in self.harness.receive(queue=queue)]
        for queue, message in received:
            try:
                answer: Mapping[str, Any] | None
                if self.at_last == "claimWork":
                    answer = server.claims.claim_polled(queue, message.received, BOB)
                else:
                    answer = self.harness.claim(message, BOB, server)
            except (AuthorizationFailed, RequestConflict, ResourceNotFound):
                self.harness.delete_if_leased(message, queue)
                continue
            except ServiceUnavailable:
                continue
            if answer:
                self._grant(answer, BOB)
                self.harness.complete(message.task_id, answer["runId"], server)

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
            return  # the sweeper ended it
        soon = (
            3 * MINUTE + SECOND
        )  # a timer may be leased to a dead process, or put off because clocks differ
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
        for required_id in task.waits_for:
            required, registered = (
                self.harness.task(required_id),
                self.registered.get((task.task_id, required_id)),
            )
            if required_id == task.task_id or required_id in self.ever_lost:
                continue
            is_now = required.satisfies(task.definition.requires)
            was_since = registered and self._was_satisfied(task, required_id, registered + SECOND)
            if is_now or was_since:
                resolved = required.runs[-1].resolved
                assert resolved
                assert max(resolved, start) + 2 * soon > deadline, "a dependent was forgotten"


def _only_crashes(_logger: object, level: str, event: MutableMapping[str, Any]) -> NoReturn:
    """Fails for an error in the log, but for the injected crashes."""
    error = sys.exc_info()[1]
    if level in ("error", "exception") and not isinstance(error, Crash):
        raise AssertionError(f"logged as an error: {event['event']}") from error
    raise structlog.DropEvent


def run(settings: settings) -> None:
    """Raises AssertionError if a promise is broken."""
    before = structlog.get_config()
    structlog.configure(processors=[_only_crashes])
    try:
        run_state_machine_as_test(Life, settings=settings)
    finally:
        structlog.configure(**before)


@pytest.mark.timeout(600)  # many examples
@pytest.mark.no_cover  # which would take as long again, and whose lines are left to chance
def test_any_sequence_of_calls_and_faults_keeps_the_promises() -> None:
    run(SETTINGS)
