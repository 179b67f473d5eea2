"""The sweeper repairs tasks whose messages or timers were lost: docs/explanation/recovery.md#sweeper."""

from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, cast

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.times import format_time
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.table import Condition
from legacy_queue.services.recovery.jobs import JOB_LEASE, PAGE
from legacy_queue.services.tasks.lost_messages import LostMessages
from legacy_queue.stores import JobLease
from tests.services.harness import (
    CLAIM_TIMEOUT,
    HIGH,
    HOUR,
    MINUTE,
    NOW,
    OLD_SECRET,
    PREFIX,
    QUEUE,
    SECOND,
    SECRET,
    FaultAt,
    Harness,
    Message,
    failing,
    task_body,
)
from tests.services.ports import ShowsMessages

DAY = 24 * HOUR


def lose_messages(harness: Harness) -> None:
    for message in harness.receive():
        harness.delete(message)


def test_a_run_without_a_message_is_offered_after_10_20_40_minutes_and_so_on(harness: Harness) -> None:
    harness.create()
    offered = []
    for minutes in range(1, 171):
        lose_messages(harness)
        harness.sweep(MINUTE)
        if harness.messages():
            offered.append(minutes)
    assert len(offered) == 5
    for at, wanted in zip(offered, (10, 20, 40, 80, 160), strict=True):
        assert wanted <= at <= wanted + 10


@pytest.mark.parametrize("shows", [True, False])
def test_exactly_what_has_no_message_is_offered_unless_storage_hides_messages(
    harness: Harness, shows: bool
) -> None:
    tasks = {harness.create() for _ in range(PAGE + 1)}
    lost = harness.receive(1)[0]
    harness.delete(lost)
    account = harness.account if shows else cast(StorageAccount, ShowsMessages(harness.account))
    harness.sweep(11 * MINUTE, harness.replica(account=account))
    offered = Counter(Message.read(message).task_id for message in harness.messages())
    assert offered == {**dict.fromkeys(tasks, 1 if shows else 2), lost.task_id: 1}


def test_a_message_is_that_of_a_run_if_it_is_signed_and_in_a_queue_of_its_pool(harness: Harness) -> None:
    tasks = sorted(harness.create() for _ in range(7))
    own, next_run, another_run, forged, misplaced, unreadable, _missing = tasks
    lose_messages(harness)
    queues = harness.storage.work_queues
    for queue, text in (
        (QUEUE, message_text(own, 0, OLD_SECRET)),
        (QUEUE, message_text(next_run, 1, SECRET)),
        (QUEUE, message_text(another_run, 3, SECRET)),
        (QUEUE, message_text(forged, 0, b"of another server")),
        (HIGH, message_text(misplaced, 0, SECRET)),
        (QUEUE, unreadable),
    ):
        queues.put(queue, text, HOUR, 0 * MINUTE)
    lost = LostMessages(queues, harness.services.task_queues, [SECRET, OLD_SECRET], harness.clock)
    found = [lost.has_none(harness.task(task_id)) for task_id in tasks]
    assert found == [False, False, True, True, True, True, True]


def test_a_sweep_goes_on_though_reading_all_messages_outlasts_its_lease(harness: Harness) -> None:
    shown = harness.account.shown_messages
    assert shown

    class Slow:
        def page(self, after: str, limit: int) -> tuple[Sequence[tuple[str, str]], str | None]:
            harness.clock.advance(JOB_LEASE)
            taken_over = harness.storage.leases.acquire("sweep-tasks", harness.clock.now() + JOB_LEASE)
            assert isinstance(taken_over, JobLease)
            return shown.page(after, limit)

    tasks = {harness.create() for _ in range(PAGE + 1)}
    while harness.messages():
        lose_messages(harness)
    services = harness.replica(account=cast(StorageAccount, ShowsMessages(harness.account, Slow())))
    for wait in (11 * MINUTE, JOB_LEASE):
        harness.sweep(wait, services)
    offered = Counter(Message.read(message).task_id for message in harness.messages())
    assert offered == dict.fromkeys(tasks, 1)


