"""Timers end claims and tasks on time, and apply the effects that calls left missing."""

from datetime import timedelta

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.ports import Changed
from legacy_queue.services.claims import ClaimProof
from tests.services.harness import (
    ALICE,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    CallRecorder,
    FaultAt,
    Harness,
    task_body,
)

AT_ONCE, DAY, MS = timedelta(0), 24 * HOUR, timedelta(milliseconds=1)
MARGIN = CLAIM_TIMEOUT / 20  # for the clock of another process


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_a_claim_without_reclaims_expires_once_and_its_retry_is_visible_at_once(harness: Harness) -> None:
    task_id = harness.claimed(ALICE)
    harness.run_timers(CLAIM_TIMEOUT - MS)
    assert harness.states(task_id) == ["running by alice"]
    harness.run_timers(MS)
    assert harness.states(task_id) == ["exception claim-expired", "pending"]
    assert harness.task(task_id).retries_left == 4
    assert harness.offered_runs() == [(1, AT_ONCE)]
    assert harness.events()[-1] == ("task-pending", task_id, 1)


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


@pytest.mark.parametrize("state", ["unscheduled", "pending", "running"])
def test_an_unresolved_task_ends_once_at_its_deadline(harness: Harness, state: str) -> None:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body())
    if state != "unscheduled":
        harness.services.tasks.schedule(task_id)
    harness.run_timers(DAY - 10 * MINUTE)
    if state == "running":
        harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    harness.run_timers(10 * MINUTE - MS)
    assert not harness.task(task_id).is_resolved
    harness.events()
    harness.run_timers(MS)
    assert harness.states(task_id)[-1] == "exception deadline-exceeded"
    assert harness.events() == [("task-exception", task_id, 0), ("task-group-resolved", task_id, None)]
    harness.run_timers(10 * MINUTE)
    assert (harness.messages(), harness.timers()) == ([], [])


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


def test_a_completion_that_was_rerun_at_once_has_all_its_effects(harness: Harness) -> None:
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
