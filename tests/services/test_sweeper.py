"""The sweeper repairs and advances tasks, even if some are corrupt: docs/explanation/recovery.md#sweeper."""

from collections import Counter
from datetime import datetime
from typing import Any, cast

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.messages import message_text
from legacy_queue.domain.times import format_time
from legacy_queue.ports import Corrupt
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.table import Condition
from legacy_queue.services.process.ledger import Look, Owed
from legacy_queue.services.recovery.advance import LookResult
from legacy_queue.services.recovery.job_definitions import PAGE
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.claims import ClaimProof
from legacy_queue.services.tasks.lost_messages import LostMessages
from legacy_queue.stores import Group, StoredTask, TaskStore
from tests.domain.sample_tasks import ALICE, CLAIM_TIMEOUT, DAY, HOUR, MINUTE, NOW, SECOND, task_body
from tests.services.fake_ports import CallRecorder, Crash, DelegatingTasks, FaultAt, ShowsMessages
from tests.services.harness import (
    HIGH,
    OLD_SECRET,
    PREFIX,
    PROVISIONER,
    QUEUE,
    SECRET,
    WORKER_TYPE,
    Harness,
    Logs,
    Message,
)


def lose_messages(harness: Harness) -> None:
    for message in harness.receive():
        harness.delete(message)


@pytest.mark.parametrize("shows", [True, False])
def test_exactly_the_tasks_without_a_message_are_offered_again_if_the_storage_shows_its_messages(
    harness: Harness, shows: bool
) -> None:
    tasks = {harness.create() for _ in range(PAGE + 1)}
    lost = harness.receive(1)[0]
    harness.delete(lost)
    account = harness.account if shows else cast(StorageAccount, ShowsMessages(harness.account))
    harness.sweep(11 * MINUTE, harness.replica(account=account))
    offered = Counter(Message.read(message).task_id for message in harness.messages())
    assert offered == {**dict.fromkeys(tasks, 1 if shows else 2), lost.task_id: 1}


def test_if_the_storage_shows_no_messages_a_sweep_still_finds_the_task_whose_message_is_missing(
    harness: Harness,
) -> None:
    services = harness.replica(account=cast(StorageAccount, ShowsMessages(harness.account)))
    task_id, other_id = harness.create(), harness.create()
    own, other = harness.receive()
    proof = ClaimProof(other.lease.message_id, other.lease.receipt, own.signature)
    harness.claim(own, services=services, proof=proof)
    harness.delete(own)  # deployed workers delete the message after each claim
    harness.sweep(11 * MINUTE, services)
    assert (own.task_id, harness.receive_one().task_id) == (task_id, other_id)


def test_a_message_belongs_to_a_run_if_it_is_signed_and_in_a_queue_of_the_tasks_pool(
    harness: Harness,
) -> None:
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


@pytest.mark.parametrize("shows", [True, False])
def test_a_sweep_that_fails_half_way_offers_no_task_twice(harness: Harness, shows: bool) -> None:
    tasks = {harness.create() for _ in range(2)}
    lose_messages(harness)
    fails = FaultAt(1, of="put", before=ServiceUnavailable("away"))
    account = harness.account if shows else cast(StorageAccount, ShowsMessages(harness.account))
    services = harness.replica(fails, account=account)
    with pytest.raises(ServiceUnavailable):
        harness.sweep(11 * MINUTE, services)
    harness.sweep(MINUTE, services)
    assert Counter(message.task_id for message in harness.receive()) == dict.fromkeys(tasks, 1)


def test_a_claim_whose_message_and_process_are_lost_expires_ten_minutes_late(harness: Harness) -> None:
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


@pytest.mark.parametrize("call", ["create", "define"])
def test_a_task_whose_process_is_lost_is_resolved_within_20_minutes_after_its_deadline(
    harness: Harness, call: str
) -> None:
    task_id = slugid()
    getattr(harness.services.tasks, call)(task_id, task_body(deadline=format_time(NOW + HOUR)))
    harness.kill_process()
    harness.sweep(HOUR - SECOND)
    assert harness.states(task_id)[-1:] != ["exception deadline-exceeded"]
    for _ in range(2):
        harness.sweep(10 * MINUTE)
    assert harness.states(task_id)[-1:] == ["exception deadline-exceeded"]
    harness.do_work()
    assert harness.events()[-1] == ("task-group-resolved", task_id, None)


