"""Advancing a task: which effects it repeats, and what it ends."""

from collections.abc import Callable
from datetime import datetime
from typing import cast

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.services.composition import Services
from legacy_queue.services.recovery.advance import Next
from legacy_queue.services.recovery.timers import FiredTimer
from legacy_queue.stores import StoredTask, TaskStore
from tests.services.harness import (
    CLAIM_TIMEOUT,
    HOUR,
    NOW,
    SECOND,
    Crash,
    FaultAt,
    Harness,
    failing,
    task_body,
)
from tests.services.ports import DelegatingTasks

DAY = 24 * HOUR
MARGIN = CLAIM_TIMEOUT / 20  # for the clock of another process


def advance(
    harness: Harness,
    task_id: str,
    since: datetime | None = None,
    *,
    services: Services | None = None,
    is_published: bool = False,
    group: str = "",
) -> Next:
    """On a server that handles no timer."""
    fired = FiredTimer(task_id, since, is_published, group, tries=0)
    return (services or harness.replica()).advance.repeat_effects(fired)


def dies_after(harness: Harness, write: str, call: Callable[[Services], object]) -> None:
    """A server dies right after that write."""
    with pytest.raises(Crash):
        call(harness.replica(FaultAt(0, of=write, after=failing(Crash()))))


# effects that it repeats


def test_a_task_remembered_before_its_end_is_read(harness: Harness) -> None:
    """Another call may have read the task before its end, and remembered it later."""
    task_id = harness.claimed()
    waiting = harness.create(dependencies=[task_id])
    before = harness.storage.tasks.load(task_id)
    harness.complete(task_id)

    class Stale(DelegatingTasks):
        def recall(self, _: str) -> StoredTask | None:
            return before

    server = harness.replica(wrap_tasks=lambda tasks: cast(TaskStore, Stale(tasks)))
    harness.events()
    advance(harness, task_id, NOW, is_published=True, services=server)
    assert harness.states(waiting) == ["pending"]
    assert ("task-group-resolved", task_id, None) in harness.events()


def test_a_refused_task_leaves_the_group_that_it_joined(harness: Harness) -> None:
    group, task_id = slugid(), harness.create()
    done = harness.create(taskGroupId=group)
    harness.run(done)
    harness.run_timers()
    another = task_body(taskGroupId=group)
    dies_after(harness, "join", lambda server: server.tasks.create(task_id, another))
    harness.events()
    assert harness.storage.groups.is_active(group)
    advance(harness, task_id, harness.clock.now() + SECOND, group=group)
    assert harness.events() == [("task-group-resolved", group, None)]


# claims and tasks that it ends


@pytest.mark.parametrize(("retries", "state"), [(1, "pending"), (0, "exception")])
def test_a_claim_of_another_process_is_ended_a_minute_after_it_expired(
    harness: Harness, retries: int, state: str
) -> None:
    task_id = harness.claimed(retries=retries)
    server = harness.replica()
    harness.clock.advance(CLAIM_TIMEOUT)
    assert advance(harness, task_id, services=server) == Next(NOW + CLAIM_TIMEOUT + MARGIN)
    harness.clock.advance(MARGIN - SECOND)
    assert advance(harness, task_id, services=server) == Next(NOW + CLAIM_TIMEOUT + MARGIN)
    assert harness.states(task_id) == ["running by alice"]
    harness.clock.advance(SECOND)
    assert advance(harness, task_id, services=server) == Next(NOW + DAY if retries else None)
    assert harness.task(task_id).state == state


# failures


def test_an_unknown_task_is_reported_as_missing(harness: Harness) -> None:
    assert advance(harness, slugid(), NOW) == Next(exists=False)
    assert harness.services.advance.end_if_due(slugid()) == Next(exists=False)


def test_a_task_whose_events_cannot_be_published_now_is_marked(harness: Harness) -> None:
    """Its writer may have died before it could do so."""
    task_id = harness.create()
    assert not harness.task(task_id).is_unpublished
    harness.services.advance.end_if_due(task_id, is_published=False)
    assert harness.task(task_id).is_unpublished
