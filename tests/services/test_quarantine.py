"""Workers that are to get no work: what they are told, and what it costs to know."""

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
from legacy_queue.domain.workers import worker_path
from legacy_queue.services.claims import Presented
from tests.services.bench import (
    ALICE,
    BOB,
    CLAIM_TIMEOUT,
    HOUR,
    MINUTE,
    NOW,
    PROVISIONER,
    SECOND,
    WORKER_TYPE,
    At,
    Bench,
    Calls,
    failing,
)

POOL = PROVISIONER, WORKER_TYPE
PATH = worker_path(*POOL, ALICE)
DAY = 24 * HOUR
AWAY = ServiceUnavailable("storage is away")


@pytest.fixture
def bench() -> Bench:
    """ALICE and BOB are known."""
    bench = Bench()
    for worker in (ALICE, BOB):
        bench.services.workers.seen(*POOL, worker)
    bench.services.workers.flush()
    return bench


def is_quarantined(bench: Bench, services: Any = None) -> bool:
    return bool((services or bench.services).workers.is_quarantined(*POOL, ALICE))


def test_a_worker_is_quarantined_until_its_time_is_over(bench: Bench) -> None:
    assert not is_quarantined(bench)
    answer = bench.services.workers.quarantine(PATH, NOW + MINUTE)
    assert answer["quarantineUntil"] == format_time(NOW + MINUTE)
    assert bench.services.workers.quarantined_until(*POOL, ALICE) == NOW + MINUTE
    assert not bench.services.workers.is_quarantined(*POOL, BOB)
    bench.clock.advance(MINUTE - SECOND)
    assert is_quarantined(bench)
    bench.clock.advance(SECOND)
    assert not is_quarantined(bench)
    assert "quarantineUntil" not in bench.services.workers.describe(PATH)


def test_the_same_worker_id_of_another_group_or_worker_type_is_another_worker(bench: Bench) -> None:
    bench.services.workers.quarantine(PATH, NOW + DAY)
    assert not bench.services.workers.is_quarantined(PROVISIONER, "another", ALICE)
    assert not bench.services.workers.is_quarantined("another", WORKER_TYPE, ALICE)


@pytest.mark.parametrize("until", [NOW, NOW - DAY, NOW.replace(year=1)])
def test_a_quarantine_is_lifted_by_a_time_that_is_past(bench: Bench, until: Any) -> None:
    bench.services.workers.quarantine(PATH, NOW + DAY)
    assert "quarantineUntil" not in bench.services.workers.quarantine(PATH, until)
    assert not is_quarantined(bench)
    assert not is_quarantined(bench, bench.replica())
    assert bench.services.workers.describe(PATH)["expires"] == format_time(NOW + DAY)


def test_a_worker_that_nobody_knows_is_quarantined_before_it_comes(bench: Bench) -> None:
    """Another process may have seen it this moment."""
    new = (*POOL, "group", "new")
    answer = bench.services.workers.quarantine(new, NOW + DAY)
    assert answer["quarantineUntil"] == format_time(NOW + DAY)
    for services in (bench.services, bench.replica()):
        assert services.workers.describe(new) == answer
        assert services.workers.is_quarantined(*POOL, Worker("group", "new"))
        assert services.workers.describe(new[:2])["stability"] == "experimental"
        assert services.workers.describe(new[:1])["stability"] == "experimental"


def test_a_worker_that_was_seen_this_moment_is_quarantined(bench: Bench) -> None:
    """Nothing of it is written yet."""
    path = (*POOL, "group", "new")
    bench.services.workers.claimed(*POOL, worker := type(ALICE)("group", "new"), [("task", 0)])
    bench.services.workers.quarantine(path, NOW + DAY)
    assert bench.services.workers.is_quarantined(*POOL, worker)
    bench.services.workers.flush()
    described = bench.replica().workers.describe(path)
    assert described["quarantineUntil"] == format_time(NOW + DAY)
    assert described["recentTasks"] == [{"taskId": "task", "runId": 0}]


def test_a_quarantined_worker_is_known_as_long_as_its_quarantine(bench: Bench) -> None:
    bench.services.workers.quarantine(PATH, NOW + 10 * DAY)
    bench.sweep(10 * DAY - MINUTE)
    assert bench.services.workers.describe(PATH)["quarantineUntil"] == format_time(NOW + 10 * DAY)
    bench.sweep(2 * HOUR)
    with pytest.raises(ResourceNotFound):
        bench.services.workers.describe(PATH)
    assert bench.storage.workers.quarantined() == {}


