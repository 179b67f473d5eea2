"""What the overview says about the last hour. It comes from the events of the process."""

from datetime import timedelta

import pytest

from legacy_queue.domain.ids import slugid
from legacy_queue.services.events.event_buffer import MAX_EVENTS
from legacy_queue.services.inspection.recent_events import RecentEvents, recent_events
from tests.domain.sample_tasks import CLAIM_TIMEOUT, HOUR, MINUTE, NOW, SECOND
from tests.services.harness import PROVISIONER, WORKER_TYPE, Harness


def recent(harness: Harness) -> RecentEvents:
    buffer = harness.services.event_buffer
    return recent_events(buffer.page(0, buffer.last, MAX_EVENTS).events, harness.clock.now())


def test_the_tasks_that_were_resolved_in_the_last_hour_are_counted(harness: Harness) -> None:
    assert recent(harness).since is None
    harness.complete(harness.claimed())
    harness.clock.advance(HOUR - MINUTE)
    assert recent(harness).since == NOW
    harness.services.tasks.cancel(harness.create())
    assert recent(harness).resolved == {"completed": 1, "failed": 0, "exception": 1}
    harness.clock.advance(2 * MINUTE)
    found = recent(harness)
    assert found.since == NOW + MINUTE
    assert found.resolved == {"completed": 0, "failed": 0, "exception": 1}
    assert found.lost_claims == []


@pytest.mark.parametrize("retries", [0, 1])
def test_the_worker_whose_claim_expired_is_named(harness: Harness, retries: int) -> None:
    task_id = harness.claimed(retries=retries)
    harness.do_work(CLAIM_TIMEOUT + SECOND)
    [lost] = recent(harness).lost_claims
    assert (lost.task_id, lost.worker) == (task_id, "group/alice")
    assert lost.task_queue_id == f"{PROVISIONER}/{WORKER_TYPE}"
    harness.clock.advance(HOUR + timedelta(seconds=1))
    assert recent(harness).lost_claims == []


def test_a_group_has_stopped_when_a_task_failed_and_all_remaining_tasks_are_unscheduled(
    harness: Harness,
) -> None:
    group_id = slugid()
    first = harness.claimed(taskGroupId=group_id)
    harness.create(taskGroupId=group_id, dependencies=[first])
    assert (recent(harness).stopped, recent(harness).open_count) == ({}, 1)
    harness.services.tasks.cancel(first)
    assert recent(harness).open_count == 0
    assert recent(harness).stopped == {group_id: {"exception": 1, "unscheduled": 1}}
    harness.services.tasks.rerun(first)
    assert recent(harness).stopped == {}
