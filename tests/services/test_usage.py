"""Calls are counted in memory, written in the background, and reported by every process."""

import threading
from collections.abc import MutableMapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, InputError, RequestConflict, ServiceUnavailable
from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage_key import CLAIM_TASK, CLAIM_WORK, POLL_TASK_URLS, Calls, UsageKey
from legacy_queue.ports.table import Table
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from legacy_queue.services.usage import Usage
from legacy_queue.stores import UsageStore
from tests.memory_server import MemoryTable
from tests.services.harness import (
    ALICE,
    BOB,
    HOUR,
    NOW,
    PROVISIONER,
    WORKER_TYPE,
    CallRecorder,
    FakeEvent,
    FaultAt,
    Harness,
    failing,
)
from tests.services.ports import intercept_port
from tests.services.test_background import CallCounter, running

POOL = (PROVISIONER, WORKER_TYPE)
DAY = 24 * HOUR
AWAY = ServiceUnavailable("storage is away")
POLLED = UsageKey(*POOL, POLL_TASK_URLS, "client")
CLAIMED = UsageKey(*POOL, CLAIM_TASK, "group/alice")
BARE = UsageKey(*POOL, CLAIM_TASK, "group/alice", ("messageId", "receipt", "signature"))
WORKED = UsageKey(*POOL, CLAIM_WORK, "group/alice")


@pytest.fixture
def harness() -> Harness:
    return Harness()


def reported(services: Services, window: timedelta = DAY) -> dict[UsageKey, int]:
    """How often each use is reported."""
    return {
        UsageKey(
            pool["provisionerId"], pool["workerType"], call["method"], call["caller"], tuple(call["missing"])
        ): call["count"]
        for pool in services.usage.report(window)["workerTypes"]
        for call in pool["calls"]
    }


def written(harness: Harness) -> dict[UsageKey, int]:
    return {use: calls.count for use, calls in harness.storage.usage.since(NOW - DAY, None, None)}


def poll(services: Services, client_id: str = "client") -> None:
    services.polling.poll_urls(*POOL, client_id)


def test_a_poll_is_counted_by_client_id_without_the_task(harness: Harness) -> None:
    for _ in range(2):
        poll(harness.services)
    poll(harness.services, "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/bob/until/1893553445")
    grouped = UsageKey(*POOL, POLL_TASK_URLS, "task-client/*/on/group/bob")
    assert reported(harness.services) == {POLLED: 2, grouped: 1}


def test_a_claim_is_counted_with_its_missing_fields(harness: Harness) -> None:
    harness.claimed()
    harness.create()
    message = harness.receive_one()
    harness.claim(message, BOB, proof=ClaimProof(message.lease.message_id))
    harness.run(harness.create())
    partly = UsageKey(*POOL, CLAIM_TASK, "group/bob", ("receipt", "signature"))
    assert reported(harness.services) == {CLAIMED: 1, BARE: 1, partly: 1}


def test_a_claim_work_is_counted(harness: Harness) -> None:
    harness.services.usage.record(*POOL, CLAIM_WORK, ALICE.full_id)
    assert reported(harness.services) == {WORKED: 1}


def test_a_claim_that_the_policy_refuses_is_counted() -> None:
    harness = Harness(required=["/".join(POOL)])
    with pytest.raises(InputError):
        harness.run(harness.create())
    assert reported(harness.services) == {BARE: 1}


def test_a_wrong_signature_counts_as_a_signature(harness: Harness) -> None:
    task_id = harness.create()
    with pytest.raises(AuthorizationFailed):
        harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof("id", "receipt", "wrong"))
    assert reported(harness.services) == {CLAIMED: 1}


def test_a_claim_that_is_a_conflict_is_counted(harness: Harness) -> None:
    task_id = harness.claimed(BOB)
    with pytest.raises(RequestConflict):
        harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    assert reported(harness.services)[BARE] == 1


