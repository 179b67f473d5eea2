"""The events of each task reach the broker at least once and in order."""

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import BrokerAway
from legacy_queue.services.events.event_buffer import EventBuffer
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.process.liveness import DEAD_AFTER
from legacy_queue.services.tasks.claims import ClaimProof
from tests.domain.sample_tasks import ALICE, NOW, SECOND, task_body
from tests.services.artifact_calls import create
from tests.services.fake_ports import Crash, FakeBroker, FaultAt, events_in
from tests.services.harness import Harness, PublishedEvent

LIFE = [("task-defined", None), ("task-pending", 0), ("task-running", 0), ("task-completed", 0)]
ONE, TWO = (Event("of-a-test", "a.b", (), {"number": number}) for number in (1, 2))


def of_task(events: list[PublishedEvent], task_id: str) -> list[tuple[str, int | None]]:
    """The events of the task in the order of their first publication, without repetitions."""
    return list(dict.fromkeys((name, run_id) for name, about, run_id in events if about == task_id))


def test_while_the_broker_is_away_only_the_regular_check_calls_it() -> None:
    """The process remembers only the events that were published."""
    broker, buffer = FakeBroker(), EventBuffer(lambda: NOW)
    publisher = EventPublisher(broker, buffer)
    broker.capacity = 0
    with pytest.raises(BrokerAway):
        publisher.publish([ONE])
    publisher.check()
    broker.capacity = None
    with pytest.raises(BrokerAway):
        publisher.publish([ONE])
    assert (publisher.is_away, broker.published, events_in(buffer)) == (True, [], [])
    publisher.check()
    publisher.publish([ONE])
    publisher.check()
    assert (publisher.is_away, broker.published) == (False, [ONE])
    assert [event for _, event in events_in(buffer)] == [ONE]


def test_a_transition_is_published_after_earlier_events_that_only_this_process_knows_to_be_missing(
    harness: Harness,
) -> None:
    task_id = slugid()
    server = harness.replica(FaultAt(0, of="replace", before=ServiceUnavailable("storage is away")))
    harness.broker.capacity = 0
    server.tasks.create(task_id, task_body())
    assert not harness.task(task_id).is_unpublished
    harness.broker.capacity = None
    server.publisher.check()
    server.claims.claim(server.tasks.load(task_id), 0, ALICE, ClaimProof())
    harness.do_work(SECOND, services=server)
    assert of_task(harness.events(), task_id) == LIFE[:3]


def test_an_artifact_is_published_after_earlier_events_that_only_this_process_knows_to_be_missing(
    harness: Harness,
) -> None:
    task_id = harness.create()
    away = FaultAt(1, of="replace", before=ServiceUnavailable("storage is away"))  # call 0 is the claim's
    server = harness.replica(away)
    harness.broker.capacity = 0
    harness.claim(harness.receive_one(), services=server)
    harness.broker.capacity = None
    server.publisher.check()
    create(harness, task_id, services=server)
    harness.do_work(SECOND, services=server)
    assert of_task(harness.events(), task_id) == [*LIFE[:3], ("artifact-created", 0)]


