"""Any sequence of operations, with faults at any port call, keeps the promises of "The held message"."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from legacy_queue.adapters.memory import MemoryStorage, MemoryTaskStore, MemoryWorkQueues
from legacy_queue.domain.errors import InputError, QueueError, RequestConflict, ServiceUnavailable
from legacy_queue.domain.messages import Lease
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.task import Task, Worker
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.ports import Changed, Clock, StoredTask
from legacy_queue.services import Services
from legacy_queue.services.claims import Presented
from tests.services import interleaving
from tests.services.bench import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    PROVISIONER,
    SECOND,
    WORKER_TYPE,
    At,
    Bench,
    Crash,
    Message,
    failing,
)
from tests.services.invariants import check

REPLICAS = st.integers(0, 1)
WORKERS = st.sampled_from([ALICE, BOB])

PICKS = st.integers(0, 7)
SCHEDULES = st.lists(st.integers(0, 1), max_size=12)
WAITS = st.sampled_from([SECOND, 10 * SECOND, 5 * MINUTE, 19 * MINUTE, 21 * MINUTE])
REPORTS = st.sampled_from(
    [
        ("completed", "completed"),
        ("failed", "failed"),
        ("exception", "worker-shutdown"),
        ("exception", "intermittent-task"),
        ("exception", "malformed-payload"),
    ]
)
PROTOCOLS = st.sampled_from(["draft", "deployed", "without receipt"])


def faults(call: int, kind: str) -> At:
    match kind:
        case "crash before":
            return At(call, before=failing(Crash()))
        case "crash after":
            return At(call, after=failing(Crash()))
        case "unavailable":
            return At(call, before=failing(ServiceUnavailable("storage is away")))
        case "answer lost":
            return At(call, after=failing(ServiceUnavailable("the answer was lost")))
        case _:
            return At(0, of="replace", after=failing(Changed()))


REFUSALS = (InputError, RequestConflict, ServiceUnavailable)  # all that may be answered here
KINDS = st.sampled_from(["crash before", "crash after", "unavailable", "answer lost", "retried write"])


class Life(RuleBasedStateMachine):
    """Two replicas that remember what they saw, two workers of either protocol, tasks with few retries."""

    with_faults = False
    storage = MemoryStorage
    is_intact = False

    @initialize(is_required=st.sampled_from([False, False, True]), retries=st.integers(0, 3))
    def start(self, is_required: bool, retries: int) -> None:
        required = [f"{PROVISIONER}/{WORKER_TYPE}"] if is_required else []
        self.bench = Bench(required=required, storage=self.storage)
        self.around: Callable[..., Any] | None = None
        self.replicas = [self.bench.replica(self._around, remembers=True) for _ in range(2)]
        self.tasks: list[str] = []
        self.polled: list[Message] = []
        self.granted: dict[tuple[str, int], tuple[Worker, datetime]] = {}
        self.create(retries, 24)

    def _around(self, name: str, call: Callable[[], Any]) -> Any:
        return self.around(name, call) if self.around else call()

    @precondition(lambda self: len(self.tasks) < 2)
    @rule(retries=st.integers(0, 3))
    def another(self, retries: int) -> None:
        self.create(retries, 1)

    def create(self, retries: int, hours: int) -> None:
        deadline = format_time(self.bench.clock.now() + hours * HOUR)
        task_id = self.bench.create(retries=retries, deadline=deadline)
        for replica in self.replicas:
            replica.tasks.recall(task_id)
        self.tasks.append(task_id)

    @rule(wait=WAITS)
    def wait(self, wait: Any) -> None:
        self.bench.clock.advance(wait)

    @rule(count=st.integers(1, 2))
    def poll(self, count: int) -> None:
        self.polled = [*self.bench.receive(count), *self.polled][:8]

    def _claim(self, services: Services, worker: Worker, pick: int, protocol: str) -> Callable[[], Any]:
        message = self.polled[pick % len(self.polled)]
        lease = message.lease
        presented = {
            "draft": message.presented,
            "deployed": Presented(),
            "without receipt": Presented(lease.message_id, None, message.signature),
        }[protocol]

        def act() -> None:
            try:
                answer = self.bench.claim(message, worker, services, presented)
            except QueueError as refusal:
                if refusal.status < 500:
                    self.bench.delete_if_leased(message)
                raise
            self._grant(message.task_id, answer, worker)
            if protocol != "draft":
                self.bench.delete_if_leased(message)

        return act

    def _grant(self, task_id: str, answer: Mapping[str, Any], worker: Worker) -> None:
        run_id, until = answer["runId"], parse_time(answer["takenUntil"])
        holder, _ = self.granted.get((task_id, run_id), (worker, until))
        assert holder == worker, "two workers hold one run"
        runs = self.bench.task(task_id).runs
        for earlier in range(run_id):
            assert runs[earlier].is_resolved
            _, believed = self.granted.get((task_id, earlier), (None, self.bench.clock.now()))
            if runs[earlier].reason_resolved == "claim-expired":
                assert believed <= self.bench.clock.now(), "a claim ended early"
        self.granted[task_id, run_id] = worker, until

    def _reclaim(self, services: Services, pick: int) -> Callable[[], Any]:
        task_id, run_id = list(self.granted)[pick % len(self.granted)]

        def act() -> None:
            answer = services.claims.reclaim(task_id, run_id)
            worker, before = self.granted[task_id, run_id]
            until = parse_time(answer["takenUntil"])
            self.granted[task_id, run_id] = worker, max(before, until)

        return act

    def _report(self, services: Services, pick: int, report: tuple[str, str]) -> Callable[[], Any]:
        task_id, run_id = list(self.granted)[pick % len(self.granted)]
        return lambda: services.tasks.report(task_id, run_id, *report)

    def _cancel(self, services: Services, pick: int) -> Callable[[], Any]:
        task_id = self.tasks[pick % len(self.tasks)]
        return lambda: services.tasks.cancel(task_id)

    def _action(self, data: st.DataObject, services: Services) -> Callable[[], Any] | None:
        kinds = [*(["claim"] * 4 if self.polled else []), *(["reclaim", "report"] if self.granted else [])]
        kinds += ["cancel"] if self.tasks else []
        if not kinds:
            return None
        pick = data.draw(PICKS)
        match data.draw(st.sampled_from(kinds)):
            case "claim":
                if pick == 0:
                    self.poll(1)
                return self._claim(services, data.draw(WORKERS), pick, data.draw(PROTOCOLS))
            case "reclaim":
                return self._reclaim(services, pick)
            case "report":
                return self._report(services, pick, data.draw(REPORTS))
            case _:
                return self._cancel(services, pick)

    @rule(data=st.data(), replica=REPLICAS)
    def one(self, data: st.DataObject, replica: int) -> None:
        action = self._action(data, self.replicas[replica])
        if action:
            self._perform(action, data)

    @rule(data=st.data(), replica=REPLICAS, worker=WORKERS, protocol=PROTOCOLS)
    def next_message(self, data: st.DataObject, replica: int, worker: Worker, protocol: str) -> None:
        """Whatever becomes visible next, some worker polls and claims."""
        coming = self.bench.messages()
        if coming:
            self.bench.clock.advance(max(coming[0].next_visible - self.bench.clock.now(), 0 * SECOND))
            self.poll(1)
            self._perform(self._claim(self.replicas[replica], worker, 0, protocol), data)

    def _perform(self, action: Callable[[], Any], data: st.DataObject) -> None:
        if self.with_faults and data.draw(st.booleans()):
            self.around = faults(data.draw(st.integers(0, 3)), data.draw(KINDS))
        try:
            action()
        except (*REFUSALS, Crash):
            pass
        finally:
            self.around = None

    @rule(data=st.data(), schedule=SCHEDULES)
    def two_at_once(self, data: st.DataObject, schedule: list[int]) -> None:
        actions = [self._action(data, replica) for replica in self.replicas]
        if None in actions:
            return
        order = iter(schedule)
        self.around = interleaving.pausing
        try:
            results = interleaving.run(
                [action for action in actions if action], lambda count: next(order, 0) % count
            )
        finally:
            self.around = None
        for result in results:
            assert not isinstance(result, Exception) or isinstance(result, REFUSALS), result

    @invariant()
    def promises_hold(self) -> None:
        self.is_intact = False
        for task_id in self.tasks:
            check(self.bench, task_id, after_faults=self.with_faults)
        self.is_intact = True

    def teardown(self) -> None:
        """However it went so far: from now on nothing fails, and whoever polls finishes every task."""
        if not self.is_intact:
            return  # which has been told
        services = self.bench.replica()
        for _ in range(100):
            coming = self.bench.messages()
            if not coming:
                break
            self.bench.clock.advance(max(coming[0].next_visible - self.bench.clock.now(), 0 * SECOND))
            for message in self.bench.receive():
                try:
                    run_id = self.bench.claim(message, BOB, services)["runId"]
                except RequestConflict:
                    self.bench.delete_if_leased(message)
                else:
                    self.bench.complete(message.task_id, run_id)
        for task_id in self.tasks:
            task = self.bench.task(task_id)
            is_late = self.bench.clock.now() >= task.definition.deadline - CLAIM_TIMEOUT - MINUTE
            assert is_late or task.runs[-1].is_resolved, "a task is stranded"


class LifeWithFaults(Life):
    with_faults = True


class ShortQueues(MemoryWorkQueues):
    """Hides messages for a second less than was promised."""

    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        return super().put(queue, text, expires_in, max(hidden_for - SECOND, 0 * SECOND))

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        return super().hide(queue, lease, text, max(hidden_for - SECOND, 0 * SECOND))


class LongQueues(MemoryWorkQueues):
    """Keeps messages for a second more than was asked for."""

    def put(self, queue: WorkQueue, text: str, expires_in: timedelta, hidden_for: timedelta) -> Lease:
        return super().put(queue, text, expires_in + SECOND, hidden_for)


class LossyQueues(MemoryWorkQueues):
    """Loses a message when it is to become visible at once."""

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:
        if not hidden_for:
            self.remove(queue, lease)
            return lease
        return super().hide(queue, lease, text, hidden_for)


class DeafQueues(MemoryWorkQueues):
    """Answers that it holds a message, and forgets to."""

    def hide(self, queue: WorkQueue, lease: Lease, text: str, hidden_for: timedelta) -> Lease:  # noqa: ARG002
        return lease


class BlindTasks(MemoryTaskStore):
    """Writes over whatever is there."""

    def replace(self, stored: StoredTask, task: Task) -> StoredTask:  # noqa: ARG002
        current = self.load(task.task_id)
        assert current
        return super().replace(current, task)


def broken(tasks: type[MemoryTaskStore], queues: type[MemoryWorkQueues]) -> type[MemoryStorage]:
    class BrokenStorage(MemoryStorage):
        def __init__(self, clock: Clock, queue_url: str, queue_prefix: str) -> None:
            super().__init__(clock, queue_url, queue_prefix)
            self.tasks = tasks()
            self.work_queues = queues(clock, queue_url, queue_prefix, "account", "key")

    return BrokenStorage


SETTINGS = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize("life", [Life, LifeWithFaults])
def test_no_sequence_of_operations_breaks_an_invariant(life: type[Life]) -> None:
    run_state_machine_as_test(life, settings=SETTINGS)


@pytest.mark.parametrize(
    ("tasks", "queues", "broken_promise"),
    [
        (MemoryTaskStore, ShortQueues, "nothing enforces the end of the claim|the table names another"),
        (MemoryTaskStore, LongQueues, "a message outlives the deadline"),
        (MemoryTaskStore, LossyQueues, "no message leads to pending run"),
        (MemoryTaskStore, DeafQueues, "no message leads past running run"),
        (BlindTasks, MemoryWorkQueues, "two workers hold one run|resolved"),
    ],
)
def test_a_storage_that_breaks_a_promise_is_found_out(
    tasks: type[MemoryTaskStore], queues: type[MemoryWorkQueues], broken_promise: str
) -> None:
    class BrokenLife(Life):
        storage = broken(tasks, queues)

    with pytest.raises(AssertionError, match=broken_promise):
        run_state_machine_as_test(BrokenLife, settings=settings(SETTINGS, phases=[Phase.generate]))
