"""A sealed group takes no new task; canceling and changing the priority of all tasks of a group."""

from collections.abc import Callable, MutableMapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.stores import Group
from tests.services.harness import HOUR, NOW, SECOND, Crash, FaultAt, Harness, failing, task_body

GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"
BOTH = ("raise", "lower")


def body(**changes: Any) -> dict[str, Any]:
    return task_body(taskGroupId=GROUP, schedulerId="scheduler", **changes)


def member(harness: Harness, task_id: str = "", **changes: Any) -> str:
    task_id = task_id or slugid()
    harness.services.tasks.create(task_id, body(**changes))
    return task_id


def seal(harness: Harness, group: str = GROUP) -> Group:
    return harness.services.groups.seal(group)


def cancel(harness: Harness) -> list[str]:
    return sorted(harness.services.group_changes.cancel(GROUP))


def published(harness: Harness, exchange: str) -> list[dict[str, Any]]:
    return [dict(event.payload) for event in harness.broker.published if event.exchange == exchange]


def refuses(harness: Harness, task_id: str = "") -> bool:
    """Whether the task, by default a new one, is refused since the group is sealed."""
    try:
        member(harness, task_id)
    except RequestConflict as refusal:
        return f"task group {GROUP} is sealed" in refusal.message
    return False


def test_a_repeated_seal_changes_nothing_and_publishes_again(harness: Harness) -> None:
    member(harness)
    first = seal(harness)
    assert first.sealed == NOW
    harness.clock.advance(HOUR)
    assert seal(harness) == first
    assert published(harness, "task-group-sealed") == 2 * [
        {
            "version": 1,
            "taskGroupId": GROUP,
            "schedulerId": "scheduler",
            "expires": format_time(first.expires),
            "sealed": format_time(NOW),
        }
    ]


def test_a_sealed_group_refuses_a_new_founder(harness: Harness) -> None:
    member(harness)
    seal(harness)
    assert refuses(harness, GROUP)
    with pytest.raises(ResourceNotFound):
        harness.services.tasks.load(GROUP)
    assert refuses(harness, GROUP)


def test_all_unresolved_tasks_of_a_sealed_group_are_canceled(harness: Harness) -> None:
    running = harness.claimed(taskGroupId=GROUP, schedulerId="scheduler")
    done = member(harness)
    harness.run(done)
    pending, founder = member(harness), member(harness, GROUP)
    unscheduled = member(harness, dependencies=[pending])
    other = harness.create()
    seal(harness)
    assert cancel(harness) == sorted([running, pending, founder, unscheduled])
    assert {harness.states(task_id)[-1] for task_id in (running, pending, founder, unscheduled)} == {
        "exception canceled"
    }
    assert (harness.states(done), harness.states(other)) == (["completed completed"], ["pending"])
    assert harness.services.group_changes.size(GROUP) == 5
    harness.run_timers()
    assert harness.events().count(("task-group-resolved", GROUP, None)) >= 1


def test_the_log_counts_what_is_changed_every_two_seconds(
    harness: Harness, logs: list[MutableMapping[str, Any]]
) -> None:
    def slow(name: str, call: Callable[[], Any]) -> Any:
        harness.clock.advance(3 * SECOND / 100 if name == "replace" else timedelta(0))
        return call()

    for _ in range(110):
        member(harness)
    seal(harness)
    services = harness.replica(slow)
    services.group_changes.change_priority(GROUP, "high", BOTH)
    counts = [entry["changed"] for entry in logs if entry["event"] == "task-group-changing"]
    assert counts == [99]  # the id of the group is looked at as that of a task too
    assert len(cancel(harness)) == 110
    assert len([entry for entry in logs if entry["event"] == "task-group-changing"]) == 1


def test_a_group_that_is_not_sealed_cannot_be_canceled(harness: Harness) -> None:
    task_id = member(harness)
    with pytest.raises(RequestConflict, match="sealTaskGroup first"):
        cancel(harness)
    assert harness.states(task_id) == ["pending"]


def test_a_task_that_is_inserted_while_it_is_barred_is_canceled(harness: Harness) -> None:
    member(harness, GROUP)
    late = slugid()
    dying = harness.replica(FaultAt(0, of="insert", before=failing(Crash())))
    with pytest.raises(Crash):
        dying.tasks.create(late, body())
    seal(harness)
    task = replace(harness.task(GROUP), task_id=late)
    replica = harness.replica(FaultAt(0, of="bar", before=lambda: harness.storage.tasks.insert(task)))
    assert sorted(replica.group_changes.cancel(GROUP)) == sorted([GROUP, late])


def change(harness: Harness, priority: str, directions: tuple[str, ...] = BOTH) -> list[str]:
    return sorted(harness.services.group_changes.change_priority(GROUP, priority, directions)[1])


def test_a_change_whose_summary_cannot_be_published_is_unavailable(harness: Harness) -> None:
    task_id = member(harness)
    harness.broker.capacity = 0
    with pytest.raises(ServiceUnavailable, match="task-group-priority-changed"):
        change(harness, "high")
    assert harness.task(task_id).priority == "high"
