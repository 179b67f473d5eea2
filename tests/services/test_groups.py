"""Task groups: each has one scheduler, and is resolved when its last active task is."""

from collections.abc import Callable
from typing import Any

import pytest

from legacy_queue.domain.errors import RequestConflict
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.services.claims import ClaimProof
from tests.services import interleaving
from tests.services.harness import (
    ALICE,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    Crash,
    FaultAt,
    Harness,
    failing,
    task_body,
)
from tests.services.interleaving import every_order, run

DAY = 24 * HOUR
GROUP = "eWIgwMgxSfeXQ36iBbOxiQ"
RESOLVED = ("task-group-resolved", GROUP, None)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def resolutions(harness: Harness) -> int:
    harness.run_timers()
    return harness.events().count(RESOLVED)


def active(harness: Harness, group: str = GROUP) -> int:
    """How many members are active."""
    rows = harness.storage.groups.all_active("", 999)[0]
    return sum(row.task_group_id == group for row in rows)


def member(harness: Harness, **changes: Any) -> str:
    return harness.create(taskGroupId=GROUP, **changes)


def test_a_group_is_resolved_when_the_last_of_its_tasks_is(harness: Harness) -> None:
    first, second, third = (member(harness) for _ in range(3))
    harness.run(first)
    harness.run(second, "failed")
    assert resolutions(harness) == 0
    harness.services.tasks.cancel(third)
    assert resolutions(harness) == 1
    harness.run_timers(HOUR)
    assert resolutions(harness) == 0


@pytest.mark.parametrize("call", ["activate", "timer.put"])
def test_the_sweeper_resolves_a_group_after_a_rerun_that_died_before_its_write(
    harness: Harness, call: str
) -> None:
    first, second = member(harness), member(harness)
    harness.run(first)
    with pytest.raises(Crash):
        harness.replica(FaultAt(0, of=call, after=failing(Crash()))).tasks.rerun(first)
    harness.run(second)
    assert resolutions(harness) == 0
    harness.sweep(11 * MINUTE)
    assert resolutions(harness) >= 1
    assert active(harness) == 0


def test_the_sweeper_resolves_a_group_after_a_rerun_that_lost_its_race(harness: Harness) -> None:
    """Between its activation and its write, another call reran the task, which was resolved again."""
    task_id = member(harness)
    harness.run(task_id)
    harness.run_timers()

    def rerun_and_resolve() -> None:
        harness.services.tasks.rerun(task_id)
        harness.run(task_id)
        harness.run_timers()

    harness.replica(FaultAt(0, of="activate", before=rerun_and_resolve)).tasks.rerun(task_id)
    harness.clock.advance(SECOND)
    harness.run(task_id)
    harness.run_timers()
    assert active(harness) == 1
    harness.events()
    harness.sweep(11 * MINUTE)
    assert resolutions(harness) >= 1
    assert active(harness) == 0


def test_the_sweeper_ends_an_older_activation_while_the_task_runs_again(harness: Harness) -> None:
    task_id = member(harness)
    harness.run(task_id)
    harness.services.tasks.rerun(task_id)
    harness.kill_process()  # before it ended the first activation
    assert active(harness) == 2
    harness.sweep(11 * MINUTE)
    (left,) = harness.storage.groups.all_active("", 9)[0]
    assert (left.activation, active(harness)) == (1, 1)
    harness.run(task_id)
    assert resolutions(harness) == 1


def test_a_refused_definition_adds_no_member_to_the_group_that_it_names(
    harness: Harness,
) -> None:
    task_id, others = harness.create(), slugid()
    harness.run(harness.create(taskGroupId=others))
    harness.run_timers()
    harness.events()
    for group in (GROUP, others):
        with pytest.raises(RequestConflict, match="taskGroupId differs"):
            harness.services.tasks.create(task_id, task_body(taskGroupId=group))
        assert task_id not in harness.storage.groups.members(group, "", 9)
        assert active(harness, group) == 0
    events = harness.events()
    assert RESOLVED not in events  # it never had a member
    assert ("task-group-resolved", others, None) in events  # published again: it may have been blocked


