"""Provisioners, pools and workers: their records, declarations, quarantines, lists and calls."""

from typing import Any

import pytest

from legacy_queue.domain import errors
from legacy_queue.domain.call_statistics import CLAIM_TASK, CLAIM_WORK, POLL_TASK_URLS, CallingClient
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.domain.worker_record import (
    ACTIVE_EVERY,
    PoolPath,
    ProvisionerPath,
    RecordPath,
    WorkerRecord,
    worker_path,
)
from legacy_queue.ports import Changed, Corrupt
from legacy_queue.services.services import Services
from legacy_queue.services.tasks.claims import ClaimProof
from legacy_queue.services.workers.workers import Workers
from tests.domain.sample_tasks import ALICE, BOB, DAY, NOW, SECOND
from tests.services.fake_ports import CallRecorder, FaultAt
from tests.services.harness import PROVISIONER, WORKER_TYPE, Harness, Logs

POOL = PoolPath(PROVISIONER, WORKER_TYPE)
ABOVE = ProvisionerPath(PROVISIONER)
ALICES, BOBS = (worker_path(*POOL, worker) for worker in (ALICE, BOB))
AWAY = errors.ServiceUnavailable("storage is away")
ALL = ("messageId", "receipt", "signature")


@pytest.fixture
def workers(harness: Harness) -> Workers:
    return harness.services.workers


def call(workers: Workers, worker: Worker = ALICE, *task_ids: str) -> None:
    """A claimWork call that claims run 0 of these tasks. Its record is written."""
    with workers.call(worker_path(*POOL, worker), (CLAIM_WORK, ())) as claims:
        claims += [(task_id, 0) for task_id in task_ids]
    workers.flush()


def tasks(workers: Workers, path: RecordPath = ALICES) -> list[str]:
    return [task["taskId"] for task in workers.describe(path)["recentTasks"]]


def test_recording_a_call_costs_one_write_and_once_in_half_an_hour_some_more(harness: Harness) -> None:
    calls = CallRecorder()
    workers = harness.replica(calls).workers
    call(workers)
    assert calls.names.count("worker.insert") == 3
    calls.names.clear()
    call(workers)
    assert calls.names == ["worker.replace"]
    calls.names.clear()
    call(workers, BOB)
    assert calls.names == ["worker.load", "worker.insert"]
    calls.names.clear()
    harness.clock.advance(ACTIVE_EVERY)
    for _ in range(2):
        workers.record_activity(ALICES)
        workers.flush()
    assert calls.names == ["worker.replace"] * 3


def test_a_quarantine_is_noticed_within_five_seconds(harness: Harness) -> None:
    calls = CallRecorder()
    workers = harness.replica(calls).workers
    call(workers)
    calls.names.clear()
    for _ in range(2):
        harness.clock.advance(5 * SECOND)
        with workers.call(ALICES, (CLAIM_WORK, ())):
            assert workers.quarantined_until(ALICES) is None
    assert calls.names == ["worker.load"] * 2


@pytest.mark.parametrize(
    ("error", "events"),
    [(AWAY, []), (ValueError("a defect"), ["worker-not-recorded"]), (Corrupt("logged already"), [])],
)
def test_a_claim_succeeds_even_if_its_record_cannot_be_written(
    harness: Harness, error: Exception, events: list[str], logs: Logs
) -> None:
    call(harness.services.workers)
    task_id = harness.create()
    services = harness.replica(FaultAt(0, of="worker.replace", before=error))
    harness.claim(harness.receive_one(), services=services)
    services.workers.flush()
    assert harness.states(task_id) == ["running by alice"]
    assert [line["event"] for line in logs] == events
    assert tasks(services.workers) == ([task_id] if error is AWAY else [])


def test_while_storage_is_away_calls_are_kept_up_to_a_limit(harness: Harness, logs: Logs) -> None:
    calls = harness.replica(FaultAt(0, of="worker.load_client", before=AWAY)).calls
    for _ in range(1001):
        calls.record_call(CallingClient(*POOL, "client"), (CLAIM_WORK, ()))
    calls.flush()
    assert [line["event"] for line in logs] == ["worker-not-recorded"]


def test_a_claim_fails_while_it_is_unknown_whether_the_worker_is_quarantined(harness: Harness) -> None:
    task_id = harness.create()
    services = harness.replica(FaultAt(0, of="worker.load", before=AWAY))
    message = harness.receive_one()
    with pytest.raises(errors.ServiceUnavailable, match="away"):
        harness.claim(message, services=services)
    assert harness.states(task_id) == ["pending"]


def test_if_others_change_a_record_all_the_time_the_call_is_service_unavailable(harness: Harness) -> None:
    def always_changed(name: str, act: Any) -> Any:
        if name == "worker.replace":
            raise Changed
        return act()

    harness.services.workers.declare(ABOVE, {"description": "d"})
    with pytest.raises(errors.ServiceUnavailable, match="provisioner is being changed"):
        harness.replica(always_changed).workers.declare(ABOVE, {"description": "another"})