@pytest.mark.parametrize("shows", [True, False])
def test_a_page_that_fails_half_way_offers_nothing_twice(harness: Harness, shows: bool) -> None:
    tasks = {harness.create() for _ in range(2)}
    lose_messages(harness)
    fails = FaultAt(1, of="put", before=failing(ServiceUnavailable("away")))
    account = harness.account if shows else cast(StorageAccount, ShowsMessages(harness.account))
    services = harness.replica(fails, account=account)
    with pytest.raises(ServiceUnavailable):
        harness.sweep(11 * MINUTE, services)
    harness.sweep(JOB_LEASE, services)
    assert Counter(message.task_id for message in harness.receive()) == dict.fromkeys(tasks, 1)


def test_a_claim_without_timer_and_message_ends_ten_minutes_late(harness: Harness) -> None:
    task_id = harness.claimed()
    task = harness.task(task_id)
    assert task.held
    harness.storage.work_queues.remove(task.work_queue, task.held)
    harness.kill_process()
    harness.sweep(CLAIM_TIMEOUT + 9 * MINUTE)
    assert harness.states(task_id) == ["running by alice"]
    harness.sweep(11 * MINUTE)
    assert harness.states(task_id) == ["exception claim-expired", "pending"]
    assert [run_id for run_id, _ in harness.offered_runs()] == [1]


def defined(harness: Harness) -> str:
    task_id = slugid()
    harness.services.tasks.define(task_id, task_body(deadline=format_time(NOW + HOUR)))
    return task_id


def claimed(harness: Harness) -> str:
    """Up to its deadline."""
    task_id = harness.claimed(deadline=format_time(NOW + HOUR))
    for _ in range(3):
        harness.clock.advance(15 * MINUTE)
        harness.services.claims.reclaim(task_id, 0)
    return task_id


@pytest.mark.parametrize(
    "create",
    [
        defined,
        lambda harness: harness.create(deadline=format_time(NOW + HOUR)),
        claimed,
    ],
    ids=["unscheduled", "pending", "running"],
)
def test_a_task_without_a_timer_ends_within_20_minutes_of_its_deadline(
    harness: Harness, create: Callable[[Harness], str]
) -> None:
    task_id = create(harness)
    harness.kill_process()
    harness.sweep(NOW + HOUR - SECOND - harness.clock.now())
    assert harness.states(task_id)[-1:] != ["exception deadline-exceeded"]
    for _ in range(2):
        harness.sweep(10 * MINUTE)
    assert harness.states(task_id)[-1:] == ["exception deadline-exceeded"]
    harness.run_timers()
    assert harness.events()[-1] == ("task-group-resolved", task_id, None)


def test_the_sweep_goes_on_after_a_task_that_fails(
    harness: Harness, logs: list[MutableMapping[str, Any]]
) -> None:
    tasks = sorted(harness.create(deadline=format_time(NOW + MINUTE)) for _ in range(2))
    harness.kill_process()
    fails = FaultAt(0, of="timer.put", before=failing(ValueError("a defect")))
    harness.sweep(20 * MINUTE, harness.replica(fails))
    assert [harness.task(task_id).state for task_id in tasks] == ["pending", "exception"]
    assert "sweep-failed" in [entry["event"] for entry in logs]


def test_a_pending_task_that_expires_during_the_sweep_is_skipped(harness: Harness) -> None:
    expired, other = sorted(harness.create() for _ in range(2))
    lose_messages(harness)
    remove = lambda: harness.account.table(f"{PREFIX}tasks").delete(expired, "task")  # noqa: E731
    harness.sweep(20 * MINUTE, harness.replica(FaultAt(0, of="unresolved", after=remove)))
    assert [message.task_id for message in harness.receive()] == [other]


def test_a_group_with_a_row_of_an_old_version_is_resolved_within_a_day(harness: Harness) -> None:
    group = slugid()
    harness.run(harness.create(taskGroupId=group))
    harness.kill_process()
    table = harness.account.table(f"{PREFIX}groups")
    [row] = table.page([Condition("state", "eq", "active")], "", 9).rows
    old = {name: value for name, value in row.values.items() if name != "state"}
    table.put(row.partition, row.key, old)
    for wait, resolved in ((0 * HOUR, False), (11 * MINUTE, False), (DAY, True)):
        harness.sweep(wait)
        harness.run_timers()
        assert (("task-group-resolved", group, None) in harness.events()) is resolved