def test_a_timer_undoes_a_refused_join_after_the_server_died(
    harness: Harness,
) -> None:
    task_id = harness.create()
    with pytest.raises(Crash):
        harness.replica(FaultAt(0, of="insert", before=failing(Crash()))).tasks.create(
            task_id, task_body(taskGroupId=GROUP)
        )
    assert active(harness) == 1
    harness.run_timers(MINUTE)
    assert active(harness) == 0
    assert list(harness.storage.groups.members(GROUP, "", 9)) == []


def test_the_timer_of_a_task_that_was_not_stored_ends_though_its_group_expired(harness: Harness) -> None:
    expires = format_time(NOW + 2 * MINUTE)
    body = task_body(taskGroupId=GROUP, deadline=format_time(NOW + MINUTE), expires=expires)
    with pytest.raises(Crash):
        harness.replica(FaultAt(0, of="insert", before=failing(Crash()))).tasks.create(slugid(), body)
    harness.storage.groups.remove_expired(NOW + 2 * DAY, "", 999)
    assert harness.storage.groups.load(GROUP) is None
    harness.run_timers(HOUR)
    assert (harness.timers(), harness.events()) == ([], [])


# The founder: the task whose taskId is the taskGroupId


def founder(harness: Harness, **changes: Any) -> str:
    harness.services.tasks.create(GROUP, task_body(taskGroupId=GROUP, **changes))
    return GROUP


def listed(harness: Harness) -> list[str]:
    page = harness.services.listing.group(GROUP, "", 99, lambda task: task.task_id.encode())
    return [item.decode() for item in page.items]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_group_is_resolved_when_its_founder_and_members_are(harness: Harness, is_last: bool) -> None:
    order = [founder(harness), member(harness)]
    assert listed(harness) == sorted(order, key=str.encode)
    if is_last:
        order.reverse()
    harness.run(order[0])
    assert resolutions(harness) == 0
    harness.run(order[1])
    assert resolutions(harness) == 1


def test_a_founder_with_another_scheduler_id_is_refused(harness: Harness) -> None:
    member(harness, schedulerId="the member's")
    with pytest.raises(RequestConflict, match='has the schedulerId "the member\'s"'):
        founder(harness, schedulerId="another")
    assert harness.storage.tasks.load(GROUP) is None
    founder(harness, schedulerId="the member's")


def test_pages_of_a_group_list_the_founder_in_order(harness: Harness) -> None:
    tasks = sorted([founder(harness), *(member(harness) for _ in range(6))], key=str.encode)
    task_ids: list[str] = []
    after: str | None = ""
    while after is not None:
        page = harness.services.listing.group(GROUP, after, 2, lambda task: task.task_id.encode())
        task_ids += [item.decode() for item in page.items]
        after = page.after
    assert task_ids == tasks


# Several processes


def pausing(name: str, call: Callable[[], Any]) -> Any:
    """Pause at the calls that can conflict."""
    return interleaving.pausing(name, call) if name in ("join", "end", "insert", "replace") else call()


def test_a_group_is_resolved_after_a_concurrent_end_and_create_in_two_replicas() -> None:
    """The last member ends in a replica, while another task joins in the other."""

    def scene(choose: Callable[[int], int]) -> None:
        harness = Harness()
        first, late = member(harness), slugid()
        harness.services.claims.claim(harness.task(first), 0, ALICE, ClaimProof())
        ending, creating = harness.replica(pausing), harness.replica(pausing)

        def end() -> None:
            harness.complete(first, services=ending)
            ending.resolver.handle_all()

        def create() -> None:
            creating.tasks.create(late, task_body(taskGroupId=GROUP))

        assert run([end, create], choose) == [None, None]
        assert active(harness) == 1
        harness.events()
        harness.run(late)
        harness.run_timers(MINUTE)
        assert (active(harness), RESOLVED in harness.events()) == (0, True)

    assert every_order(scene) > 5


def test_a_group_is_resolved_after_two_concurrent_ends_in_two_replicas() -> None:
    def scene(choose: Callable[[int], int]) -> None:
        harness = Harness()
        members = [member(harness), member(harness)]
        servers = [harness.replica(pausing), harness.replica(pausing)]
        for task_id in members:
            harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())

        def end(index: int) -> None:
            harness.complete(members[index], services=servers[index])
            servers[index].resolver.handle_all()

        assert run([lambda: end(0), lambda: end(1)], choose) == [None, None]
        assert active(harness) == 0
        assert harness.events().count(RESOLVED) >= 1

    assert every_order(scene) > 5