def test_reclaims_and_reports_are_not_counted(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.services.claims.reclaim(task_id, 0)
    harness.complete(task_id)
    assert reported(harness.services) == {CLAIMED: 1}


def test_no_call_writes_its_count(harness: Harness) -> None:
    calls = CallRecorder()
    services = harness.replica(calls)
    poll(services)
    harness.create()
    harness.claim(harness.receive_one(), services=services)
    assert [name for name in calls.names if name.startswith("usage.")] == []
    assert written(harness) == {}


def test_a_flush_adds_the_calls_since_the_last_flush(harness: Harness) -> None:
    usage = harness.services.usage
    poll(harness.services)
    usage.record(*POOL, CLAIM_WORK, ALICE.full_id)
    usage.flush()
    harness.clock.advance(HOUR)
    poll(harness.services)
    usage.flush()
    assert dict(harness.storage.usage.since(NOW - DAY, None, None)) == {
        POLLED: Calls(2, NOW, NOW + HOUR),
        WORKED: Calls(1, NOW, NOW),
    }


def test_a_process_reports_its_own_calls_and_what_others_have_written(harness: Harness) -> None:
    first, second = harness.replica(), harness.replica()
    for services in (first, first, second):
        poll(services)
    assert reported(first) == {POLLED: 2}
    assert reported(second) == {POLLED: 3}
    poll(first)
    assert reported(second) == {POLLED: 3}
    assert [reported(services) for services in (first, second, harness.services)] == [{POLLED: 4}] * 3


@pytest.mark.parametrize("error", [AWAY, ValueError("a defect")], ids=["away", "defect"])
def test_a_flush_that_fails_is_made_up_for_by_the_next_flush(harness: Harness, error: Exception) -> None:
    services = harness.replica(FaultAt(0, of="usage.add", before=failing(error)))
    poll(services)
    with pytest.raises(type(error)):
        services.usage.flush()
    assert written(harness) == {}
    harness.clock.advance(3 * HOUR)
    services.usage.flush()
    assert written(harness) == {POLLED: 1}
    assert reported(services) == {POLLED: 1}


def test_a_flush_that_fails_between_two_batches_counts_no_call_twice(harness: Harness) -> None:
    table = intercept_port(Table, MemoryTable(), FaultAt(1, of="batch", before=failing(AWAY)))
    store = UsageStore(table)
    usage = Usage(store, harness.clock)
    for number in range(150):
        usage.record(*POOL, POLL_TASK_URLS, str(number))
    with pytest.raises(ServiceUnavailable):
        usage.flush()
    assert len(store.since(NOW, None, None)) == 100
    usage.flush()
    assert [calls.count for _, calls in store.since(NOW, None, None)] == [1] * 150


def test_a_call_during_a_flush_is_written_by_the_next_flush(harness: Harness) -> None:
    services: Services
    services = harness.replica(FaultAt(0, of="usage.add", before=lambda: poll(services)))
    poll(services)
    services.usage.flush()
    assert written(harness) == {POLLED: 1}
    services.usage.flush()
    assert written(harness) == {POLLED: 2}


def test_the_calls_of_too_many_callers_are_counted_together_and_logged(
    harness: Harness, logs: list[MutableMapping[str, Any]]
) -> None:
    usage = Usage(harness.storage.usage, harness.clock, max_keys=10)
    for number in [*range(10 + 3), 0]:
        usage.record(*POOL, POLL_TASK_URLS, str(number))
    report = usage.report(HOUR, *POOL)
    assert (len(report["workerTypes"][0]["calls"]), report["notRecorded"]) == (10, 3)
    assert [(line["event"], line["count"]) for line in logs] == [("calls-not-recorded", 3)]
    usage.record(*POOL, POLL_TASK_URLS, "another")
    assert len(usage.report(HOUR)["workerTypes"][0]["calls"]) == 11


def test_a_report_is_limited_to_the_requested_time_and_worker_type(harness: Harness) -> None:
    usage = harness.services.usage
    usage.record("another", WORKER_TYPE, POLL_TASK_URLS, "client")
    harness.clock.advance(3 * HOUR)
    usage.record(PROVISIONER, "another", POLL_TASK_URLS, "client")
    usage.flush()
    harness.clock.advance(3 * HOUR)
    poll(harness.services)
    asked: list[tuple[timedelta, str | None, str | None]] = [
        (7 * HOUR, None, None),
        (4 * HOUR, None, None),
        (HOUR, None, None),
        (7 * HOUR, PROVISIONER, None),
        (7 * HOUR, None, WORKER_TYPE),
        (7 * HOUR, *POOL),
        (7 * HOUR, "another", "another"),
    ]
    found = [
        [f"{pool['provisionerId']}/{pool['workerType']}" for pool in usage.report(*ask)["workerTypes"]]
        for ask in asked
    ]
    first, second, third = f"another/{WORKER_TYPE}", f"{PROVISIONER}/another", f"{PROVISIONER}/{WORKER_TYPE}"
    assert found == [
        [first, second, third],
        [second, third],
        [third],
        [second, third],
        [first, third],
        [third],
        [],
    ]
    report = usage.report(4 * HOUR)
    now = harness.clock.now()
    assert (report["since"], report["until"]) == (format_time(now - 4 * HOUR), format_time(now))


def test_a_report_reads_all_pages(harness: Harness) -> None:
    usage, reader = harness.services.usage, harness.replica().usage
    for number in range(2500):
        usage.record(*POOL, POLL_TASK_URLS, str(number))
    usage.flush()
    assert len(reader.report(HOUR)["workerTypes"][0]["calls"]) == 2500


def test_a_report_fails_while_storage_is_unavailable(harness: Harness) -> None:
    usage = harness.replica(FaultAt(0, of="usage.since", before=failing(AWAY))).usage
    with pytest.raises(ServiceUnavailable):
        usage.report(HOUR)
    assert usage.report(HOUR)["workerTypes"] == []


def test_no_call_of_concurrent_threads_is_lost(harness: Harness) -> None:
    usage = harness.services.usage

    def call() -> None:
        for _ in range(1000):
            usage.record(*POOL, CLAIM_WORK, ALICE.full_id)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        usage.flush()
    for thread in threads:
        thread.join()
    usage.flush()
    assert written(harness) == {WORKED: 4000}


# In the background


def test_calls_are_written_while_the_process_runs(harness: Harness) -> None:
    put = CallCounter("usage.add")
    server = replace(harness.replica(put, resolves=False), stopping=FakeEvent(harness.clock))
    poll(server)
    with running(server):
        put.wait()
    assert written(harness) == {POLLED: 1}


def test_a_process_writes_its_calls_before_it_ends(harness: Harness) -> None:
    server = harness.replica()
    with running(server):
        poll(server)
    assert written(harness) == {POLLED: 1}


@pytest.mark.parametrize(
    ("error", "line"),
    [(AWAY, "background-delayed"), (ValueError("a defect"), "background-failed")],
    ids=["away", "defect"],
)
def test_a_process_ends_even_if_it_cannot_write_its_calls(
    harness: Harness, error: Exception, line: str, logs: list[MutableMapping[str, Any]]
) -> None:
    server = harness.replica(CallCounter("usage.add", 99, error), resolves=False)
    with running(server):
        poll(server)
    assert {event["event"] for event in logs} == {line}
