"""The control API moves the clock, makes requests fail, and injects invalid messages."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from legacy_queue.adapters.clock import MovableClock, SystemWaiter
from legacy_queue.domain import errors
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import read_message
from legacy_queue.domain.priority import WorkQueue
from legacy_queue.domain.times import epoch_milliseconds, format_time
from legacy_queue.services.control.fault import Target
from legacy_queue.services.control.fault_registry import FaultRegistry
from legacy_queue.services.control.message_injection import MessageInjection
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.claims import ClaimProof
from legacy_queue.stores import ProcessStore
from tests.domain.sample_tasks import ALICE, BOB, CLAIM_TIMEOUT, DAY, HOUR, MINUTE, MS, NOW, task_body
from tests.memory_server import FakeClock, memory_storage
from tests.services.fake_ports import CallRecorder, FakeBroker, intercept_storage, with_stores
from tests.services.harness import HIGH, PROVISIONER, QUEUE, SECRET, SETTINGS, WORKER_TYPE, Harness
from tests.system.processes import wait_until

WEEK = timedelta(days=7)


class CountingClock(MovableClock):
    moves = 0

    def move_to(self, time: datetime) -> None:
        self.moves += 1
        super().move_to(time)


class Server:
    """A server whose clock can be moved. By default the real time, ``wall``, stands still."""

    def __init__(self, broker: FakeBroker | None = None, wall: FakeClock | None = None) -> None:
        self.broker, self.wall = broker or FakeBroker(), wall or FakeClock(NOW)
        self.clock, self.calls = CountingClock(self.wall), CallRecorder()
        self.storage = intercept_storage(memory_storage(self.clock), self.calls)
        self.restart()

    def restart(self) -> None:
        """Kill the process. From now on, another process serves on the same storage."""
        processes = ProcessStore(self.storage.account.table("qprocesses"), self.clock)
        storage = with_stores(self.storage, processes=processes)
        settings = replace(SETTINGS, claim_work_wait=MINUTE)
        self.services = Services(storage, self.broker, self.clock, SystemWaiter(), settings)
        self.control = self.services.clock_control()

    def create(self, deadline: timedelta = DAY, **changes: Any) -> str:
        task_id, now = slugid(), self.clock.now()
        body = task_body(now, deadline=format_time(now + deadline), **changes)
        self.services.tasks.create(task_id, body)
        return task_id

    def claim(self, task_id: str) -> str:
        self.services.claims.claim(self.services.tasks.load(task_id), 0, ALICE, ClaimProof())
        return task_id

    def runs(self, task_id: str) -> list[tuple[str | None, timedelta | None]]:
        """Why each run was resolved, and how long after the start of the test."""
        runs = self.services.tasks.load(task_id).runs
        return [(run.reason_resolved, run.resolved - NOW if run.resolved else None) for run in runs]

    def ended_runs(self) -> list[tuple[str, int]]:
        events = [event for event in self.broker.published if event.exchange == "task-exception"]
        return [(event.payload["status"]["taskId"], event.payload["runId"]) for event in events]


@pytest.fixture
def server() -> Server:
    return Server()


def test_when_the_clock_is_moved_claims_and_deadlines_end_at_their_times_and_in_order(server: Server) -> None:
    late, early = server.create(deadline=HOUR), server.create(deadline=30 * MINUTE)
    held = server.claim(server.create(retries=1))
    server.control.advance(2 * HOUR)
    assert server.runs(early) == [("deadline-exceeded", 30 * MINUTE)]
    assert server.runs(late) == [("deadline-exceeded", HOUR)]
    assert server.runs(held) == [("claim-expired", CLAIM_TIMEOUT), (None, None)]
    assert server.ended_runs() == [(early, 0), (late, 0)]
    assert server.control.state().now == NOW + 2 * HOUR


def test_after_a_server_was_killed_a_move_of_the_clock_still_ends_its_claims(server: Server) -> None:
    """A test that killed its server need not wait until the new one takes the old one for dead."""
    held, late = server.claim(server.create(retries=1)), server.create(deadline=3 * HOUR)
    server.services.tick()  # it writes its row, which stays
    server.restart()
    server.control.advance(2 * HOUR)
    assert server.runs(held) == [("claim-expired", CLAIM_TIMEOUT + MINUTE), (None, None)]
    server.control.advance(WEEK)
    assert server.runs(late) == [("deadline-exceeded", 3 * HOUR)]


def test_claims_end_exactly_at_taken_until_however_long_a_move_takes() -> None:
    class Ticking(FakeClock):
        def now(self) -> datetime:
            self.advance(MS)
            return super().now()

    server = Server(wall=Ticking(NOW))
    tasks = [server.claim(server.create()) for _ in range(3)]
    taken_until = [server.services.tasks.load(task_id).runs[0].taken_until for task_id in tasks]
    server.control.advance(HOUR)
    assert [server.services.tasks.load(task_id).runs[0].resolved for task_id in tasks] == taken_until


def test_a_frozen_clock_stays_frozen_after_an_advance_and_each_move_is_in_the_history(server: Server) -> None:
    server.control.freeze()
    server.wall.advance(HOUR)
    server.control.advance(MINUTE)
    state = server.control.state()
    assert (state.now, state.offset, state.is_frozen) == (NOW + MINUTE, MINUTE - HOUR, True)
    server.control.release()
    assert not server.control.state().is_frozen
    told = [move.what.removeprefix("the clock was ") for move in server.services.histories.clock_moves]
    assert told == ["frozen", "moved by 1m", "released"]


def test_only_the_clock_of_memory_storage_can_be_moved(harness: Harness) -> None:
    control = harness.services.clock_control()
    assert "--storage embedded or --storage memory" in control.state().reason
    for move in (control.freeze, control.release, lambda: control.advance(HOUR)):
        with pytest.raises(errors.RequestConflict, match="--storage memory"):
            move()
    assert (control.state().now, control.state().offset) == (NOW, timedelta(0))


def test_a_move_runs_the_periodic_jobs_that_are_due(server: Server) -> None:
    task_id = server.create(expires=format_time(NOW + 2 * DAY - MS))
    server.control.advance(DAY)
    assert server.storage.tasks.load(task_id)
    server.control.advance(DAY)
    assert server.storage.tasks.load(task_id) is None


def test_while_the_broker_is_away_a_move_takes_few_steps_and_tasks_still_end_at_their_times(
    server: Server,
) -> None:
    claimed = [server.claim(server.create(deadline=hours * HOUR, retries=0)) for hours in (2, 1)]
    server.broker.capacity = 0
    pending = server.create(deadline=HOUR)
    server.control.advance(WEEK)
    assert [server.runs(task_id) for task_id in claimed] == [[("claim-expired", CLAIM_TIMEOUT)]] * 2
    assert server.runs(pending) == [("deadline-exceeded", HOUR)]
    assert server.clock.moves < 10
    server.broker.capacity = None
    assert server.services.publisher.check()
    server.services.ledger.repeat_now()
    server.control.advance(MINUTE)
    assert sorted(server.ended_runs()) == sorted((task_id, 0) for task_id in [*claimed, pending])


def test_the_history_of_a_failed_move_says_how_far_the_clock_was_moved() -> None:
    class Stopping(FakeBroker):
        def publish(self, events: Sequence[Event]) -> None:
            super().publish(events)
            if events[0].exchange == "task-exception":
                moved.services.stopping.set()

    moved = Server(broker=Stopping())
    tasks = [moved.create(deadline=hours * HOUR) for hours in (1, 2)]
    with pytest.raises(errors.InputError, match="36500d"):
        moved.control.advance(timedelta(days=36_500) + MS)
    with pytest.raises(errors.ServiceUnavailable):
        moved.control.advance(DAY)
    assert [reason for task_id in tasks for reason, _ in moved.runs(task_id)] == ["deadline-exceeded", None]
    [move] = moved.services.histories.clock_moves
    assert move.what == "the clock was moved by 1h, and no further"
    assert move.facts["movedTo"] == format_time(NOW + HOUR)


def test_background_work_pauses_until_a_move_has_ended() -> None:
    class Working(FakeBroker):
        def publish(self, events: Sequence[Event]) -> None:
            super().publish(events)
            if events[0].exchange == "task-exception":
                passed.append(threads.submit(work))
                assert began.wait(30)

    def work() -> datetime:
        began.set()
        with moved.services.gate.pass_through():
            return moved.clock.now()

    began, passed = threading.Event(), list[Future[datetime]]()
    moved = Server(broker=Working())
    moved.create(deadline=HOUR)
    with ThreadPoolExecutor(1) as threads:
        moved.control.advance(2 * HOUR)
    assert [call.result() for call in passed] == [NOW + 2 * HOUR]


@contextmanager
def waiting(server: Server) -> Iterator[list[Mapping[str, Any]]]:
    """A claimWork request that waits in real time and has polled once.

    When the block ends, the list has its claims.
    """
    claims: list[Mapping[str, Any]] = []
    polls = server.calls.names.count("receive")
    claim = server.services.claim_work.claim
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(claim, PROVISIONER, WORKER_TYPE, BOB, 1, lambda: False)
        assert wait_until(lambda: server.services.poller.waiting() == 1)
        assert wait_until(lambda: server.calls.names.count("receive") > polls)
        yield claims
        claims.extend(waits.result()["tasks"])


def test_a_waiting_request_gets_the_message_that_a_move_makes_visible(server: Server) -> None:
    task_id = server.create()
    assert server.storage.work_queues.receive(QUEUE, 1, 3 * MINUTE)  # a worker polls and then dies
    with waiting(server) as claims:
        server.control.advance(2 * MINUTE)
        server.control.advance(MINUTE)
    assert [claim["status"]["taskId"] for claim in claims] == [task_id]
    assert server.services.tasks.load(task_id).runs[0].started == NOW + 3 * MINUTE


def test_the_credentials_of_a_claim_expire_in_real_time(server: Server) -> None:
    server.control.advance(WEEK)
    task = server.services.tasks.load(server.create())
    claim = server.services.claims.claim(task, 0, ALICE, ClaimProof())
    expires = json.loads(claim["credentials"]["certificate"])["expiry"]
    assert expires == epoch_milliseconds(server.wall.wall_time() + CLAIM_TIMEOUT + 15 * MINUTE)


# which requests a fault hits, and how often


@pytest.fixture
def faults() -> FaultRegistry:
    return FaultRegistry((Target("claimTask", True, True),))


def add(faults: FaultRegistry, **wire: int) -> str:
    return str(faults.add({"endpoint": "claimTask", "status": 503, **wire})["faultId"])


def fault_ids(faults: FaultRegistry, count: int) -> list[str]:
    """The faultId that hits each of ``count`` requests, "" if none does."""
    happened = [faults.next("claimTask", "t", lambda: "group/alice") for _ in range(count)]
    return [fault.fault_id if fault else "" for fault in happened]


def test_faults_happen_in_order_as_many_times_as_requested_until_they_are_removed(
    faults: FaultRegistry,
) -> None:
    first, fault_id, other = (add(faults, **more) for more in ({"times": 2}, {}, {"status": 409}))
    assert fault_ids(faults, 3) == [first, first, fault_id]
    assert [fault["fired"] for fault in faults.list()] == [2, 1, 0]
    removed = {"faultId": fault_id, "endpoint": "claimTask", "status": 503, "fired": 1}
    assert faults.remove(fault_id) == removed
    assert fault_ids(faults, 1) == [other]
    with pytest.raises(errors.ResourceNotFound, match=f"there is no fault {fault_id}"):
        faults.remove(fault_id)


def test_a_fault_beyond_a_thousand_is_refused(faults: FaultRegistry) -> None:
    for _ in range(1000):
        add(faults)
    with pytest.raises(errors.InputError, match="there are already 1000 faults"):
        add(faults)


# invalid messages: what a worker receives, and what happens when it claims with one

OTHER = WorkQueue(PROVISIONER, "another", "lowest")


@pytest.fixture
def injection(harness: Harness) -> MessageInjection:
    return MessageInjection(harness.storage.work_queues, harness.services.tasks, SECRET)


def test_a_claim_with_a_forged_or_duplicated_message_is_refused(
    harness: Harness, injection: MessageInjection
) -> None:
    task_id = harness.create()
    injection.put("forged", HIGH, task_id)
    injection.put("doubled", HIGH, task_id)
    forged, doubled = harness.receive(2, HIGH)
    with pytest.raises(errors.AuthorizationFailed):
        harness.claim(forged)
    harness.claim(doubled)
    with pytest.raises(errors.RequestConflict):
        harness.claim(harness.receive_one(), BOB)


def test_a_poisoned_message_belongs_to_no_task(harness: Harness, injection: MessageInjection) -> None:
    message_id = injection.put("poisoned", HIGH, None)
    [message] = harness.messages(HIGH)
    assert message.lease.message_id == message_id
    with pytest.raises(ValueError):  # noqa: PT011 - the text of the error is the library's
        read_message(message.text)


def test_a_message_with_the_wrong_fields_for_its_kind_is_refused(
    harness: Harness, injection: MessageInjection
) -> None:
    task_id = harness.create()
    for kind, queue, of_task in [
        ("poisoned", QUEUE, task_id),
        ("doubled", QUEUE, None),
        ("doubled", OTHER, task_id),
        ("foreign", QUEUE, task_id),
    ]:
        with pytest.raises(errors.InputError, match=kind):
            injection.put(kind, queue, of_task)
    with pytest.raises(errors.ResourceNotFound):
        injection.put("forged", QUEUE, slugid())
    assert len(harness.messages()) == 1
