"""Who calls what is counted in memory, written down now and then, and found by every process."""

import threading
from collections.abc import MutableMapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, InputError, RequestConflict, ServiceUnavailable
from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage_key import CLAIM_TASK, CLAIM_WORK, POLL_TASK_URLS, UsageKey
from legacy_queue.services import Services
from legacy_queue.services.claims import ClaimProof
from legacy_queue.services.usage import MOST
from tests.services.harness import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    PROVISIONER,
    WORKER_TYPE,
    CallRecorder,
    FakeEvent,
    FaultAt,
    Harness,
    failing,
)
from tests.services.test_background import Seen, running

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


def seen(services: Services, window: timedelta = DAY) -> dict[UsageKey, int]:
    """How often each use is reported."""
    return {
        UsageKey(
            one["provisionerId"], one["workerType"], call["method"], call["caller"], tuple(call["missing"])
        ): call["count"]
        for one in services.usage.report(window)["workerTypes"]
        for call in one["calls"]
    }


def written(harness: Harness) -> list[tuple[UsageKey, int]]:
    return [(one.use, one.calls.count) for one in harness.storage.usage.since(NOW - DAY, None, None)]


def forget_written(harness: Harness) -> None:
    harness.storage.usage.remove_expired(NOW + 100 * DAY, "", 1000)
    assert written(harness) == []


def poll(services: Services, client_id: str = "client") -> None:
    services.polling.poll_urls(*POOL, client_id)


def test_who_polls_is_counted(harness: Harness) -> None:
    for _ in range(2):
        poll(harness.services)
    poll(harness.services, "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/bob/until/1893553445")
    grouped = UsageKey(*POOL, POLL_TASK_URLS, "task-client/*/on/group/bob")
    assert seen(harness.services) == {POLLED: 2, grouped: 1}


def test_who_claims_is_counted_with_what_is_left_out(harness: Harness) -> None:
    harness.claimed()
    harness.create()
    message = harness.receive_one()
    harness.claim(message, BOB, proof=ClaimProof(message.lease.message_id))
    harness.run(harness.create())
    partly = UsageKey(*POOL, CLAIM_TASK, "group/bob", ("receipt", "signature"))
    assert seen(harness.services) == {CLAIMED: 1, BARE: 1, partly: 1}


def test_a_worker_that_calls_claim_work_is_counted(harness: Harness) -> None:
    harness.services.usage.record_claim_work(*POOL, ALICE)
    assert seen(harness.services) == {WORKED: 1}


def test_a_claim_counts_that_the_policy_refuses() -> None:
    harness = Harness(required=["/".join(POOL)])
    with pytest.raises(InputError):
        harness.run(harness.create())
    assert seen(harness.services) == {BARE: 1}


def test_a_claim_counts_whose_signature_is_wrong_as_what_it_presents(harness: Harness) -> None:
    task_id = harness.create()
    with pytest.raises(AuthorizationFailed):
        harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof("id", "receipt", "wrong"))
    assert seen(harness.services) == {CLAIMED: 1}


def test_a_claim_counts_that_comes_too_late(harness: Harness) -> None:
    task_id = harness.claimed(BOB)
    with pytest.raises(RequestConflict):
        harness.services.claims.claim(harness.task(task_id), 0, ALICE, ClaimProof())
    assert seen(harness.services)[BARE] == 1


