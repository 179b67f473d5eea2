"""Quarantined workers: what their calls answer, and what a quarantine costs."""

import threading
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.errors import (
    AuthorizationFailed,
    RequestConflict,
    ResourceNotFound,
    ServiceUnavailable,
)
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import worker_path
from legacy_queue.services.claims import ClaimProof
from tests.services.harness import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    PROVISIONER,
    SECOND,
    WORKER_TYPE,
    CallRecorder,
    FaultAt,
    Harness,
    failing,
)

POOL = PROVISIONER, WORKER_TYPE
PATH = worker_path(*POOL, ALICE)
DAY = 24 * HOUR
AWAY = ServiceUnavailable("storage is away")


@pytest.fixture
def harness() -> Harness:
    """ALICE and BOB have records."""
    harness = Harness()
    for worker in (ALICE, BOB):
        harness.services.workers.record_activity(*POOL, worker)
    harness.services.workers.flush()
    return harness


def is_quarantined(harness: Harness, services: Any = None) -> bool:
    return bool((services or harness.services).workers.quarantined_until(*POOL, ALICE))


def test_a_worker_is_quarantined_until_its_time_is_over(harness: Harness) -> None:
    assert not is_quarantined(harness)
    answer = harness.services.workers.quarantine(PATH, NOW + MINUTE)
    assert answer["quarantineUntil"] == format_time(NOW + MINUTE)
    assert harness.services.workers.quarantined_until(*POOL, ALICE) == NOW + MINUTE
    assert not harness.services.workers.quarantined_until(*POOL, BOB)
    harness.clock.advance(MINUTE - SECOND)
    assert is_quarantined(harness)
    harness.clock.advance(SECOND)
    assert not is_quarantined(harness)
    assert "quarantineUntil" not in harness.services.workers.describe(PATH)


def test_the_same_worker_id_of_another_group_or_worker_type_is_another_worker(harness: Harness) -> None:
    harness.services.workers.quarantine(PATH, NOW + DAY)
    assert not harness.services.workers.quarantined_until(PROVISIONER, "another", ALICE)
    assert not harness.services.workers.quarantined_until("another", WORKER_TYPE, ALICE)


@pytest.mark.parametrize("until", [NOW, NOW - DAY, NOW.replace(year=1)])
def test_a_past_time_ends_a_quarantine(harness: Harness, until: Any) -> None:
    harness.services.workers.quarantine(PATH, NOW + DAY)
    assert "quarantineUntil" not in harness.services.workers.quarantine(PATH, until)
    assert not is_quarantined(harness)
    assert not is_quarantined(harness, harness.replica())
    assert harness.services.workers.describe(PATH)["expires"] == format_time(NOW + DAY)


def test_an_unknown_worker_cannot_be_quarantined(harness: Harness) -> None:
    for path in (("new", "new", "group", "alice"), (*POOL, "group", "new")):
        with pytest.raises(ResourceNotFound, match=f"there is no worker {'/'.join(path)}"):
            harness.services.workers.quarantine(path, NOW + DAY)
        with pytest.raises(ResourceNotFound):
            harness.services.workers.describe(path)
    with pytest.raises(ResourceNotFound):
        harness.services.workers.describe(("new",))
    assert harness.storage.workers.quarantined() == {}


def test_a_worker_whose_record_is_not_written_yet_can_be_quarantined(harness: Harness) -> None:
    """Its record is not written yet."""
    path = (*POOL, "group", "new")
    harness.services.workers.record_claims(*POOL, worker := Worker("group", "new"), [("task", 0)])
    harness.services.workers.quarantine(path, NOW + DAY)
    assert harness.services.workers.quarantined_until(*POOL, worker)
    harness.services.workers.flush()
    described = harness.replica().workers.describe(path)
    assert described["quarantineUntil"] == format_time(NOW + DAY)
    assert described["recentTasks"] == [{"taskId": "task", "runId": 0}]


def test_the_record_of_a_quarantined_worker_lasts_as_long_as_its_quarantine(harness: Harness) -> None:
    harness.services.workers.quarantine(PATH, NOW + 10 * DAY)
    harness.sweep(10 * DAY - MINUTE)
    assert harness.services.workers.describe(PATH)["quarantineUntil"] == format_time(NOW + 10 * DAY)
    harness.sweep(2 * HOUR)
    with pytest.raises(ResourceNotFound):
        harness.services.workers.describe(PATH)
    assert harness.storage.workers.quarantined() == {}