def test_for_todays_clients_a_provisioner_expires_with_its_last_pool(
    harness: Harness, workers: Workers
) -> None:
    def expires(record: WorkerRecord) -> bytes:
        return format_time(record.expires).encode()

    def of_today() -> list[bytes]:
        return [*workers.provisioners_of_today((), 9, expires).items]

    workers.declare(ABOVE, {"expires": format_time(NOW + 9 * DAY)})
    assert of_today() == []
    with pytest.raises(errors.ResourceNotFound, match="has no task queue any more"):
        workers.provisioner_of_today(ABOVE)
    for name, days in (("first", 2), ("last", 3)):
        workers.declare(PoolPath(PROVISIONER, name), {"expires": format_time(NOW + days * DAY)})
    assert of_today() == [format_time(NOW + 3 * DAY).encode()]
    assert workers.provisioner_of_today(ABOVE).last_active == NOW
    harness.clock.advance(3 * DAY)
    assert of_today() == []
    assert workers.describe(ABOVE)["provisionerId"] == PROVISIONER


def test_a_provisioner_does_not_expire_before_its_worker_types(workers: Workers) -> None:
    workers.declare(ABOVE, {"expires": format_time(NOW + 7 * DAY)})
    for days, moved in ((9, 9), (8, 9)):
        workers.declare(POOL, {"expires": format_time(NOW + days * DAY)})
        assert workers.describe(ABOVE)["expires"] == format_time(NOW + moved * DAY)


def test_a_list_can_show_only_quarantined_workers_or_none_of_them(workers: Workers) -> None:
    def listed(*, is_quarantined: bool) -> list[bytes]:
        page = workers.list(POOL, (), 9, lambda record: record.path[-1].encode(), is_quarantined)
        return [*page.items]

    for path in (ALICES, BOBS):
        workers.declare(path, {})
    workers.quarantine(BOBS, NOW + DAY)
    assert (listed(is_quarantined=True), listed(is_quarantined=False)) == ([b"bob"], [b"alice"])


def test_a_quarantine_is_kept_when_the_worker_claims_concurrently(harness: Harness) -> None:
    call(harness.services.workers)
    race = FaultAt(0, of="worker.replace", before=lambda: call(harness.services.workers, ALICE, "task"))
    answer = harness.replica(race).workers.quarantine(ALICES, NOW + DAY)
    assert answer["recentTasks"] == [{"taskId": "task", "runId": 0}]
    assert answer["quarantineUntil"] == format_time(NOW + DAY)


def test_a_claim_by_a_quarantined_worker_is_a_conflict_and_the_run_is_offered_again(
    harness: Harness, workers: Workers
) -> None:
    task_id = harness.create()
    workers.declare(ALICES, {})
    workers.quarantine(ALICES, NOW + DAY)
    message = harness.receive_one()
    for _ in range(3):  # workers of the draft protocol never delete their message
        with pytest.raises(
            errors.RequestConflict, match=r"group/alice.*quarantined until 2030-01-03T03:04:05"
        ):
            harness.claim(message)
        assert harness.offered_runs() == [(0, 10 * SECOND)]
        harness.clock.advance(10 * SECOND)
        message = harness.receive_one()
    harness.claim(message, BOB)
    assert harness.states(task_id) == ["running by bob"]


def reported(services: Services) -> dict[tuple[str, ...], int]:
    """How often each kind of call is reported for the last day: method, caller, and missing proofs."""
    (pool,) = services.migration_report.report(DAY)["workerTypes"]
    assert (pool["provisionerId"], pool["workerType"]) == POOL
    return {(call["method"], call["caller"], *call["missing"]): call["count"] for call in pool["calls"]}


def test_every_process_reports_the_calls_of_all_processes_refused_calls_too(harness: Harness) -> None:
    clients = ["client", "client", "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/bob/until/1893553445"]
    for client_id in clients:
        process = harness.replica()
        process.polling.poll_urls(*POOL, client_id)
        process.calls.flush()
    harness.claimed()
    harness.create()
    message = harness.receive_one()
    harness.claim(message, BOB, proof=ClaimProof(message.lease.message_id))
    task_id = harness.create()
    with pytest.raises(errors.AuthorizationFailed):
        harness.services.claims.claim(harness.task(task_id), 0, BOB, ClaimProof("id", "receipt", "wrong"))
    harness.run(task_id)
    call(harness.services.workers)
    harness.services.calls.record_read("reader", ("status", ()))  # reads do not count as calls for work
    assert "reader" not in [caller.name for caller in harness.services.calls.callers()]
    assert reported(harness.services) == {
        (POLL_TASK_URLS, "client"): 2,
        (POLL_TASK_URLS, "task-client/*/on/group/bob"): 1,
        (CLAIM_TASK, "group/alice"): 1,
        (CLAIM_TASK, "group/alice", *ALL): 1,
        (CLAIM_TASK, "group/bob"): 1,
        (CLAIM_TASK, "group/bob", *ALL[1:]): 1,
        (CLAIM_WORK, "group/alice"): 1,
    }