def test_a_claim_of_a_quarantined_worker_conflicts_and_says_until_when(bench: Bench) -> None:
    task_id = bench.create()
    bench.services.workers.quarantine(PATH, NOW + DAY)
    message = bench.receive_one()
    with pytest.raises(RequestConflict, match=r"group/alice.*is quarantined until 2030-01-03T03:04:05.678Z"):
        bench.claim(message)
    assert bench.states(task_id) == ["pending"]


@pytest.mark.parametrize("is_draft", [True, False], ids=["draft", "deployed"])
def test_the_run_is_offered_again_after_10_seconds_and_another_worker_claims_it(
    bench: Bench, is_draft: bool
) -> None:
    task_id = bench.create()
    bench.services.workers.quarantine(PATH, NOW + DAY)
    message = bench.receive_one()
    with pytest.raises(RequestConflict):
        bench.claim(message, presented=message.presented if is_draft else Presented())
    bench.delete_if_leased(message)
    assert bench.runs_to_come() == [(0, 10 * SECOND)]
    bench.clock.advance(10 * SECOND)
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["running by bob"]


def test_a_quarantined_worker_brings_to_its_end_what_it_has_claimed(bench: Bench) -> None:
    task_id = bench.claimed(ALICE)
    bench.services.workers.quarantine(PATH, NOW + DAY)
    bench.clock.advance(MINUTE)
    reclaimed = bench.services.claims.reclaim(task_id, 0)
    assert reclaimed["takenUntil"] == format_time(NOW + MINUTE + CLAIM_TIMEOUT)
    assert bench.complete(task_id).state == "completed"


def test_a_wrong_signature_is_refused_before_anything_else(bench: Bench) -> None:
    """Nothing is put for whoever made it up."""
    bench.create()
    bench.services.workers.quarantine(PATH, NOW + DAY)
    message = bench.receive_one()
    with pytest.raises(AuthorizationFailed):
        bench.claim(message, presented=Presented(message.lease.message_id, "receipt", "wrong" * 8))
    assert len(bench.messages()) == 1


def test_another_process_refuses_within_5_seconds(bench: Bench) -> None:
    other = bench.replica()
    assert not is_quarantined(bench, other)
    bench.services.workers.quarantine(PATH, NOW + DAY)
    bench.clock.advance(5 * SECOND)
    assert is_quarantined(bench, other)
    other.workers.quarantine(PATH, NOW)
    assert not is_quarantined(bench, other)
    bench.clock.advance(5 * SECOND)
    assert not is_quarantined(bench)


def test_storage_is_asked_once_in_5_seconds_of_claims_and_never_without(bench: Bench) -> None:
    calls = Calls()
    services = bench.replica(calls)
    assert calls.names == []
    for _ in range(50):
        services.workers.is_quarantined(*POOL, ALICE)
        bench.clock.advance(SECOND / 10)
    assert calls.names == ["worker.quarantined"]
    services.workers.is_quarantined(*POOL, BOB)
    bench.clock.advance(DAY)
    assert calls.names == ["worker.quarantined"] * 2


def test_a_clock_that_is_set_back_does_not_make_what_is_known_good_for_longer(bench: Bench) -> None:
    other = bench.replica()
    is_quarantined(bench, other)
    bench.services.workers.quarantine(PATH, NOW + DAY)
    bench.clock.advance(-HOUR)
    assert is_quarantined(bench, other)


def test_a_worker_of_the_draft_in_quarantine_multiplies_its_message(bench: Bench) -> None:
    """It never deletes a message, and polls it again and again."""
    bench.services.workers.quarantine(PATH, NOW + DAY)
    task_id = bench.create()
    for _ in range(10):
        for message in bench.receive():
            with pytest.raises(RequestConflict):
                bench.claim(message)
        assert bench.runs_to_come() == [(0, 10 * SECOND)]
        bench.clock.advance(10 * SECOND)
    bench.claim(bench.receive_one(), BOB)
    assert bench.states(task_id) == ["running by bob"]
    assert [run_id for run_id, _ in bench.runs_to_come()] == [1]


