"""Timers end claims and tasks on time, and apply the effects that calls left missing."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Changed
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from legacy_queue.services.timers import TIMER_LEASE
from tests.memory_server import FakeClock
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    CallRecorder,
    FaultAt,
    Harness,
    failing,
    task_body,
)

AT_ONCE, DAY, MS = timedelta(0), 24 * HOUR, timedelta(milliseconds=1)
MARGIN = CLAIM_TIMEOUT / 20  # for the clock of another process
BY_NAME = ClaimProof()
Mishap = Callable[[Harness], object]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def defined(harness: Harness) -> str:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body(harness.clock.now()))
    return task_id


def restarted(harness: Harness) -> None:
    """Stop the process, and start another."""
    harness.services.timers.hand_over()
    harness.services = harness.replica()


def killed(harness: Harness) -> None:
    """Kill the process, and start another some seconds later."""
    harness.services = harness.replica()
    harness.run_timers(TIMER_LEASE)


def let_timers_wait(harness: Harness) -> None:
    """All effects are applied, and the timers are in messages that are hidden until they are due."""
    harness.run_timers(TIMER_LEASE)


def in_turn(*mishaps: Mishap) -> Mishap:
    def act(harness: Harness) -> None:
        for mishap in mishaps:
            mishap(harness)

    return act


MISHAPS: dict[str, Mishap] = {
    "none": lambda _: None,
    "doubled": Harness.duplicate_timers,
    "early": Harness.make_timers_visible,
    "restarted": restarted,
    "killed": killed,
    "killed and doubled": in_turn(Harness.duplicate_timers, killed),
    "killed and early": in_turn(Harness.make_timers_visible, killed),
    "done, and killed": in_turn(let_timers_wait, killed),
    "done, and doubled": in_turn(let_timers_wait, Harness.duplicate_timers),
    "done, and early": in_turn(let_timers_wait, Harness.make_timers_visible),
}
MISHAP = pytest.mark.parametrize("mishap", MISHAPS.values(), ids=MISHAPS)


# expired claims


@MISHAP
def test_a_claim_without_reclaims_expires_once_and_its_retry_is_visible_at_once(
    harness: Harness, mishap: Mishap
) -> None:
    task_id = harness.claimed(ALICE)
    mishap(harness)
    harness.run_timers(NOW + CLAIM_TIMEOUT - MS - harness.clock.now())
    assert harness.states(task_id) == ["running by alice"]
    harness.events()
    harness.run_timers(MS)
    harness.run_timers(MARGIN)
    assert harness.states(task_id) == ["exception claim-expired", "pending"]
    assert harness.task(task_id).retries_left == 4
    assert [(run_id, left <= AT_ONCE) for run_id, left in harness.offered_runs()] == [(1, True)]
    assert list(dict.fromkeys(harness.events()))[-1] == ("task-pending", task_id, 1)
    harness.claim(harness.receive_one(), BOB)
    harness.run_timers(10 * MINUTE)
    assert harness.states(task_id) == ["exception claim-expired", "running by bob"]


def test_a_reclaimed_claim_expires_later_and_a_reclaim_puts_no_timer(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.run_timers(10 * MINUTE)
    calls = CallRecorder()
    services = harness.replica(calls)
    for _ in range(5):
        services.claims.reclaim(task_id, 0)
        harness.run_timers(10 * MINUTE)
    assert "timer.put" not in calls.names
    assert harness.states(task_id) == ["running by alice"]
    harness.run_timers(10 * MINUTE + MARGIN)
    assert harness.states(task_id) == ["exception claim-expired", "pending"]


# deadlines


CREATED: dict[str, Callable[[Harness], str]] = {
    "unscheduled": defined,
    "pending": lambda harness: harness.create(),
    "running": lambda harness: harness.claimed(deadline=format_time(NOW + DAY)),
    "retried": lambda harness: harness.shut_down(harness.claimed()).task_id,
    "rerun": lambda harness: (
        harness.services.tasks.rerun(harness.complete(harness.claimed()).task_id).task_id
    ),
}


@pytest.mark.parametrize(
    ("state", "mishap"),
    [
        *((state, "none") for state in CREATED),
        *((state, "killed") for state in CREATED),
        *(("running", mishap) for mishap in MISHAPS),
    ],
)
def test_an_unresolved_task_ends_once_at_its_deadline(harness: Harness, state: str, mishap: str) -> None:
    task_id = CREATED[state](harness)
    runs = max(len(harness.task(task_id).runs), 1)
    MISHAPS[mishap](harness)
    harness.run_timers(NOW + DAY - 10 * MINUTE - harness.clock.now())
    if harness.task(task_id).runs:
        harness.run_timers()
        harness.services.claims.claim(
            harness.task(task_id), len(harness.task(task_id).runs) - 1, ALICE, BY_NAME
        )
        runs = len(harness.task(task_id).runs)
    harness.run_timers(10 * MINUTE - MS)
    assert not harness.task(task_id).is_resolved
    harness.events()
    harness.run_timers(MS)
    harness.run_timers(11 * SECOND)
    assert harness.states(task_id)[-1] == "exception deadline-exceeded"
    assert len(harness.task(task_id).runs) == runs
    resolved = harness.task(task_id).runs[-1].resolved
    assert resolved
    assert resolved <= NOW + DAY + 11 * SECOND
    expected = [("task-exception", task_id, runs - 1), ("task-group-resolved", task_id, None)]
    again = ("task-defined", task_id, None)  # by a process that did not create it
    assert [event for event in dict.fromkeys(harness.events()) if event != again] == expected
    harness.run_timers()
    harness.run_timers(10 * MINUTE)
    assert (harness.messages(), harness.timers()) == ([], [])


# resolved and expired tasks


def test_a_task_that_lives_some_seconds_needs_one_timer_message(harness: Harness) -> None:
    calls = CallRecorder()
    server = harness.replica(calls, caches_tasks=True)
    task_id = slugid()
    server.tasks.create(task_id, task_body())
    harness.claim(harness.receive_one(), services=server)
    harness.complete(task_id, services=server)
    harness.run_timers(SECOND, server)
    assert calls.names.count("timer.put") == calls.names.count("timer.remove") == 1
    assert harness.timers() == []


# effects of a resolution


def test_the_process_that_resolves_a_task_releases_dependents_and_resolves_its_group(
    harness: Harness,
) -> None:
    for resolves in (True, False):
        server = harness.replica(resolves=resolves)
        group = slugid()
        task_id = harness.claimed(taskGroupId=group)
        waiting = harness.create(dependencies=[task_id])
        harness.complete(task_id, services=server)
        server.resolver.handle_all()
        assert harness.states(waiting) == ["pending"]
        assert harness.events()[-1] == ("task-group-resolved", group, None)
        harness.receive()


def lost(harness: Harness) -> Services:
    """The SDK repeats the first write, as its answer was lost, and finds a newer ETag: its own."""
    return harness.replica(FaultAt(0, of="replace", after=failing(Changed())))


def test_a_claim_whose_answer_was_lost_is_published_though_the_task_was_canceled_meanwhile(
    harness: Harness,
) -> None:
    """The SDK repeated the write, and found the ETag of the cancellation."""
    task_id = harness.create()

    def overtaken() -> None:
        harness.services.tasks.cancel(task_id)
        raise Changed

    server = harness.replica(FaultAt(0, of="replace", after=overtaken))
    with pytest.raises(RequestConflict):
        harness.claim(harness.receive_one(), services=server)
    harness.run_timers(services=server)
    harness.run_timers()
    events = [event for event, about, _ in harness.events() if about == task_id]
    assert set(events) == {
        "task-defined",
        "task-pending",
        "task-running",
        "task-exception",
        "task-group-resolved",
    }


# while the broker is away


@pytest.mark.parametrize("end", [killed, restarted], ids=["killed", "stopped"])
def test_a_repeated_report_is_published_though_its_server_ended_while_the_broker_was_away(
    harness: Harness, end: Callable[[Harness], None]
) -> None:
    task_id = harness.claimed()
    harness.complete(task_id)
    harness.run_timers(MINUTE)
    harness.broker.capacity = 0
    harness.complete(task_id)
    harness.events()
    end(harness)
    harness.broker.capacity = None
    harness.run_timers(HOUR)
    harness.run_timers(2 * SECOND)
    assert ("task-completed", task_id, 0) in harness.events()


def test_a_repeated_create_of_a_resolved_task_succeeds_while_the_broker_is_away(harness: Harness) -> None:
    task_id, group = slugid(), slugid()
    asked_for = task_body(taskGroupId=group)
    harness.services.tasks.create(task_id, asked_for)
    harness.run(task_id)
    harness.run_timers()
    harness.events()
    harness.broker.capacity = 0
    assert harness.services.tasks.create(task_id, asked_for).state == "completed"
    with pytest.raises(RequestConflict):
        harness.services.tasks.create(task_id, {**asked_for, "payload": {}})
    harness.broker.capacity = None
    harness.run_timers()
    assert harness.events()[-1] == ("task-group-resolved", group, None)


def test_a_completion_that_was_rerun_at_once_has_all_its_effects(
    harness: Harness,
) -> None:
    """The answer of its write was lost."""
    task_id = harness.claimed()
    waiting = harness.create(dependencies=[task_id])

    def rerun() -> None:
        harness.services.tasks.rerun(task_id)
        raise Changed

    server = harness.replica(FaultAt(0, of="replace", after=rerun))
    harness.complete(task_id, services=server)
    harness.run_timers(services=server)
    assert harness.states(waiting) == ["pending"]
    events = [event for event in harness.events() if event[1] == task_id]
    assert ("task-completed", task_id, 0) in events


class TickingClock(FakeClock):
    """A millisecond passes at each look."""

    def now(self) -> datetime:
        self.advance(MS)
        return super().now()


@pytest.mark.parametrize("ends", ["deadline", "claim"])
def test_an_expired_claim_or_deadline_resolves_the_group_though_time_passes_meanwhile(
    harness: Harness, ends: str
) -> None:
    """The run must not be resolved before its timer says that effects are missing."""
    group, clock = slugid(), TickingClock(NOW)
    server = harness.replica(clock=clock)
    task_id = slugid()
    server.tasks.create(
        task_id, task_body(NOW, taskGroupId=group, retries=0, deadline=format_time(NOW + HOUR))
    )
    if ends == "claim":
        harness.claim(harness.receive_one(), ALICE, server)
    for advance in (TIMER_LEASE, CLAIM_TIMEOUT if ends == "claim" else HOUR):
        clock.advance(advance)
        harness.run_timers(advance, server)
    assert harness.task(task_id).is_resolved
    assert harness.events()[-1] == ("task-group-resolved", group, None)
