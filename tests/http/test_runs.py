"""Claims and reports over HTTP: their answers, and the credentials that they need."""

import json
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.task import Worker
from legacy_queue.stores import Storage
from tests.http.calls import (
    NOW,
    POOL,
    POOL_NAME,
    PROVISIONER,
    ROOT_URL,
    SECRETS,
    TASK_ID,
    TESTED,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    claimed,
    holding,
    refused,
    succeeded,
)
from tests.memory_server import FakeClock, memory_storage

REPORTS: dict[str, Any] = {"reportCompleted": None, "reportException": {"reason": "internal-error"}}
WITH_A_CLAIM: dict[str, Any] = {"reclaimTask": None, **REPORTS}
each_call = pytest.mark.parametrize("name", WITH_A_CLAIM)


def processes(*scopes: str, **of_first: Any) -> tuple[Queue, Queue]:
    """Two processes on one storage, each with its own cache. At the first, TESTED has these scopes."""
    clock = FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    first = holding(*scopes, clock=clock, storage=Storage(memory.account, "q", clock), **of_first)
    return first, Queue(clock=clock, storage=memory)


def report_of(queue: Queue, name: str, credentials: Credentials, run_id: int = 0) -> TestResponse:
    return queue.call(name, WITH_A_CLAIM[name], credentials, taskId=TASK_ID, runId=run_id)


def test_a_worker_keeps_its_claim_when_the_signing_secret_is_rotated() -> None:
    """The credentials of a claim are signed with a signing secret. The previous secret stays valid."""
    after, before = processes(signing_secrets=("a-new-signing-secret-of-today", SECRETS[0]))
    before.create(TASK_ID)
    credentials = claimed(before.claim(TASK_ID))
    succeeded(report_of(after, "reclaimTask", credentials))
    succeeded(report_of(after, "reportCompleted", credentials.narrowed(f"queue:claim-task:{TASK_ID}/0")))


OF_2015 = ("queue:claim-task", "queue:resolve-task", "assume:worker-id:group/alice")


@pytest.mark.parametrize(("name", "retried"), [("reportCompleted", True), *product(WITH_A_CLAIM, [False])])
def test_a_process_with_an_outdated_task_in_its_cache_accepts_the_worker_that_holds_the_run(
    name: str, retried: bool
) -> None:
    """Another process made the claim.

    If ``retried``, the claim is for a run that this process has never read.
    """
    stale, other = processes(*OF_2015)
    stale.create(TASK_ID)
    if retried:
        succeeded(other.claim(TASK_ID, workerId="bob"))
        report = {"reason": "worker-shutdown"}
        succeeded(other.call("reportException", report, taskId=TASK_ID, runId=0))
    succeeded(other.claim(TASK_ID, int(retried)))
    succeeded(report_of(stale, name, TESTED, int(retried)))


@each_call
def test_a_worker_whose_claim_was_released_cannot_report_the_run_that_another_worker_claimed(
    name: str,
) -> None:
    """The worker disconnected during claimWork, but its claim is still in the cache of another process."""
    stale, other = processes(*OF_2015)
    other.create(TASK_ID)
    (claim,) = other.ask("claimWork", WORKER, **POOL)["tasks"]
    assert stale.state(TASK_ID) == "running"
    other.server.services.claims.release_claim(claim, Worker("group", "alice"))
    succeeded(other.claim(TASK_ID, workerId="bob"))
    refused(report_of(stale, name, TESTED), 403, "InsufficientScopes", "bob")
    assert other.state(TASK_ID) == "running"


@pytest.mark.parametrize(
    ("name", "body", "resolved"),
    [
        ("reportCompleted", None, ("completed", "completed")),
        ("reportCompleted", {"success": False}, ("failed", "failed")),
        ("reportFailed", None, ("failed", "failed")),
        ("reportException", {"reason": "resources-unavailable"}, ("exception", "resource-unavailable")),
    ],
)
def test_a_report_resolves_the_task_and_can_be_repeated(
    queue: Queue, name: str, body: Any, resolved: tuple[str, str]
) -> None:
    queue.running(TASK_ID)
    first = queue.ask(name, body, taskId=TASK_ID, runId=0)
    assert queue.runs(TASK_ID) == [resolved]
    assert queue.ask(name, body, taskId=TASK_ID, runId=0) == first


def test_a_client_that_prefers_not_to_wait_is_answered_immediately() -> None:
    queue = Queue(claim_work_wait=timedelta(hours=1))
    target = f"/v1/claim-work/{POOL_NAME}"
    for prefer in ("wait=0", "respond-async, wait=0"):
        sent = queue.send("POST", target, json.dumps(WORKER).encode(), headers={"Prefer": prefer})
        assert succeeded(sent).get_json() == {"tasks": []}


def test_the_pool_in_a_path_can_be_one_segment_with_an_encoded_slash(queue: Queue) -> None:
    task_id = queue.create()
    route = f"/api/queue/v1/claim-work/{PROVISIONER}%2F{WORKER_TYPE}"
    answer = succeeded(queue.send("POST", route, json.dumps(WORKER).encode()))
    assert [claim["status"]["taskId"] for claim in answer.get_json()["tasks"]] == [task_id]
