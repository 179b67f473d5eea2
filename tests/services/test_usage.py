"""Who calls what is counted in memory, written down now and then, and found by every process."""

import threading
from collections.abc import MutableMapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import AuthorizationFailed, InputError, RequestConflict, ServiceUnavailable
from legacy_queue.domain.times import format_time
from legacy_queue.domain.usage import CLAIM_TASK, CLAIM_WORK, POLL_TASK_URLS, Use
from legacy_queue.services import Services
from legacy_queue.services.claims import Presented
from legacy_queue.services.usage import MOST
from tests.services.bench import (
    ALICE,
    BOB,
    HOUR,
    MINUTE,
    NOW,
    PROVISIONER,
    WORKER_TYPE,
    At,
    Bench,
    Calls,
    HandEvent,
    failing,
)
from tests.services.test_background import Seen, running

POOL = (PROVISIONER, WORKER_TYPE)
DAY = 24 * HOUR
AWAY = ServiceUnavailable("storage is away")
POLLED = Use(*POOL, POLL_TASK_URLS, "client")
CLAIMED = Use(*POOL, CLAIM_TASK, "group/alice")
BARE = Use(*POOL, CLAIM_TASK, "group/alice", ("messageId", "receipt", "signature"))
WORKED = Use(*POOL, CLAIM_WORK, "group/alice")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def seen(services: Services, window: timedelta = DAY) -> dict[Use, int]:
    """How often each use is reported."""
    return {
        Use(
            one["provisionerId"], one["workerType"], call["method"], call["caller"], tuple(call["missing"])
        ): call["count"]
        for one in services.usage.report(window)["workerTypes"]
        for call in one["calls"]
    }


def written(bench: Bench) -> list[tuple[Use, int]]:
    return [(one.use, one.calls.count) for one in bench.storage.usage.since(NOW - DAY, None, None)]


def forget_written(bench: Bench) -> None:
    bench.storage.usage.remove_expired(NOW + 100 * DAY, "", 1000)
    assert written(bench) == []


def poll(services: Services, client_id: str = "client") -> None:
    services.polling.poll_urls(*POOL, client_id)


def test_who_polls_is_counted(bench: Bench) -> None:
    for _ in range(2):
        poll(bench.services)
    poll(bench.services, "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/bob/until/1893553445")
    grouped = Use(*POOL, POLL_TASK_URLS, "task-client/*/on/group/bob")
    assert seen(bench.services) == {POLLED: 2, grouped: 1}


def test_who_claims_is_counted_with_what_is_left_out(bench: Bench) -> None:
    bench.claimed()
    bench.create()
    message = bench.receive_one()
    bench.claim(message, BOB, presented=Presented(message.lease.message_id))
    bench.run(bench.create())
    partly = Use(*POOL, CLAIM_TASK, "group/bob", ("receipt", "signature"))
    assert seen(bench.services) == {CLAIMED: 1, BARE: 1, partly: 1}


def test_a_worker_that_calls_claim_work_is_counted(bench: Bench) -> None:
    bench.services.usage.saw_claim_work(*POOL, ALICE)
    assert seen(bench.services) == {WORKED: 1}


def test_a_claim_counts_that_the_policy_refuses() -> None:
    bench = Bench(required=["/".join(POOL)])
    with pytest.raises(InputError):
        bench.run(bench.create())
    assert seen(bench.services) == {BARE: 1}


def test_a_claim_counts_whose_signature_is_wrong_as_what_it_presents(bench: Bench) -> None:
    task_id = bench.create()
    with pytest.raises(AuthorizationFailed):
        bench.services.claims.claim(bench.task(task_id), 0, ALICE, Presented("id", "receipt", "wrong"))
    assert seen(bench.services) == {CLAIMED: 1}


def test_a_claim_counts_that_comes_too_late(bench: Bench) -> None:
    task_id = bench.claimed(BOB)
    with pytest.raises(RequestConflict):
        bench.services.claims.claim(bench.task(task_id), 0, ALICE, Presented())
    assert seen(bench.services)[BARE] == 1


def test_reclaiming_and_reporting_are_nobodys_protocol(bench: Bench) -> None:
    task_id = bench.claimed()
    bench.services.claims.reclaim(task_id, 0)
    bench.complete(task_id)
    assert seen(bench.services) == {CLAIMED: 1}


def test_no_call_waits_for_the_counting(bench: Bench) -> None:
    calls = Calls()
    services = bench.replica(calls)
    poll(services)
    bench.create()
    bench.claim(bench.receive_one(), services=services)
    assert [name for name in calls.names if name.startswith("usage.")] == []
    assert written(bench) == []


def test_what_is_written_down_is_the_count_of_the_hour(bench: Bench) -> None:
    usage = bench.services.usage
    for count in range(1, 4):
        poll(bench.services)
        usage.flush()
        assert written(bench) == [(POLLED, count)]
    bench.clock.advance(HOUR)
    poll(bench.services)
    usage.flush()
    assert written(bench) == [(POLLED, 3), (POLLED, 1)]
    assert seen(bench.services) == {POLLED: 4}


def test_only_what_has_changed_is_written_down(bench: Bench) -> None:
    usage = bench.services.usage
    poll(bench.services)
    usage.saw_claim_work(*POOL, ALICE)
    usage.flush()
    forget_written(bench)
    usage.flush()
    assert written(bench) == []
    usage.saw_claim_work(*POOL, ALICE)
    usage.flush()
    assert written(bench) == [(WORKED, 2)]