def test_reclaiming_and_reporting_are_nobodys_protocol(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.services.claims.reclaim(task_id, 0)
    harness.complete(task_id)
    assert seen(harness.services) == {CLAIMED: 1}


def test_no_call_waits_for_the_counting(harness: Harness) -> None:
    calls = CallRecorder()
    services = harness.replica(calls)
    poll(services)
    harness.create()
    harness.claim(harness.receive_one(), services=services)
    assert [name for name in calls.names if name.startswith("usage.")] == []
    assert written(harness) == []


def test_what_is_written_down_is_the_count_of_the_hour(harness: Harness) -> None:
    usage = harness.services.usage
    for count in range(1, 4):
        poll(harness.services)
        usage.flush()
        assert written(harness) == [(POLLED, count)]
    harness.clock.advance(HOUR)
    poll(harness.services)
    usage.flush()
    assert written(harness) == [(POLLED, 3), (POLLED, 1)]
    assert seen(harness.services) == {POLLED: 4}


def test_only_what_has_changed_is_written_down(harness: Harness) -> None:
    usage = harness.services.usage
    poll(harness.services)
    usage.record_claim_work(*POOL, ALICE)
    usage.flush()
    forget_written(harness)
    usage.flush()
    assert written(harness) == []
    usage.record_claim_work(*POOL, ALICE)
    usage.flush()
    assert written(harness) == [(WORKED, 2)]


def test_a_process_finds_what_others_have_written_and_all_that_is_its_own(harness: Harness) -> None:
    first, second = harness.replica(), harness.replica()
    for services in (first, first, second):
        poll(services)
    assert seen(first) == {POLLED: 2}
    assert seen(second) == {POLLED: 3}
    poll(first)
    assert seen(second) == {POLLED: 3}
    assert [seen(services) for services in (first, second, harness.services)] == [{POLLED: 4}] * 3


def test_an_hour_that_is_over_is_found_though_the_process_has_forgotten_it(harness: Harness) -> None:
    usage = harness.services.usage
    poll(harness.services)
    harness.clock.advance(HOUR)
    usage.flush()
    poll(harness.services)
    assert seen(harness.services) == {POLLED: 2}
    harness.clock.advance(5 * MINUTE)
    usage.flush()
    assert seen(harness.services) == {POLLED: 2}
    forget_written(harness)
    poll(harness.services)
    assert seen(harness.services) == {POLLED: 2}, "the hour that is not over is still counted"


def test_an_hour_is_kept_for_a_clock_that_is_set_back(harness: Harness) -> None:
    usage = harness.services.usage
    poll(harness.services)
    harness.clock.advance(HOUR - 4 * MINUTE)  # the hour has just begun
    usage.flush()
    harness.clock.advance(-4 * MINUTE)
    poll(harness.services)
    usage.flush()
    assert seen(harness.services) == {POLLED: 2}


@pytest.mark.parametrize("error", [AWAY, ValueError("a defect")], ids=["away", "defect"])
def test_what_could_not_be_written_down_is_with_the_next_time(harness: Harness, error: Exception) -> None:
    services = harness.replica(FaultAt(0, of="usage.put", before=failing(error)))
    poll(services)
    with pytest.raises(type(error)):
        services.usage.flush()
    assert written(harness) == []
    harness.clock.advance(3 * HOUR)
    services.usage.flush()
    assert written(harness) == [(POLLED, 1)]
    assert seen(services) == {POLLED: 1}


def test_what_is_counted_while_it_is_written_down_is_with_the_next_time(harness: Harness) -> None:
    services: Services
    services = harness.replica(FaultAt(0, of="usage.put", before=lambda: poll(services)))
    poll(services)
    services.usage.flush()
    assert written(harness) == [(POLLED, 1)]
    services.usage.flush()
    assert written(harness) == [(POLLED, 2)]


def test_calls_without_room_are_told_and_not_recorded(
    harness: Harness, logs: list[MutableMapping[str, Any]]
) -> None:
    usage = harness.services.usage
    for number in range(MOST + 3):
        usage.record_poll(*POOL, str(number))
    poll(harness.services, "0")
    report = usage.report(HOUR)
    assert (len(report["workerTypes"][0]["calls"]), report["notRecorded"]) == (MOST, 3)
    usage.flush()
    assert [(one["event"], one["count"]) for one in logs] == [("calls-not-recorded", 3)]
    other = harness.replica().usage.report(HOUR, *POOL)
    assert (len(other["workerTypes"][0]["calls"]), other["notRecorded"]) == (MOST, 3)
    harness.clock.advance(2 * HOUR)
    usage.flush()
    poll(harness.services)
    assert usage.report(HOUR)["notRecorded"] == 0
    assert seen(harness.services, HOUR) == {POLLED: 1}


def test_a_report_is_of_the_time_and_the_worker_type_that_are_asked_for(harness: Harness) -> None:
    usage = harness.services.usage
    usage.record_poll("another", WORKER_TYPE, "client")
    harness.clock.advance(3 * HOUR)
    usage.record_poll(PROVISIONER, "another", "client")
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
        [f"{one['provisionerId']}/{one['workerType']}" for one in usage.report(*ask)["workerTypes"]]
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


def test_a_report_goes_through_all_pages(harness: Harness) -> None:
    usage, reader = harness.services.usage, harness.replica().usage
    for number in range(2500):
        usage.record_poll(*POOL, str(number))
    usage.flush()
    assert len(reader.report(HOUR)["workerTypes"][0]["calls"]) == 2500


def test_there_is_no_report_while_storage_is_away(harness: Harness) -> None:
    usage = harness.replica(FaultAt(0, of="usage.since", before=failing(AWAY))).usage
    with pytest.raises(ServiceUnavailable):
        usage.report(HOUR)
    assert usage.report(HOUR)["workerTypes"] == []


def test_threads_that_call_at_once_are_all_counted(harness: Harness) -> None:
    usage = harness.services.usage

    def call() -> None:
        for _ in range(1000):
            usage.record_claim_work(*POOL, ALICE)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        usage.flush()
    for thread in threads:
        thread.join()
    usage.flush()
    assert written(harness) == [(WORKED, 4000)]


# In the background


def test_what_is_counted_is_written_down_while_the_process_runs(harness: Harness) -> None:
    put = Seen("usage.put")
    server = replace(harness.replica(put, resolves=False), stopping=FakeEvent(harness.clock))
    poll(server)
    with running(server):
        put.wait()
    assert written(harness) == [(POLLED, 1)]


def test_a_process_that_ends_has_written_down_what_it_counted(harness: Harness) -> None:
    server = harness.replica()
    with running(server):
        poll(server)
    assert written(harness) == [(POLLED, 1)]


@pytest.mark.parametrize(
    ("error", "line"),
    [(AWAY, "background-delayed"), (ValueError("a defect"), "background-failed")],
    ids=["away", "defect"],
)
def test_a_process_ends_though_it_cannot_write_down(
    harness: Harness, error: Exception, line: str, logs: list[MutableMapping[str, Any]]
) -> None:
    server = harness.replica(Seen("usage.put", 99, error), resolves=False)
    with running(server):
        poll(server)
    assert {one["event"] for one in logs} == {line}
