"""Provisioners, worker types and workers: declared, active, listed; and what a record costs."""

from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from legacy_queue.domain.errors import InputError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import ACTIVE_EVERY, Path, WorkerRecord, worker_path
from legacy_queue.ports import Changed
from legacy_queue.services.claims import ClaimProof
from legacy_queue.services.workers import MAX_NEW, Workers
from legacy_queue.stores import WorkerStore
from tests.services.harness import (
    ALICE,
    BOB,
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
from tests.services.ports import intercept_port

POOL = PROVISIONER, WORKER_TYPE
ALICES, BOBS = (worker_path(*POOL, worker) for worker in (ALICE, BOB))
DAY = 24 * HOUR
AWAY = ServiceUnavailable("storage is away")
WRITES = ("worker.insert", "worker.replace")


def action(context: str) -> dict[str, str]:
    url = "https://example.com/<provisionerId>"
    words = {"name": "n", "title": "t", "url": url, "method": "POST", "description": "d"}
    return {**words, "context": context}


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def workers(harness: Harness) -> Workers:
    return harness.services.workers


def tasks(answer: Any) -> list[str]:
    return [task["taskId"] for task in answer["recentTasks"]]


def listed(workers: Workers, parent: Path = POOL, limit: int = 1000, **more: Any) -> list[list[str]]:
    """The last parts of their paths, page by page."""
    pages: list[list[str]] = []
    after: Path = ()
    while True:
        page = workers.list(parent, after, limit, lambda record: record.path[-1].encode(), **more)
        pages.append([name.decode() for name in page.items])
        if page.after is None:
            return pages
        after = page.after


def repr_of(record: WorkerRecord) -> bytes:
    return repr(record).encode()


def worker_records(workers: Workers) -> list[WorkerRecord]:
    """The workers that are listed."""
    records: list[WorkerRecord] = []

    def render(record: WorkerRecord) -> bytes:
        records.append(record)
        return b""

    workers.list(POOL, (), 9, render)
    return records


# --- active


def test_a_claim_creates_the_worker_its_type_and_its_provisioner(harness: Harness, workers: Workers) -> None:
    task_id = harness.claimed()
    for services in (harness.services, harness.replica()):
        worker = services.workers.describe(ALICES)
        assert worker["recentTasks"] == [{"taskId": task_id, "runId": 0}]
        assert worker["firstClaim"] == worker["lastDateActive"] == format_time(NOW)
        assert worker["expires"] == format_time(NOW + DAY)
        for path in (POOL, POOL[:1]):
            described = services.workers.describe(path)
            assert described["lastDateActive"] == format_time(NOW)
            assert described["expires"] == format_time(NOW + 5 * DAY)
        workers.flush()


def test_the_recent_task_has_the_run_that_was_claimed(harness: Harness, workers: Workers) -> None:
    """A message for run 1 leads to run 0 after a crash between the two steps of a claim."""
    task_id = harness.create()
    harness.services.claims.claim(harness.task(task_id), 1, BOB, ClaimProof())
    assert harness.states(task_id) == ["running by bob"]
    assert workers.describe(BOBS)["recentTasks"] == [{"taskId": task_id, "runId": 0}]


def test_a_poll_creates_the_worker_type_and_no_worker(harness: Harness, workers: Workers) -> None:
    harness.services.polling.poll_urls(*POOL, "client")
    assert workers.describe(POOL)["lastDateActive"] == format_time(NOW)
    assert listed(workers) == [[]]


def test_a_reclaim_keeps_the_worker_active(harness: Harness, workers: Workers) -> None:
    task_id = harness.claimed()
    workers.flush()
    harness.clock.advance(MINUTE)
    for _ in range(10):
        harness.services.claims.reclaim(task_id, 0)
        harness.clock.advance(15 * MINUTE)
        workers.flush()
    assert workers.describe(ALICES)["lastDateActive"] > format_time(NOW + 2 * HOUR - MINUTE)
    assert len(tasks(workers.describe(ALICES))) == 1


def test_a_refused_claim_creates_no_worker(harness: Harness, workers: Workers) -> None:
    task_id = harness.claimed()
    with pytest.raises(RequestConflict):
        harness.services.claims.claim(harness.task(task_id), 0, BOB, ClaimProof())
    with pytest.raises(ResourceNotFound):
        workers.describe(BOBS)


def test_a_worker_has_its_last_20_tasks_the_newest_last(harness: Harness, workers: Workers) -> None:
    other = harness.replica()
    for number in range(30):
        (harness.services, other)[number // 10 % 2].workers.record_claims(*POOL, ALICE, [(f"t{number}", 0)])
        if number % 10 == 9:
            (harness.services, other)[number // 10 % 2].workers.flush()
    expected = [f"t{number}" for number in range(10, 30)]
    assert tasks(workers.describe(ALICES)) == expected
    assert tasks(other.workers.describe(ALICES)) == expected


def test_a_repeated_claim_is_one_recent_task(harness: Harness, workers: Workers) -> None:
    harness.create()
    message = harness.receive_one()
    for _ in range(3):
        harness.claim(message)
        workers.flush()
    assert tasks(workers.describe(ALICES)) == [message.task_id]


# --- what it costs


def test_a_claim_writes_no_record_and_a_flush_one_row_for_each(harness: Harness) -> None:
    calls = CallRecorder()
    workers = harness.replica(calls).workers
    for worker in (ALICE, BOB):
        for number in range(50):
            workers.record_claims(*POOL, worker, [(f"t{number}", 0)])
            workers.record_activity(*POOL, worker)
    assert calls.names == []
    workers.flush()
    assert calls.names == ["worker.load", "worker.insert"] * 4
    calls.names.clear()
    workers.flush()
    assert calls.names == []
    workers.record_claims(*POOL, ALICE, [("another", 0)])
    workers.flush()
    assert calls.names == ["worker.replace"]


def test_another_process_sees_a_new_worker_before_the_flush(harness: Harness, workers: Workers) -> None:
    task_id = harness.claimed()
    workers.flush_new()
    other = harness.replica().workers
    assert tasks(other.describe(ALICES)) == [task_id]
    assert other.describe(POOL)["workerType"] == WORKER_TYPE


def test_a_new_worker_is_written_at_once_and_later_activity_by_the_flush(harness: Harness) -> None:
    calls = CallRecorder()
    workers = harness.replica(calls).workers
    workers.record_claims(*POOL, ALICE, [("first", 0)])
    workers.flush_new()
    assert calls.names == ["worker.load", "worker.insert"] * 3
    workers.record_claims(*POOL, ALICE, [("second", 0)])
    workers.flush_new()
    assert len(calls.names) == 6
    workers.flush()
    assert calls.names[6:] == ["worker.replace"]


def test_32_new_records_are_written_at_a_time(harness: Harness) -> None:
    calls = CallRecorder()
    workers = harness.replica(calls).workers
    for number in range(1000):
        workers.record_activity(*POOL, Worker("group", f"w{number}"))
    for times in range(1, 4):
        workers.flush_new()
        assert calls.names.count("worker.insert") == times * MAX_NEW
    workers.flush()
    assert calls.names.count("worker.insert") == 1002


def test_one_of_several_concurrent_lists_writes_a_new_worker(harness: Harness) -> None:
    process: Workers
    calls = CallRecorder()
    list_again = FaultAt(0, of="worker.load", before=lambda: process.list(POOL, (), 9, repr_of))
    process = harness.replica(lambda name, call: list_again(name, lambda: calls(name, call))).workers
    process.record_activity(*POOL, ALICE)
    assert len(process.list(POOL, (), 9, repr_of).items) == 1
    assert calls.names.count("worker.load") == calls.names.count("worker.insert") == 3


def test_a_new_worker_is_written_when_storage_is_back(harness: Harness) -> None:
    workers = harness.replica(FaultAt(2, before=failing(AWAY))).workers
    workers.record_activity(*POOL, ALICE)
    workers.flush_new()
    with pytest.raises(ResourceNotFound):
        harness.services.workers.describe(ALICES)
    workers.flush_new()
    assert harness.services.workers.describe(ALICES)["recentTasks"] == []


def test_an_idle_worker_is_written_every_half_hour(harness: Harness) -> None:
    calls = CallRecorder()
    workers = harness.replica(calls).workers
    for _ in range(6 * 60):  # every ten seconds for an hour
        workers.record_activity(*POOL, ALICE)
        workers.flush()
        harness.clock.advance(10 * SECOND)
    assert [calls.names.count(name) for name in WRITES] == [3, 3]
    written = workers.describe(ALICES)
    assert written["lastDateActive"] == format_time(NOW + ACTIVE_EVERY)
    assert written["firstClaim"] == format_time(NOW)


def test_activity_that_another_process_has_written_is_not_written_again(harness: Harness) -> None:
    harness.services.workers.record_activity(*POOL, ALICE)
    harness.services.workers.flush()
    calls = CallRecorder()
    other = harness.replica(calls).workers
    for _ in range(2):
        other.record_activity(*POOL, ALICE)
        other.flush()
    assert calls.names == ["worker.load"] * 3


def test_the_claims_of_several_processes_are_merged(harness: Harness) -> None:
    processes = [harness.replica().workers for _ in range(3)]
    for _ in range(2):
        for number, process in enumerate(processes):
            process.record_claims(*POOL, ALICE, [(f"t{number}", 0)])
            process.flush()
    assert tasks(harness.services.workers.describe(ALICES)) == ["t0", "t1", "t2"]


def test_the_records_in_memory_are_limited(harness: Harness, logs: list[MutableMapping[str, Any]]) -> None:
    calls = CallRecorder()
    workers = Workers(
        intercept_port(WorkerStore, harness.storage.workers, calls), harness.clock, max_records=5
    )
    seen = [Worker("group", f"w{number}") for number in range(10)]
    for worker in seen:
        workers.record_activity(*POOL, worker)
    workers.flush()
    assert calls.names.count("insert") == 5  # the provisioner, the worker type, and three workers
    assert [(line["event"], line["count"]) for line in logs] == [("worker-activity-dropped", 7)]
    for worker in seen[3:]:
        workers.record_activity(*POOL, worker)
        workers.flush()
    assert len(logs) == 1
    assert calls.names.count("insert") == 12
    calls.names.clear()
    workers.record_activity(*POOL, seen[0])
    workers.flush()
    assert "load" in calls.names, "the record is not remembered"


def test_a_flush_takes_two_seconds_and_writes_the_oldest_first(harness: Harness) -> None:
    def slow(_name: str, call: Callable[[], Any]) -> Any:
        harness.clock.advance(SECOND / 10)
        return call()

    workers = harness.replica(slow).workers
    seen = [Worker("group", f"w{number:02}") for number in range(50)]
    for _ in range(6):
        for worker in seen:
            workers.record_claims(*POOL, worker, [(f"{harness.clock.now()}", 0)])
        begun = harness.clock.now()
        workers.flush()
        assert harness.clock.now() - begun <= 2.5 * SECOND
    written = harness.services.workers
    assert listed(written) == [[worker.worker_id for worker in seen]]


# --- what goes wrong


def test_activity_that_could_not_be_written_is_written_later(harness: Harness) -> None:
    workers = harness.replica(FaultAt(3, before=failing(AWAY))).workers
    workers.record_claims(*POOL, ALICE, [("task", 0)])
    with pytest.raises(ServiceUnavailable):
        workers.flush()
    assert tasks(workers.describe(ALICES)) == ["task"]
    workers.flush()
    assert tasks(harness.services.workers.describe(ALICES)) == ["task"]


def test_a_claim_whose_write_lost_its_answer_is_listed_once(harness: Harness) -> None:
    lost = FaultAt(0, of="worker.insert", after=failing(AWAY))
    workers = harness.replica(lost).workers
    workers.record_claims(*POOL, ALICE, [("task", 0)])
    with pytest.raises(ServiceUnavailable):
        workers.flush()
    workers.flush()
    workers.flush()
    assert tasks(workers.describe(ALICES)) == ["task"]


def test_a_flush_writes_the_other_records_after_an_unexpected_error(
    harness: Harness, logs: list[MutableMapping[str, Any]]
) -> None:
    workers = harness.replica(FaultAt(0, before=failing(ValueError("a defect")))).workers
    workers.record_claims(*POOL, ALICE, [("task", 0)])
    workers.flush()
    assert [line["event"] for line in logs] == ["activity-not-written"]
    assert tasks(harness.services.workers.describe(ALICES)) == ["task"]
    workers.flush()
    assert len(logs) == 1


def test_activity_during_a_write_is_written_by_the_next_flush(harness: Harness) -> None:
    process: Workers

    def claim_another() -> None:
        process.record_claims(*POOL, ALICE, [("second", 0)])

    process = harness.replica(FaultAt(2, of="worker.insert", after=claim_another)).workers
    process.record_claims(*POOL, ALICE, [("first", 0)])
    process.flush()
    assert tasks(process.describe(ALICES)) == ["first", "second"]
    assert tasks(harness.services.workers.describe(ALICES)) == ["first"]
    process.flush()
    assert tasks(harness.services.workers.describe(ALICES)) == ["first", "second"]


def test_two_concurrent_flushes_write_a_record_once(harness: Harness) -> None:
    """The process ends while its thread writes."""
    process: Workers
    calls = CallRecorder()
    flush_again = FaultAt(0, before=lambda: process.flush())
    process = harness.replica(lambda name, call: flush_again(name, lambda: calls(name, call))).workers
    process.record_claims(*POOL, ALICE, [("task", 0)])
    process.flush()
    assert calls.names.count("worker.insert") == 3
    assert tasks(harness.services.workers.describe(ALICES)) == ["task"]


def test_a_record_that_others_change_all_the_time_is_unavailable(harness: Harness) -> None:
    def always_changed(name: str, call: Callable[[], Any]) -> Any:
        if name == "worker.replace":
            raise Changed
        return call()

    harness.services.workers.declare(POOL[:1], {"description": "d"})
    workers = harness.replica(always_changed).workers
    with pytest.raises(ServiceUnavailable, match="provisioner is being changed"):
        workers.declare(POOL[:1], {"description": "another"})


def test_two_concurrent_declarations_of_a_new_provisioner_are_merged(harness: Harness) -> None:
    other = harness.replica().workers
    workers = harness.replica(
        FaultAt(0, of="worker.insert", before=lambda: other.declare(POOL[:1], {"stability": "stable"}))
    ).workers
    answer = workers.declare(POOL[:1], {"description": "d"})
    assert (answer["description"], answer["stability"]) == ("d", "stable")


# --- declared


def test_a_declaration_creates_the_parents(harness: Harness, workers: Workers) -> None:
    answer = workers.declare(ALICES, {"expires": format_time(NOW + 9 * DAY)})
    assert answer["expires"] == format_time(NOW + 9 * DAY)
    assert answer["recentTasks"] == answer["actions"] == []
    assert workers.describe(POOL)["description"] == ""
    assert workers.describe(POOL[:1])["stability"] == "experimental"
    assert [record.path for record in harness.storage.workers.list((), (), 9)] == [POOL[:1]]


def test_a_declaration_leaves_other_properties(workers: Workers) -> None:
    workers.declare(POOL, {"description": "builds", "stability": "stable"})
    answer = workers.declare(POOL, {"stability": "deprecated"})
    assert (answer["description"], answer["stability"]) == ("builds", "deprecated")
    assert workers.describe(POOL) == answer


def test_a_declaration_is_kept_when_its_worker_type_is_active(harness: Harness, workers: Workers) -> None:
    workers.declare(POOL, {"description": "builds", "expires": format_time(NOW + 99 * DAY)})
    harness.clock.advance(HOUR)
    harness.claimed()
    workers.flush()
    described = workers.describe(POOL)
    assert (described["description"], described["expires"]) == ("builds", format_time(NOW + 99 * DAY))
    assert described["lastDateActive"] == format_time(NOW + HOUR)


def test_the_flush_of_another_process_keeps_a_declaration(harness: Harness, workers: Workers) -> None:
    other = harness.replica().workers
    other.record_activity(*POOL)
    other.flush()
    workers.declare(POOL, {"description": "builds"})
    harness.clock.advance(HOUR)
    other.record_activity(*POOL)
    other.flush()
    assert workers.describe(POOL)["description"] == "builds"


def test_actions_are_shown_in_their_context(workers: Workers) -> None:
    actions = [action(context) for context in ("provisioner", "worker-type", "worker")]
    assert workers.declare(POOL[:1], {"actions": actions})["actions"] == actions
    assert workers.declare(POOL, {"description": ""})["actions"] == actions[1:2]
    assert workers.declare(ALICES, {"expires": format_time(NOW + DAY)})["actions"] == actions[2:]
    assert workers.describe(ALICES)["actions"] == actions[2:]


def test_a_worker_outlives_its_provisioner(harness: Harness, workers: Workers) -> None:
    workers.declare(ALICES, {"expires": format_time(NOW + 99 * DAY)})
    harness.sweep(10 * DAY)
    assert workers.describe(ALICES)["actions"] == []
    assert listed(workers, ()) == [[]]


def test_an_invalid_time_is_refused_and_nothing_is_stored(harness: Harness, workers: Workers) -> None:
    with pytest.raises(InputError, match="expires"):
        workers.declare(POOL[:1], {"expires": "2030-02-30T00:00:00Z"})
    assert harness.storage.workers.load(POOL[:1]) is None


# --- found, and not


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (POOL[:1], "provisioner provisioner:"),
        (POOL, "worker type provisioner/w"),
        (ALICES, "worker provisioner/"),
    ],
)
def test_an_unknown_path_is_not_found(workers: Workers, path: Path, named: str) -> None:
    with pytest.raises(ResourceNotFound, match=f"there is no {named}"):
        workers.describe(path)


def test_an_expired_worker_type_is_not_found_and_starts_anew(harness: Harness, workers: Workers) -> None:
    workers.declare(POOL, {"description": "builds", "expires": format_time(NOW + MINUTE)})
    harness.clock.advance(MINUTE)
    with pytest.raises(ResourceNotFound):
        workers.describe(POOL)
    assert listed(workers, POOL[:1]) == [[]]
    answer = workers.declare(POOL, {"stability": "stable"})
    assert (answer["description"], answer["expires"]) == ("", format_time(NOW + MINUTE + 5 * DAY))
    assert workers.declare(POOL, {"expires": format_time(NOW)})["expires"] == format_time(NOW + MINUTE)
    with pytest.raises(ResourceNotFound):
        workers.describe(POOL)


def test_an_expired_worker_comes_back_with_its_next_claim(harness: Harness, workers: Workers) -> None:
    harness.claimed()
    workers.flush()
    harness.sweep(2 * DAY)
    with pytest.raises(ResourceNotFound):
        workers.describe(ALICES)
    harness.clock.advance(HOUR)
    task_id = harness.claimed()
    workers.flush()
    assert tasks(harness.replica().workers.describe(ALICES)) == [task_id]


# --- listed


def test_unwritten_and_stored_records_are_listed_page_by_page(harness: Harness, workers: Workers) -> None:
    names = [f"w{number:02}" for number in range(25)]
    for name in names:
        workers.record_claims(*POOL, Worker("group", name), [("task", 0)])
        if name in names[::3]:
            workers.flush()
    workers.record_activity("another", WORKER_TYPE, ALICE)
    workers.record_activity(PROVISIONER, "another", ALICE)
    for limit in (1, 7, 24, 25, 26):
        pages = listed(workers, limit=limit)
        assert [name for page in pages for name in page] == names
        assert [len(page) for page in pages] == [limit] * (25 // limit) + [25 % limit] * bool(25 % limit)
    assert listed(workers, ()) == [["another", PROVISIONER]]
    assert listed(workers, POOL[:1]) == [["another", WORKER_TYPE]]
    assert listed(harness.replica().workers, ()) == [["another", PROVISIONER]]


def test_the_list_and_the_description_show_the_same_tasks_before_a_flush(workers: Workers) -> None:
    for number in range(3):
        workers.record_claims(*POOL, ALICE, [(f"t{number}", 0)])
        (record,) = worker_records(workers)
        assert record.to_wire()["recentTasks"] == workers.describe(ALICES)["recentTasks"]
        if number == 1:
            workers.flush()


def test_a_list_can_have_only_or_no_quarantined_workers(harness: Harness, workers: Workers) -> None:
    for name in ("alice", "bob", "carol"):
        workers.record_activity(*POOL, Worker("group", name))
    workers.quarantine(BOBS, NOW + MINUTE)
    assert listed(workers) == [["alice", "bob", "carol"]]
    assert listed(workers, is_quarantined=True) == [["bob"]]
    assert listed(workers, is_quarantined=False) == [["alice", "carol"]]
    assert [name for page in listed(workers, limit=1, is_quarantined=True) for name in page] == ["bob"]
    harness.clock.advance(MINUTE)
    assert listed(workers, is_quarantined=True) == [[]]
    assert [record.quarantine_until for record in worker_records(workers)] == [None] * 3


def test_an_unknown_parent_has_an_empty_list(workers: Workers) -> None:
    for parent in ((), POOL[:1], POOL):
        assert listed(workers, parent) == [[]]
        assert workers.list(parent, (), 1, repr_of).after is None


def test_a_list_renders_worker_records(workers: Workers) -> None:
    workers.record_activity(*POOL, ALICE)
    assert worker_records(workers) == [WorkerRecord.new(ALICES, NOW)]