def test_the_sweep_goes_on_after_a_task_that_fails(harness: Harness, logs: Logs) -> None:
    tasks = sorted(harness.create(deadline=format_time(NOW + MINUTE)) for _ in range(2))
    harness.kill_process()
    fails = FaultAt(0, of="process.write", before=ValueError("a defect"))
    harness.sweep(20 * MINUTE, harness.replica(fails))
    assert [harness.task(task_id).state for task_id in tasks] == ["pending", "exception"]
    assert "sweep-failed" in [entry["event"] for entry in logs]


def test_a_pending_task_that_expires_during_the_sweep_is_skipped(harness: Harness) -> None:
    expired, other = sorted(harness.create() for _ in range(2))
    lose_messages(harness)
    remove = lambda: harness.account.table(f"{PREFIX}tasks").delete(expired, "task")  # noqa: E731
    harness.sweep(20 * MINUTE, harness.replica(FaultAt(0, of="unresolved", after=remove)))
    assert [message.task_id for message in harness.receive()] == [other]


def test_a_group_with_a_row_of_an_older_version_is_resolved_within_a_day(harness: Harness) -> None:
    group = slugid()
    for _ in range(2):  # the first member is in the group's row, so only the second has a row of its own
        harness.do_work()
        harness.run(harness.create(taskGroupId=group))
    harness.events()
    harness.kill_process()
    table = harness.account.table(f"{PREFIX}groups")
    [row] = table.page([Condition("state", "eq", "active")], "", 9).rows
    old = {name: value for name, value in row.values.items() if name != "state"}
    table.put(row.partition, row.key, old)
    for wait, resolved in ((0 * HOUR, False), (11 * MINUTE, False), (DAY, True)):
        harness.sweep(wait)
        harness.do_work()
        assert (("task-group-resolved", group, None) in harness.events()) is resolved


# advancing a task: which effects are repeated, and when a claim or a task ends

MARGIN = CLAIM_TIMEOUT / 20  # because the clock of another process may differ


def advance(
    server: Services, task_id: str, since: datetime | None = None, is_published: bool = False, group: str = ""
) -> LookResult:
    owed = [Owed(1, task_id, since, group, is_published=is_published)] if since else []
    return server.advance.look(Look(task_id, owed))


def test_an_outdated_task_in_the_cache_does_not_hide_that_the_task_was_resolved(harness: Harness) -> None:
    """Another call may have read the task before it was resolved and cached it afterwards."""
    task_id = harness.claimed()
    waiting = harness.create(dependencies=[task_id])
    before = harness.storage.tasks.load(task_id)
    harness.complete(task_id)

    class Stale(DelegatingTasks):
        def recall(self, _: str) -> StoredTask | None:
            return before

    server = harness.replica(wrap_tasks=lambda tasks: cast(TaskStore, Stale(tasks)))
    harness.events()
    advance(server, task_id, NOW, is_published=True)
    assert harness.states(waiting) == ["pending"]
    assert ("task-group-resolved", task_id, None) in harness.events()


def test_a_refused_task_leaves_the_group_that_it_joined(harness: Harness) -> None:
    group, task_id = slugid(), harness.create()
    done = harness.create(taskGroupId=group)
    harness.run(done)
    harness.do_work()
    dying = harness.replica(FaultAt(0, of="join", after=Crash()))
    with pytest.raises(Crash):
        dying.tasks.create(task_id, task_body(taskGroupId=group))
    harness.events()
    assert harness.storage.groups.is_active(group)
    advance(harness.services, task_id, harness.clock.now() + SECOND, group=group)
    assert harness.events() == [("task-group-resolved", group, None)]


@pytest.mark.parametrize(("retries", "state"), [(1, "pending"), (0, "exception")])
def test_a_process_ends_the_claim_of_another_process_a_minute_late(
    harness: Harness, retries: int, state: str
) -> None:
    task_id = harness.claimed(retries=retries)
    server = harness.replica()
    harness.clock.advance(CLAIM_TIMEOUT)
    assert advance(server, task_id) == LookResult(NOW + CLAIM_TIMEOUT + MARGIN)
    harness.clock.advance(MARGIN - SECOND)
    assert advance(server, task_id) == LookResult(NOW + CLAIM_TIMEOUT + MARGIN)
    assert harness.states(task_id) == ["running by alice"]
    harness.clock.advance(SECOND)
    assert advance(server, task_id) == LookResult(NOW + DAY if retries else None)
    assert harness.task(task_id).state == state


