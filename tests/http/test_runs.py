"""Claims, reclaims and reports over HTTP: their answers, and with which credentials they are made."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.stores import Storage
from tests.http.calls import (
    NOW,
    POOL,
    ROOT_URL,
    SECRETS,
    TASK_ID,
    WORKER,
    Credentials,
    Queue,
    claimed,
    refused,
    succeeded,
)
from tests.memory_server import FakeClock, memory_storage

MINUTE = timedelta(minutes=1)
REPORTS: dict[str, Any] = {
    "reportCompleted": None,
    "reportFailed": None,
    "reportException": {"reason": "internal-error"},
}
WITH_A_CLAIM: dict[str, Any] = {"reclaimTask": None, **REPORTS}
PERMANENT = Credentials("worker/alice", "the-access-token-of-a-worker-of-2015")


@pytest.mark.parametrize(("name", "narrow"), [("reportCompleted", True), *product(WITH_A_CLAIM, [False])])
def test_a_worker_keeps_its_claim_when_the_signing_secret_is_rotated(name: str, narrow: bool) -> None:
    """The credentials of claims are issued under a signing secret. The previous one stays valid."""
    clock = FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    before = Queue(clock=clock, storage=memory)
    before.create(TASK_ID)
    credentials = claimed(before.claim(TASK_ID))
    if narrow:
        credentials = credentials.narrowed(f"queue:claim-task:{TASK_ID}/0")
    after = Queue(clock=clock, storage=memory, signing_secrets=("a-new-signing-secret-of-today", SECRETS[0]))
    succeeded(after.call(name, WITH_A_CLAIM[name], credentials, taskId=TASK_ID, runId=0))


def as_a_worker_of_2015(**more: Any) -> Queue:
    scopes = ("queue:claim-task", "queue:resolve-task", "assume:worker-id:group/alice")
    return Queue(Client(PERMANENT.client_id, PERMANENT.access_token, scopes), **more)


@pytest.mark.parametrize("name", WITH_A_CLAIM)
def test_permanent_credentials_may_not_act_on_the_claim_of_another_worker(name: str) -> None:
    queue = as_a_worker_of_2015()
    queue.create(TASK_ID)
    succeeded(queue.claim(TASK_ID, workerId="bob"))
    answer = queue.call(name, WITH_A_CLAIM[name], PERMANENT, taskId=TASK_ID, runId=0)
    refused(answer, 403, "InsufficientScopes", "`assume:worker-id:group/bob`")


@pytest.mark.parametrize(("name", "retried"), [("reportCompleted", True), *product(WITH_A_CLAIM, [False])])
def test_a_process_with_an_old_task_in_its_cache_knows_who_holds_the_run(name: str, retried: bool) -> None:
    """Another process made the claim, in the second case on a run that this process has not read."""
    clock = FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    replica = Storage(memory.account, "q", clock)
    stale, other = as_a_worker_of_2015(clock=clock, storage=replica), Queue(clock=clock, storage=memory)
    stale.create(TASK_ID)
    run_id = 0
    if retried:
        succeeded(other.claim(TASK_ID, workerId="bob"))
        report = {"reason": "worker-shutdown"}
        succeeded(other.call("reportException", report, taskId=TASK_ID, runId=0))
        run_id = 1
    succeeded(other.claim(TASK_ID, run_id))
    succeeded(stale.call(name, WITH_A_CLAIM[name], PERMANENT, taskId=TASK_ID, runId=run_id))


@pytest.mark.parametrize("name", WITH_A_CLAIM)
def test_a_worker_whose_claim_was_released_may_not_act_on_the_next_claim(name: str) -> None:
    """The worker disconnected during claimWork, and the cache of another process has that claim."""
    clock = FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    replica = Storage(memory.account, "q", clock)
    stale, other = as_a_worker_of_2015(clock=clock, storage=replica), Queue(clock=clock, storage=memory)
    other.create(TASK_ID)
    (claim,) = succeeded(other.call("claimWork", WORKER, **POOL)).get_json()["tasks"]
    assert stale.state(TASK_ID) == "running"
    other.server.services.claims.release_claim(claim, Worker("group", "alice"))
    succeeded(other.claim(TASK_ID, workerId="bob"))
    answer = stale.call(name, WITH_A_CLAIM[name], PERMANENT, taskId=TASK_ID, runId=0)
    refused(answer, 403, "InsufficientScopes", "bob")
    assert other.state(TASK_ID) == "running"


@pytest.mark.parametrize(
    ("name", "body", "state", "reason"),
    [
        ("reportCompleted", None, "completed", "completed"),
        ("reportCompleted", {"success": True}, "completed", "completed"),
        ("reportCompleted", {"success": False}, "failed", "failed"),
        ("reportFailed", None, "failed", "failed"),
        ("reportException", {"reason": "malformed-payload"}, "exception", "malformed-payload"),
        ("reportException", {"reason": "resource-unavailable"}, "exception", "resource-unavailable"),
        ("reportException", {"reason": "resources-unavailable"}, "exception", "resource-unavailable"),
        ("reportException", {"reason": "internal-error"}, "exception", "internal-error"),
        ("reportException", {"reason": "superseded"}, "exception", "superseded"),
    ],
)
def test_a_report_resolves_the_task_and_may_be_repeated(
    queue: Queue, name: str, body: Any, state: str, reason: str
) -> None:
    queue.running(TASK_ID)
    queue.clock.advance(MINUTE)
    first = succeeded(queue.call(name, body, taskId=TASK_ID, runId=0)).get_json()
    assert first["status"]["state"] == state
    (run,) = first["status"]["runs"]
    assert (run["state"], run["reasonResolved"]) == (state, reason)
    assert run["resolved"] == format_time(NOW + MINUTE)
    assert succeeded(queue.call(name, body, taskId=TASK_ID, runId=0)).get_json() == first