def test_an_artifact_that_is_created_while_the_broker_is_away_is_published_later(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.broker.capacity = 0
    create(harness, task_id)
    harness.broker.capacity = None
    harness.do_work(SECOND)
    assert of_task(harness.events(), task_id) == [*LIFE[:3], ("artifact-created", 0)]


def test_if_a_server_dies_right_after_storing_an_artifact_another_publishes_it(harness: Harness) -> None:
    task_id = harness.claimed()
    with pytest.raises(Crash):
        create(harness, task_id, services=harness.replica(FaultAt(0, of="artifact.insert", after=Crash())))
    harness.do_work(DEAD_AFTER)
    assert of_task(harness.events(), task_id) == [*LIFE[:3], ("artifact-created", 0)]


def test_a_rerun_first_publishes_the_events_that_a_killed_process_did_not(harness: Harness) -> None:
    task_id = harness.create()
    dying = harness.replica(FaultAt(1, of="broker.publish", before=Crash()))  # call 0 publishes the claim
    dying.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    with pytest.raises(Crash):
        harness.complete(task_id, services=dying)
    harness.services.tasks.rerun(task_id)
    assert of_task(harness.events(), task_id) == [*LIFE, ("task-pending", 1)]


def test_a_repeated_claim_first_publishes_the_events_that_killed_processes_did_not(harness: Harness) -> None:
    task_id = harness.claimed()
    for call in (
        lambda server: harness.shut_down(task_id, services=server),
        lambda server: server.claims.claim(harness.task(task_id), 1, ALICE, ClaimProof()),
    ):
        with pytest.raises(Crash):
            call(harness.replica(FaultAt(0, of="broker.publish", before=Crash())))
    harness.services.claims.claim(harness.task(task_id), 1, ALICE, ClaimProof())
    assert of_task(harness.events(), task_id) == [*LIFE[:3], ("task-pending", 1), ("task-running", 1)]


def test_a_mark_stays_if_another_process_may_have_set_it_meanwhile(harness: Harness) -> None:
    def by_another() -> None:
        harness.broker.capacity = 0
        harness.replica().tasks.cancel(task_id)
        harness.broker.capacity = None

    harness.broker.capacity = 0
    harness.services = harness.replica(FaultAt(1, of="broker.publish", after=by_another))
    task_id = harness.create()
    harness.broker.capacity = None
    harness.do_work(SECOND)
    assert (harness.task(task_id).state, harness.task(task_id).is_unpublished) == ("exception", True)


def test_if_a_process_dies_while_it_publishes_the_events_of_a_marked_task_they_are_published_later(
    harness: Harness,
) -> None:
    harness.services = harness.replica(FaultAt(1, of="broker.publish", before=Crash()))
    harness.broker.capacity = 0
    task_id = harness.create()
    harness.broker.capacity = None
    with pytest.raises(Crash):
        harness.do_work(SECOND)
    harness.kill_process()
    harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    harness.complete(task_id)
    harness.do_work()
    assert of_task(harness.events(), task_id)[:4] == LIFE


def test_a_worker_that_calls_another_process_each_time_causes_no_duplicate_events(harness: Harness) -> None:
    task_id = harness.create()
    harness.replica().claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    harness.complete(task_id, services=harness.replica())
    assert [(name, run_id) for name, _, run_id in harness.events()] == LIFE


def test_a_process_also_publishes_the_unpublished_events_that_another_process_left(harness: Harness) -> None:
    harness.broker.capacity = 0
    task_id = harness.create()
    harness.clock.advance(SECOND)
    other = harness.replica()
    other.tasks.create(slugid(), task_body())  # so that it notices that the broker is away
    other.claims.claim(other.tasks.load(task_id), 0, ALICE, ClaimProof())
    harness.broker.capacity = None
    harness.do_work(SECOND, services=other)
    assert of_task(harness.events(), task_id) == LIFE[:3]


def test_the_process_that_clears_a_mark_applies_the_missing_effects_of_all_processes(
    harness: Harness,
) -> None:
    """One process reports a task while the broker is away, then dies. Only the mark says that effects are
    missing.

    Later another process has effects to apply to this task too.
    """
    task_id = harness.claimed()
    waiting = harness.create(dependencies=[task_id])
    harness.do_work()
    dies, other = harness.replica(), harness.replica()
    harness.broker.capacity = 0
    harness.complete(task_id, services=dies)
    harness.broker.capacity = None
    harness.clock.advance(SECOND)
    other.ledger.repeat_later([other.processes.begin(task_id, harness.clock.now())])
    other.resolver.handle_all()
    assert not harness.task(task_id).is_unpublished
    assert harness.task(waiting).state == "pending"


def test_while_the_broker_is_away_the_mark_of_a_task_also_says_that_its_group_is_resolved(
    harness: Harness,
) -> None:
    """There may be as many groups as tasks: too many for the row of a process, which has at most 1 MiB."""
    tasks = [harness.create() for _ in range(3)]
    for task_id in tasks:
        harness.services.tasks.cancel(task_id)
    harness.broker.capacity = 0
    harness.do_work()
    assert harness.services.ledger.names()[0] == []
    harness.broker.capacity = None
    heir = harness.replica()
    harness.do_work(DEAD_AFTER, services=heir)
    resolved = {about for name, about, _ in harness.events() if name == "task-group-resolved"}
    assert resolved == {*tasks}
    assert not any(harness.task(task_id).is_unpublished for task_id in tasks)