def test_a_claim_of_a_quarantined_worker_is_a_conflict_that_names_its_end(harness: Harness) -> None:
    task_id = harness.create()
    harness.services.workers.quarantine(PATH, NOW + DAY)
    message = harness.receive_one()
    with pytest.raises(RequestConflict, match=r"group/alice.*is quarantined until 2030-01-03T03:04:05.678Z"):
        harness.claim(message)
    assert harness.states(task_id) == ["pending"]


@pytest.mark.parametrize("is_draft", [True, False], ids=["draft", "deployed"])
def test_the_run_is_offered_again_after_10_seconds_and_another_worker_claims_it(
    harness: Harness, is_draft: bool
) -> None:
    task_id = harness.create()
    harness.services.workers.quarantine(PATH, NOW + DAY)
    message = harness.receive_one()
    with pytest.raises(RequestConflict):
        harness.claim(message, proof=message.proof if is_draft else ClaimProof())
    harness.delete_if_leased(message)
    assert harness.offered_runs() == [(0, 10 * SECOND)]
    harness.clock.advance(10 * SECOND)
    harness.claim(harness.receive_one(), BOB)
    assert harness.states(task_id) == ["running by bob"]


def test_a_quarantined_worker_can_complete_the_run_that_it_claimed(harness: Harness) -> None:
    task_id = harness.claimed(ALICE)
    harness.services.workers.quarantine(PATH, NOW + DAY)
    harness.clock.advance(MINUTE)
    reclaimed = harness.services.claims.reclaim(task_id, 0)
    assert reclaimed["takenUntil"] == format_time(NOW + MINUTE + CLAIM_TIMEOUT)
    assert harness.complete(task_id).state == "completed"


def test_a_wrong_signature_of_a_quarantined_worker_offers_nothing(harness: Harness) -> None:
    """A forged claim puts no message."""
    harness.create()
    harness.services.workers.quarantine(PATH, NOW + DAY)
    message = harness.receive_one()
    with pytest.raises(AuthorizationFailed):
        harness.claim(message, proof=ClaimProof(message.lease.message_id, "receipt", "wrong" * 8))
    assert len(harness.messages()) == 1


def test_another_process_knows_a_quarantine_within_5_seconds(harness: Harness) -> None:
    other = harness.replica()
    assert not is_quarantined(harness, other)
    harness.services.workers.quarantine(PATH, NOW + DAY)
    harness.clock.advance(5 * SECOND)
    assert is_quarantined(harness, other)
    other.workers.quarantine(PATH, NOW)
    assert not is_quarantined(harness, other)
    harness.clock.advance(5 * SECOND)
    assert not is_quarantined(harness)


def test_quarantines_are_read_once_in_5_seconds_and_only_for_a_call(harness: Harness) -> None:
    calls = CallRecorder()
    services = harness.replica(calls)
    assert calls.names == []
    for _ in range(50):
        services.workers.quarantined_until(*POOL, ALICE)
        harness.clock.advance(SECOND / 10)
    assert calls.names == ["worker.quarantined"]
    services.workers.quarantined_until(*POOL, BOB)
    harness.clock.advance(DAY)
    assert calls.names == ["worker.quarantined"] * 2


def test_quarantines_are_read_again_after_the_clock_was_set_back(harness: Harness) -> None:
    other = harness.replica()
    is_quarantined(harness, other)
    harness.services.workers.quarantine(PATH, NOW + DAY)
    harness.clock.advance(-HOUR)
    assert is_quarantined(harness, other)


def test_refused_claims_of_a_quarantined_draft_worker_add_no_message(harness: Harness) -> None:
    """It never deletes its message, and polls it again and again."""
    harness.services.workers.quarantine(PATH, NOW + DAY)
    task_id = harness.create()
    for _ in range(10):
        for message in harness.receive():
            with pytest.raises(RequestConflict):
                harness.claim(message)
        assert harness.offered_runs() == [(0, 10 * SECOND)]
        harness.clock.advance(10 * SECOND)
    harness.claim(harness.receive_one(), BOB)
    assert harness.states(task_id) == ["running by bob"]
    assert [run_id for run_id, _ in harness.offered_runs()] == [1]