def test_a_process_finds_what_others_have_written_and_all_that_is_its_own(bench: Bench) -> None:
    first, second = bench.replica(), bench.replica()
    for services in (first, first, second):
        poll(services)
    assert seen(first) == {POLLED: 2}
    assert seen(second) == {POLLED: 3}
    poll(first)
    assert seen(second) == {POLLED: 3}
    assert [seen(services) for services in (first, second, bench.services)] == [{POLLED: 4}] * 3


def test_an_hour_that_is_over_is_found_though_the_process_has_forgotten_it(bench: Bench) -> None:
    usage = bench.services.usage
    poll(bench.services)
    bench.clock.advance(HOUR)
    usage.flush()
    poll(bench.services)
    assert seen(bench.services) == {POLLED: 2}
    bench.clock.advance(5 * MINUTE)
    usage.flush()
    assert seen(bench.services) == {POLLED: 2}
    forget_written(bench)
    poll(bench.services)
    assert seen(bench.services) == {POLLED: 2}, "the hour that is not over is still counted"


def test_an_hour_is_kept_for_a_clock_that_is_set_back(bench: Bench) -> None:
    usage = bench.services.usage
    poll(bench.services)
    bench.clock.advance(HOUR - 4 * MINUTE)  # the hour has just begun
    usage.flush()
    bench.clock.advance(-4 * MINUTE)
    poll(bench.services)
    usage.flush()
    assert seen(bench.services) == {POLLED: 2}


@pytest.mark.parametrize("error", [AWAY, ValueError("a defect")], ids=["away", "defect"])
def test_what_could_not_be_written_down_is_with_the_next_time(bench: Bench, error: Exception) -> None:
    services = bench.replica(At(0, of="usage.put", before=failing(error)))
    poll(services)
    with pytest.raises(type(error)):
        services.usage.flush()
    assert written(bench) == []
    bench.clock.advance(3 * HOUR)
    services.usage.flush()
    assert written(bench) == [(POLLED, 1)]
    assert seen(services) == {POLLED: 1}


def test_what_is_counted_while_it_is_written_down_is_with_the_next_time(bench: Bench) -> None:
    services: Services
    services = bench.replica(At(0, of="usage.put", before=lambda: poll(services)))
    poll(services)
    services.usage.flush()
    assert written(bench) == [(POLLED, 1)]
    services.usage.flush()
    assert written(bench) == [(POLLED, 2)]


def test_calls_without_room_are_told_and_not_recorded(
    bench: Bench, logs: list[MutableMapping[str, Any]]
) -> None:
    usage = bench.services.usage
    for number in range(MOST + 3):
        usage.saw_poll(*POOL, str(number))
    poll(bench.services, "0")
    report = usage.report(HOUR)
    assert (len(report["workerTypes"][0]["calls"]), report["notRecorded"]) == (MOST, 3)
    usage.flush()
    assert [(one["event"], one["count"]) for one in logs] == [("calls-not-recorded", 3)]
    other = bench.replica().usage.report(HOUR, *POOL)
    assert (len(other["workerTypes"][0]["calls"]), other["notRecorded"]) == (MOST, 3)
    bench.clock.advance(2 * HOUR)
    usage.flush()
    poll(bench.services)
    assert usage.report(HOUR)["notRecorded"] == 0
    assert seen(bench.services, HOUR) == {POLLED: 1}


def test_a_report_is_of_the_time_and_the_worker_type_that_are_asked_for(bench: Bench) -> None:
    usage = bench.services.usage
    usage.saw_poll("another", WORKER_TYPE, "client")
    bench.clock.advance(3 * HOUR)
    usage.saw_poll(PROVISIONER, "another", "client")
    usage.flush()
    bench.clock.advance(3 * HOUR)
    poll(bench.services)
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
    now = bench.clock.now()
    assert (report["since"], report["until"]) == (format_time(now - 4 * HOUR), format_time(now))


def test_a_report_goes_through_all_pages(bench: Bench) -> None:
    usage, reader = bench.services.usage, bench.replica().usage
    for number in range(2500):
        usage.saw_poll(*POOL, str(number))
    usage.flush()
    assert len(reader.report(HOUR)["workerTypes"][0]["calls"]) == 2500


def test_there_is_no_report_while_storage_is_away(bench: Bench) -> None:
    usage = bench.replica(At(0, of="usage.since", before=failing(AWAY))).usage
    with pytest.raises(ServiceUnavailable):
        usage.report(HOUR)
    assert usage.report(HOUR)["workerTypes"] == []


def test_threads_that_call_at_once_are_all_counted(bench: Bench) -> None:
    usage = bench.services.usage

    def call() -> None:
        for _ in range(1000):
            usage.saw_claim_work(*POOL, ALICE)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        usage.flush()
    for thread in threads:
        thread.join()
    usage.flush()
    assert written(bench) == [(WORKED, 4000)]


# In the background


def test_what_is_counted_is_written_down_while_the_process_runs(bench: Bench) -> None:
    put = Seen("usage.put")
    server = replace(bench.server(put, resolves=False), stopping=HandEvent(bench.clock))
    poll(server.services)
    with running(server):
        put.wait()
    assert written(bench) == [(POLLED, 1)]


def test_a_process_that_ends_has_written_down_what_it_counted(bench: Bench) -> None:
    server = bench.server()
    with running(server):
        poll(server.services)
    assert written(bench) == [(POLLED, 1)]


@pytest.mark.parametrize(
    ("error", "line"),
    [(AWAY, "background-waits"), (ValueError("a defect"), "background-failed")],
    ids=["away", "defect"],
)
def test_a_process_ends_though_it_cannot_write_down(
    bench: Bench, error: Exception, line: str, logs: list[MutableMapping[str, Any]]
) -> None:
    server = bench.server(Seen("usage.put", 99, error), resolves=False)
    with running(server):
        poll(server.services)
    assert {one["event"] for one in logs} == {line}