def test_an_expired_task_is_not_registered_again_as_a_dependent(harness: Harness) -> None:
    waiting, calls = harness.create(dependencies=[harness.create()]), CallRecorder()
    server = harness.replica(calls)
    advance(server, waiting, NOW)
    assert calls.names.count("dependency.add") == 1
    harness.clock.advance(harness.task(waiting).definition.expires - NOW)
    advance(server, waiting, NOW)
    assert calls.names.count("dependency.add") == 1


def test_an_unknown_task_is_reported_as_missing(harness: Harness) -> None:
    assert advance(harness.services, slugid(), NOW) == LookResult(exists=False)
    assert harness.services.advance.end_if_due(slugid()) == LookResult(exists=False)


def test_a_task_whose_events_cannot_be_published_is_marked(harness: Harness) -> None:
    """The process that wrote it may have died before it could mark it."""
    task_id = harness.create()
    assert not harness.task(task_id).is_unpublished
    harness.broker.capacity = 0
    result = advance(harness.replica(), task_id, NOW)
    assert (result.is_complete, result.is_published, result.is_marked) == (False, False, True)
    assert harness.task(task_id).is_unpublished


# a corrupt task does not stop lists, periodic jobs, looks, polls or other tasks


def corrupt(harness: Harness, task_id: str) -> None:
    harness.account.table(f"{PREFIX}tasks").merge(task_id, "task", {"runs": b"{"}, None)


def name_of(task: Any) -> bytes:
    return str(task.task_id).encode()


def test_lists_leave_out_a_corrupt_task(harness: Harness) -> None:
    required, group = harness.create(), slugid()
    tasks = sorted(harness.create(taskGroupId=group, dependencies=[required]) for _ in range(5))
    corrupt(harness, tasks[2])
    listing = harness.services.listing
    for ask, about in ((listing.group, group), (listing.dependents, required)):
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = ask(about, after, 2, name_of)
            found += [item.decode() for item in page.items]
            after = page.after
        assert found == [*tasks[:2], *tasks[3:]]


def test_a_corrupt_task_is_forgotten_and_the_others_go_on(harness: Harness) -> None:
    unreadable, other = harness.claimed(), harness.claimed()
    corrupt(harness, unreadable)
    harness.do_work(48 * HOUR)
    assert harness.task(other).state == "exception"
    assert harness.services.ledger.in_memory() == 0


@pytest.mark.parametrize("error", [Corrupt("the row cannot be read"), ValueError("a defect")], ids=repr)
def test_a_sweep_of_groups_goes_on_after_a_failure(harness: Harness, error: Exception, logs: Logs) -> None:
    for _ in range(3):
        harness.storage.groups.join(slugid(), Group(slugid(), "-", harness.clock.now() + 24 * HOUR), "")
    services = harness.replica(FaultAt(0, of="load", before=error))
    harness.sweep(11 * MINUTE, services)
    harness.do_work(services=services)
    assert len(harness.storage.groups.all_active("", 100)[0]) == 1
    assert [entry["event"] for entry in logs] == ["sweep-failed"] * isinstance(error, ValueError)


def test_claim_work_drops_only_the_message_of_a_corrupt_task(harness: Harness, logs: Logs) -> None:
    first, unreadable, last = (harness.create() for _ in range(3))
    corrupt(harness, unreadable)
    claimed = harness.services.claim_work.claim(PROVISIONER, WORKER_TYPE, ALICE, 3, lambda: False)["tasks"]
    assert {claim["status"]["taskId"] for claim in claimed} == {first, last}
    assert [run_id for run_id, _ in harness.offered_runs()] == [1, 1]
    assert "work-message-dropped" in [entry["event"] for entry in logs]


def test_a_group_whose_row_is_corrupt_is_listed(harness: Harness) -> None:
    task_id = harness.create()
    group_id = harness.task(task_id).definition.task_group_id
    fault = FaultAt(0, of="load", before=Corrupt("the row cannot be read"))
    replica = harness.replica(fault)
    assert replica.groups.find(group_id) is None
    assert fault.happened
    assert replica.listing.group(group_id, "", 9, name_of).items == [task_id.encode()]