def test_a_hundred_concurrent_first_calls_share_one_read(harness: Harness) -> None:
    harness.services.workers.quarantine(PATH, NOW + DAY)
    calls, go_on, reading = CallRecorder(), threading.Event(), threading.Event()

    def slowly(name: str, call: Callable[[], Any]) -> Any:
        calls(name, lambda: None)
        reading.set()
        assert go_on.wait(30)
        return call()

    services = harness.replica(slowly)
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(is_quarantined(harness, services))) for _ in range(100)
    ]
    for thread in threads:
        thread.start()
    assert reading.wait(30)
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [True] * 100
    assert calls.names == ["worker.quarantined"]


def test_concurrent_calls_share_a_failed_first_read(harness: Harness) -> None:
    calls, go_on, reading = CallRecorder(), threading.Event(), threading.Event()

    def fail(name: str, call: Callable[[], Any]) -> Any:  # noqa: ARG001
        calls(name, lambda: None)
        reading.set()
        assert go_on.wait(30)
        raise AWAY

    services = harness.replica(fail)
    refused: list[bool] = []

    def ask() -> None:
        with pytest.raises(ServiceUnavailable):
            is_quarantined(harness, services)
        refused.append(True)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    threads[0].start()
    assert reading.wait(30)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert refused == [True] * 20
    assert len(calls.names) < 20


def test_a_call_does_not_wait_while_another_reads_again(harness: Harness) -> None:
    go_on, reading = threading.Event(), threading.Event()
    go_on.set()

    def slowly(_name: str, call: Callable[[], Any]) -> Any:
        reading.set()
        assert go_on.wait(30)
        return call()

    services = harness.replica(slowly)
    assert not is_quarantined(harness, services)
    harness.services.workers.quarantine(PATH, NOW + DAY)
    harness.clock.advance(5 * SECOND)
    go_on.clear()
    reading.clear()
    thread = threading.Thread(target=lambda: is_quarantined(harness, services))
    thread.start()
    assert reading.wait(30)
    assert not is_quarantined(harness, services)
    go_on.set()
    thread.join()
    assert is_quarantined(harness, services)


def test_a_claim_fails_until_the_quarantines_have_been_read_once(harness: Harness) -> None:
    task_id = harness.create()
    calls = CallRecorder()
    away = FaultAt(0, of="worker.quarantined", before=failing(AWAY))
    services = harness.replica(lambda name, call: calls(name, lambda: away(name, call)))
    message = harness.receive_one()
    with pytest.raises(ServiceUnavailable, match="away"):
        harness.claim(message, services=services)
    assert harness.states(task_id) == ["pending"]
    harness.claim(message, services=services)
    assert harness.states(task_id) == ["running by alice"]


def test_quarantines_that_were_read_are_used_while_storage_is_away(
    harness: Harness, logs: list[MutableMapping[str, Any]]
) -> None:
    harness.services.workers.quarantine(PATH, NOW + DAY)
    calls = CallRecorder()
    away = FaultAt(1, of="worker.quarantined", before=failing(AWAY))
    services = harness.replica(lambda name, call: calls(name, lambda: away(name, call)))
    assert is_quarantined(harness, services)
    harness.storage.workers.quarantine(PATH, NOW)
    harness.clock.advance(5 * SECOND)
    for _ in range(3):
        assert is_quarantined(harness, services)
    assert len(calls.names) == 2
    assert [line["event"] for line in logs] == ["quarantines-not-read"]
    harness.clock.advance(5 * SECOND)
    assert not is_quarantined(harness, services)


@pytest.mark.parametrize("call", range(5))
def test_a_repeated_quarantine_completes_a_failed_one(harness: Harness, call: int) -> None:
    services = harness.replica(FaultAt(call, before=failing(AWAY)))
    with pytest.raises(ServiceUnavailable):
        services.workers.quarantine(PATH, NOW + DAY)
    assert services.workers.quarantine(PATH, NOW + DAY)["quarantineUntil"] == format_time(NOW + DAY)
    assert is_quarantined(harness, harness.replica())
    assert harness.replica().workers.describe(PATH)["quarantineUntil"] == format_time(NOW + DAY)


def test_a_quarantine_is_kept_when_the_worker_is_active_concurrently(harness: Harness) -> None:
    def another_writes() -> None:
        harness.services.workers.record_claims(*POOL, ALICE, [("task", 0)])
        harness.services.workers.flush()

    services = harness.replica(FaultAt(0, of="worker.replace", before=another_writes))
    answer = services.workers.quarantine(PATH, NOW + DAY)
    assert answer["recentTasks"] == [{"taskId": "task", "runId": 0}]
    assert answer["quarantineUntil"] == format_time(NOW + timedelta(days=1))