def test_a_hundred_that_want_to_know_at_first_wait_for_one_answer(bench: Bench) -> None:
    bench.services.workers.quarantine(PATH, NOW + DAY)
    calls, go_on, asked = Calls(), threading.Event(), threading.Event()

    def slowly(name: str, call: Callable[[], Any]) -> Any:
        calls(name, lambda: None)
        asked.set()
        assert go_on.wait(30)
        return call()

    services = bench.replica(slowly)
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(is_quarantined(bench, services))) for _ in range(100)
    ]
    for thread in threads:
        thread.start()
    assert asked.wait(30)
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [True] * 100
    assert calls.names == ["worker.quarantined"]


def test_each_of_many_waits_anew_for_a_storage_that_is_away(bench: Bench) -> None:
    calls, go_on, asked = Calls(), threading.Event(), threading.Event()

    def in_vain(name: str, call: Callable[[], Any]) -> Any:  # noqa: ARG001
        calls(name, lambda: None)
        asked.set()
        assert go_on.wait(30)
        raise AWAY

    services = bench.replica(in_vain)
    refused: list[bool] = []

    def ask() -> None:
        with pytest.raises(ServiceUnavailable):
            is_quarantined(bench, services)
        refused.append(True)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    threads[0].start()
    assert asked.wait(30)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert refused == [True] * 20
    assert len(calls.names) < 20


def test_nobody_waits_for_storage_who_has_an_answer_that_is_old(bench: Bench) -> None:
    go_on, asked = threading.Event(), threading.Event()
    go_on.set()

    def slowly(_name: str, call: Callable[[], Any]) -> Any:
        asked.set()
        assert go_on.wait(30)
        return call()

    services = bench.replica(slowly)
    assert not is_quarantined(bench, services)
    bench.services.workers.quarantine(PATH, NOW + DAY)
    bench.clock.advance(5 * SECOND)
    go_on.clear(), asked.clear()
    thread = threading.Thread(target=lambda: is_quarantined(bench, services))
    thread.start()
    assert asked.wait(30)
    assert not is_quarantined(bench, services)
    go_on.set()
    thread.join()
    assert is_quarantined(bench, services)


def test_a_claim_is_not_decided_before_it_is_known_who_is_quarantined(bench: Bench) -> None:
    task_id = bench.create()
    calls = Calls()
    away = At(0, of="worker.quarantined", before=failing(AWAY))
    services = bench.replica(lambda name, call: calls(name, lambda: away(name, call)))
    message = bench.receive_one()
    with pytest.raises(ServiceUnavailable, match="away"):
        bench.claim(message, services=services)
    assert bench.states(task_id) == ["pending"]
    bench.claim(message, services=services)
    assert bench.states(task_id) == ["running by alice"]


def test_what_was_known_goes_on_while_storage_is_away(
    bench: Bench, logs: list[MutableMapping[str, Any]]
) -> None:
    bench.services.workers.quarantine(PATH, NOW + DAY)
    calls = Calls()
    away = At(1, of="worker.quarantined", before=failing(AWAY))
    services = bench.replica(lambda name, call: calls(name, lambda: away(name, call)))
    assert is_quarantined(bench, services)
    bench.storage.workers.quarantine(PATH, NOW)
    bench.clock.advance(5 * SECOND)
    for _ in range(3):
        assert is_quarantined(bench, services)
    assert len(calls.names) == 2
    assert [one["event"] for one in logs] == ["quarantines-not-read"]
    bench.clock.advance(5 * SECOND)
    assert not is_quarantined(bench, services)


@pytest.mark.parametrize("call", range(5))
def test_a_quarantine_that_was_cut_is_repeated(bench: Bench, call: int) -> None:
    services = bench.replica(At(call, before=failing(AWAY)))
    with pytest.raises(ServiceUnavailable):
        services.workers.quarantine(PATH, NOW + DAY)
    assert services.workers.quarantine(PATH, NOW + DAY)["quarantineUntil"] == format_time(NOW + DAY)
    assert is_quarantined(bench, bench.replica())
    assert bench.replica().workers.describe(PATH)["quarantineUntil"] == format_time(NOW + DAY)


def test_a_quarantine_is_not_lost_when_the_worker_is_active_meanwhile(bench: Bench) -> None:
    def another_writes() -> None:
        bench.services.workers.claimed(*POOL, ALICE, [("task", 0)])
        bench.services.workers.flush()

    services = bench.replica(At(0, of="worker.replace", before=another_writes))
    answer = services.workers.quarantine(PATH, NOW + DAY)
    assert answer["recentTasks"] == [{"taskId": "task", "runId": 0}]
    assert answer["quarantineUntil"] == format_time(NOW + timedelta(days=1))
