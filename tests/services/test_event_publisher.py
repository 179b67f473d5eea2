"""Events of each task reach the broker at least once and in order."""

import pytest

from legacy_queue.adapters.clock import SystemWaiter
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.events import Event
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import BrokerAway
from legacy_queue.services.composition import Services
from legacy_queue.services.events.event_feed import EventFeed
from legacy_queue.services.events.event_publisher import EventPublisher
from legacy_queue.services.tasks.claims import ClaimProof
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    NOW,
    SECOND,
    Crash,
    FaultAt,
    Harness,
    PublishedEvent,
    failing,
    task_body,
)
from tests.services.ports import FakeBroker

LIFE = [("task-defined", None), ("task-pending", 0), ("task-running", 0), ("task-completed", 0)]
ONE, TWO = (Event("of-a-test", "a.b", (), {"number": number}) for number in (1, 2))


def of_task(events: list[PublishedEvent], task_id: str) -> list[tuple[str, int | None]]:
    """The events of the task, each once, in the order of their first publication."""
    return list(dict.fromkeys((name, run_id) for name, about, run_id in events if about == task_id))


# Publishing


def test_while_the_broker_is_away_only_the_check_calls_it() -> None:
    broker = FakeBroker()
    publisher = EventPublisher(broker, EventFeed(broker, lambda: NOW, SystemWaiter()))
    broker.capacity = 0
    with pytest.raises(BrokerAway):
        publisher.publish([ONE])
    publisher.check()
    broker.capacity = None
    with pytest.raises(BrokerAway):
        publisher.publish([ONE])
    assert (publisher.is_away, broker.published) == (True, [])
    publisher.check()
    publisher.publish([ONE])
    publisher.check()
    assert (publisher.is_away, broker.published) == (False, [ONE])


def test_the_first_check_says_that_the_broker_is_away_and_later_that_it_is_again() -> None:
    broker = FakeBroker()
    publisher = EventPublisher(broker, EventFeed(broker, lambda: NOW, SystemWaiter()))
    assert publisher.failure == ""
    for _ in range(2):
        broker.capacity = 0
        assert not publisher.check()
        assert (publisher.is_away, publisher.failure) == (True, "ConnectionRefusedError")
        broker.capacity = None
        assert publisher.check()
        assert (publisher.is_away, publisher.failure) == (False, "")


# Guarantees for the events of a task


def test_a_transition_does_not_overtake_events_that_only_a_timer_names_as_unpublished(
    harness: Harness,
) -> None:
    task_id = slugid()
    server = harness.replica(FaultAt(0, of="replace", before=failing(ServiceUnavailable("storage is away"))))
    harness.broker.capacity = 0
    server.tasks.create(task_id, task_body())
    assert not harness.task(task_id).is_unpublished
    harness.broker.capacity = None
    server.publisher.check()
    server.claims.claim(server.tasks.load(task_id), 0, ALICE, ClaimProof())
    harness.run_timers(SECOND, services=server)
    assert of_task(harness.events(), task_id) == LIFE[:3]


def test_what_is_published_behind_an_unpublished_event_is_not_marked_any_more(harness: Harness) -> None:
    harness.broker.capacity = 0
    task_id = harness.create()
    harness.broker.capacity = None
    assert harness.task(task_id).is_unpublished
    harness.kill_process()
    harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    assert of_task(harness.events(), task_id) == LIFE[:3]
    assert not harness.task(task_id).is_unpublished


def test_a_create_that_is_repeated_publishes_what_another_process_did_not(harness: Harness) -> None:
    task_id, body = slugid(), task_body()
    harness.services.tasks.create(task_id, body)
    harness.broker.capacity = 0
    harness.replica().claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    harness.broker.capacity = None
    harness.events()
    harness.services.tasks.create(task_id, body)
    assert of_task(harness.events(), task_id) == LIFE[:3]
    assert not harness.task(task_id).is_unpublished


def test_a_mark_that_another_process_may_have_made_meanwhile_stays(harness: Harness) -> None:
    def by_another() -> None:
        harness.broker.capacity = 0
        harness.replica().tasks.cancel(task_id)
        harness.broker.capacity = None

    harness.broker.capacity = 0
    task_id = harness.create()
    harness.broker.capacity = None
    server = harness.replica(FaultAt(0, of="broker.publish", after=by_another))
    server.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    assert (harness.task(task_id).state, harness.task(task_id).is_unpublished) == ("exception", True)


def test_a_process_that_dies_before_it_publishes_leaves_the_mark_of_what_another_did_not_publish(
    harness: Harness,
) -> None:
    harness.broker.capacity = 0
    task_id = harness.create()
    harness.broker.capacity = None
    dying = harness.replica(FaultAt(0, of="broker.publish", before=failing(Crash())))
    with pytest.raises(Crash):
        dying.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    harness.lose_timers()
    harness.complete(task_id, services=harness.replica())
    assert of_task(harness.events(), task_id) == LIFE


def killed_before_publishing(harness: Harness, call: int) -> tuple[Services, str]:
    """A new task, and a process that is killed before it publishes the events of this write of its own."""
    return harness.replica(FaultAt(call, of="broker.publish", before=failing(Crash()))), harness.create()


@pytest.mark.parametrize("end", ["cancel", "claim", "deadline"])
def test_whoever_ends_a_claim_publishes_first_what_a_killed_process_did_not(
    harness: Harness, end: str
) -> None:
    dying, task_id = killed_before_publishing(harness, 0)
    with pytest.raises(Crash):
        dying.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    harness.lose_timers()
    if end == "cancel":
        harness.services.tasks.cancel(task_id)
    elif end == "claim":
        harness.clock.advance(CLAIM_TIMEOUT)
        harness.services.claims.claim(harness.task(task_id), 1, BOB, ClaimProof())
    else:
        harness.clock.advance(25 * HOUR)
        harness.services.advance.end_if_due(task_id)
    last = ("task-running", 1) if end == "claim" else ("task-exception", 0)
    between = [("task-pending", 1)] if end == "claim" else []
    assert of_task(harness.events(), task_id) == [*LIFE[:3], *between, last]


def test_whoever_reruns_a_task_publishes_first_what_a_killed_process_did_not(harness: Harness) -> None:
    dying, task_id = killed_before_publishing(harness, 1)
    dying.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    with pytest.raises(Crash):
        harness.complete(task_id, services=dying)
    harness.services.tasks.rerun(task_id)
    assert of_task(harness.events(), task_id) == [*LIFE, ("task-pending", 1)]


def test_workers_that_call_another_process_each_time_cause_no_event_twice(harness: Harness) -> None:
    task_id = harness.create()
    harness.replica().claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    harness.complete(task_id, services=harness.replica())
    assert [(name, run_id) for name, _, run_id in harness.events()] == LIFE


def test_a_timer_publishes_the_unpublished_events_of_another_process_too(harness: Harness) -> None:
    harness.broker.capacity = 0
    task_id = harness.create()
    harness.clock.advance(SECOND)
    other = harness.replica()
    other.tasks.create(slugid(), task_body())  # finds that the broker is away
    other.claims.claim(other.tasks.load(task_id), 0, ALICE, ClaimProof())
    harness.broker.capacity = None
    harness.run_timers(SECOND, services=other)
    assert of_task(harness.events(), task_id) == LIFE[:3]
