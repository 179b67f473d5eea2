"""Claims, reclaims and reports over HTTP: their answers, and with which credentials they are made."""

import json
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.task import Worker
from legacy_queue.domain.times import format_time
from legacy_queue.stores import Storage
from tests.http.calls import (
    NOW,
    POOL,
    PROVISIONER,
    ROOT_URL,
    SECRETS,
    TASK_ID,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    claimed,
    refused,
    succeeded,
    task_body,
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


def certificate(credentials: Credentials) -> Any:
    return json.loads(credentials.certificate or "")


def test_a_claim_answers_as_documented(queue: Queue) -> None:
    queue.create(TASK_ID, scopes=["a:task:scope", "b:*"])
    answer = succeeded(queue.claim(TASK_ID)).get_json()
    until = NOW + 20 * MINUTE
    assert {
        name: value for name, value in answer.items() if name not in ("credentials", "status", "task")
    } == {
        "runId": 0,
        "workerGroup": "group",
        "workerId": "alice",
        "takenUntil": format_time(until),
    }
    assert answer["status"]["runs"] == [
        {
            "runId": 0,
            "state": "running",
            "reasonCreated": "scheduled",
            "scheduled": format_time(NOW),
            "started": format_time(NOW),
            "takenUntil": format_time(until),
            "workerGroup": "group",
            "workerId": "alice",
        }
    ]
    assert answer["task"] == succeeded(queue.call("task", taskId=TASK_ID)).get_json()
    credentials = answer["credentials"]
    seconds = int(until.timestamp())
    assert credentials["clientId"] == f"task-client/{TASK_ID}/0/on/group/alice/until/{seconds}"
    made = json.loads(credentials["certificate"])
    assert made["scopes"] == [
        f"queue:claim-task:{TASK_ID}/0",
        f"queue:reclaim-task:{TASK_ID}/0",
        f"queue:resolve-task:{TASK_ID}/0",
        f"queue:create-artifact:{TASK_ID}/0",
        "a:task:scope",
        "b:*",
    ]


@pytest.mark.parametrize("name", WITH_A_CLAIM)
def test_the_credentials_of_a_claim_may_reclaim_and_report_its_run(queue: Queue, name: str) -> None:
    queue.create(TASK_ID)
    credentials = claimed(queue.claim(TASK_ID))
    answer = succeeded(queue.call(name, WITH_A_CLAIM[name], credentials, taskId=TASK_ID, runId=0))
    if name == "reclaimTask":
        again = claimed(answer)
        assert again != credentials
        succeeded(queue.call("reportCompleted", None, again, taskId=TASK_ID, runId=0))


@pytest.mark.parametrize("name", WITH_A_CLAIM)
def test_the_credentials_of_a_claim_may_not_act_on_another_task(queue: Queue, name: str) -> None:
    mine, other = queue.create(), queue.running()
    credentials = claimed(queue.claim(mine))
    answer = queue.call(name, WITH_A_CLAIM[name], credentials, taskId=other, runId=0)
    refused(answer, 403, "InsufficientScopes", f"queue:claim-task:{other}/0")
    assert queue.state(other) == "running"


def test_the_credentials_of_a_claim_have_the_scopes_of_the_task_and_no_others(queue: Queue) -> None:
    queue.create(TASK_ID, scopes=["queue:poll-task-urls:p/w"])
    credentials = claimed(queue.claim(TASK_ID))
    succeeded(queue.call("pollTaskUrls", None, credentials, provisionerId="p", workerType="w"))
    refused(
        queue.call("pollTaskUrls", None, credentials, provisionerId="p", workerType="x"),
        403,
        "InsufficientScopes",
    )
    refused(queue.call("createTask", task_body(), credentials, taskId=slugid()), 403, "InsufficientScopes")


def test_the_credentials_of_a_claim_end_soon_after_it(queue: Queue) -> None:
    queue.create(TASK_ID)
    credentials = claimed(queue.claim(TASK_ID))
    made = certificate(credentials)
    until = (NOW + 20 * MINUTE).timestamp() * 1000
    assert until <= made["expiry"] <= until + 15 * 60 * 1000
    assert made["start"] <= NOW.timestamp() * 1000 - 5 * 60 * 1000
    queue.clock.advance(41 * MINUTE)
    answer = queue.call("reportCompleted", None, credentials, taskId=TASK_ID, runId=0)
    refused(answer, 401, "AuthenticationFailed")


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


def test_the_credentials_of_a_claim_end_with_the_removal_of_their_secret() -> None:
    clock = FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    before = Queue(clock=clock, storage=memory)
    before.create(TASK_ID)
    credentials = claimed(before.claim(TASK_ID))
    after = Queue(clock=clock, storage=memory, signing_secrets=("a-new-signing-secret-of-today",))
    answer = after.call("reclaimTask", None, credentials, taskId=TASK_ID, runId=0)
    refused(answer, 401, "AuthenticationFailed")


def as_a_worker_of_2015(**more: Any) -> Queue:
    scopes = ("queue:claim-task", "queue:resolve-task", "assume:worker-id:group/alice")
    return Queue(Client(PERMANENT.client_id, PERMANENT.access_token, scopes), **more)


@pytest.mark.parametrize("name", WITH_A_CLAIM)
def test_permanent_credentials_may_act_on_the_claim_of_their_worker(name: str) -> None:
    """As generic-worker does it: see docs/explanation/legacy-clients.md#requests."""
    queue = as_a_worker_of_2015()
    queue.running(TASK_ID)
    succeeded(queue.call(name, WITH_A_CLAIM[name], PERMANENT, taskId=TASK_ID, runId=0))


@pytest.mark.parametrize("name", WITH_A_CLAIM)
def test_permanent_credentials_may_not_act_on_the_claim_of_another_worker(name: str) -> None:
    queue = as_a_worker_of_2015()
    queue.create(TASK_ID)
    succeeded(queue.claim(TASK_ID, workerId="bob"))
    answer = queue.call(name, WITH_A_CLAIM[name], PERMANENT, taskId=TASK_ID, runId=0)
    refused(answer, 403, "InsufficientScopes", "`assume:worker-id:group/bob`")


@pytest.mark.parametrize("name", WITH_A_CLAIM)
def test_permanent_credentials_may_not_act_on_an_unclaimed_run(name: str) -> None:
    queue = as_a_worker_of_2015()
    queue.create(TASK_ID)
    answer = queue.call(name, WITH_A_CLAIM[name], PERMANENT, taskId=TASK_ID, runId=0)
    assert answer.status_code in (403, 409)
    assert queue.state(TASK_ID) == "pending"


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


def test_a_reclaim_answers_as_documented(queue: Queue) -> None:
    queue.running(TASK_ID)
    queue.clock.advance(15 * MINUTE)
    answer = succeeded(queue.call("reclaimTask", taskId=TASK_ID, runId=0)).get_json()
    assert set(answer) == {"status", "runId", "workerGroup", "workerId", "takenUntil", "credentials"}
    assert answer["takenUntil"] == format_time(NOW + 35 * MINUTE)
    assert answer["status"]["runs"][0]["takenUntil"] == answer["takenUntil"]
    assert answer["status"]["runs"][0]["started"] == format_time(NOW)


@pytest.mark.parametrize(
    ("name", "body", "state", "reason"),
    [
        ("reportCompleted", None, "completed", "completed"),
        ("reportCompleted", {}, "completed", "completed"),
        ("reportCompleted", {"success": True}, "completed", "completed"),
        ("reportCompleted", {"success": False}, "failed", "failed"),
        ("reportFailed", None, "failed", "failed"),
        ("reportFailed", {}, "failed", "failed"),
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


@pytest.mark.parametrize(
    ("reason", "created"), [("worker-shutdown", "retry"), ("intermittent-task", "task-retry")]
)
def test_a_run_that_may_be_retried_is_followed_by_another(queue: Queue, reason: str, created: str) -> None:
    queue.running(TASK_ID, retries=1)
    answer = succeeded(queue.call("reportException", {"reason": reason}, taskId=TASK_ID, runId=0))
    status = answer.get_json()["status"]
    assert (status["state"], status["retriesLeft"]) == ("pending", 0)
    assert status["runs"][1]["reasonCreated"] == created
    succeeded(queue.claim(TASK_ID, 1))
    answer = succeeded(queue.call("reportException", {"reason": reason}, taskId=TASK_ID, runId=1))
    assert answer.get_json()["status"]["state"] == "exception"


@pytest.mark.parametrize("success", ["false", 0, None, 1, []])
def test_a_success_that_is_not_a_boolean_is_refused(queue: Queue, success: Any) -> None:
    queue.running(TASK_ID)
    answer = queue.call("reportCompleted", {"success": success}, taskId=TASK_ID, runId=0)
    refused(answer, 400, "InputValidationError", "body/success")
    assert queue.state(TASK_ID) == "running"


def test_the_required_policy_accepts_a_claim_with_its_message() -> None:
    queue = Queue(worker_types={"provisioner/worker-Type_1": "required"})
    queue.create(TASK_ID)
    ((_, run_id, message_id, receipt, signature),) = queue.messages()
    succeeded(queue.claim(TASK_ID, run_id, messageId=message_id, receipt=receipt, signature=signature))


def test_a_signature_by_a_removed_secret_is_refused() -> None:
    clock = FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    Queue(clock=clock, storage=memory, signing_secrets=("a-signing-secret-of-last-year",)).create(TASK_ID)
    queue = Queue(clock=clock, storage=memory)
    ((_, run_id, message_id, receipt, signature),) = queue.messages()
    answer = queue.claim(TASK_ID, run_id, messageId=message_id, receipt=receipt, signature=signature)
    refused(answer, 403, "AuthorizationFailed")


def test_a_signature_by_the_previous_secret_is_accepted() -> None:
    clock = FakeClock(NOW)
    memory = memory_storage(clock, f"{ROOT_URL}/azure", "q")
    Queue(clock=clock, storage=memory, signing_secrets=(SECRETS[1],)).create(TASK_ID)
    queue = Queue(clock=clock, storage=memory)
    ((_, run_id, message_id, receipt, signature),) = queue.messages()
    succeeded(queue.claim(TASK_ID, run_id, messageId=message_id, receipt=receipt, signature=signature))


def test_the_settings_change_the_claim_and_the_poll_urls() -> None:
    queue = Queue(
        claim_timeout=timedelta(seconds=6),
        sas_life=timedelta(minutes=10),
        poll_visibility=timedelta(seconds=7),
    )
    queue.create(TASK_ID)
    assert queue.claim(TASK_ID).get_json()["takenUntil"] == format_time(NOW + timedelta(seconds=6))
    urls = queue.call("pollTaskUrls", provisionerId="p", workerType="w").get_json()
    assert urls["expires"] == format_time(NOW + 10 * MINUTE)
    assert len(urls["queues"]) == 7
    assert all("visibilitytimeout=7&" in entry["signedPollUrl"] + "&" for entry in urls["queues"])


def test_pending_tasks_counts_all_pending_tasks_of_the_worker_type(queue: Queue) -> None:
    named = {**POOL, "taskQueueId": f"{PROVISIONER}/{WORKER_TYPE}"}
    assert queue.call("pendingTasks", **POOL).get_json() == {**POOL, "pendingTasks": 0}
    queue.clock.advance(timedelta(seconds=2))  # the count is cached for so long
    for priority in ("highest", "low", "low"):
        queue.create(priority=priority)
    queue.create(workerType="another")
    answer = queue.send("GET", f"/api/queue/v1/pending/{PROVISIONER}/{WORKER_TYPE}", credentials=None)
    assert answer.get_json() == {**named, "pendingTasks": 3}
    answer = queue.send("GET", f"/api/queue/v1/pending/{PROVISIONER}%2Fanother", credentials=None)
    assert answer.get_json()["pendingTasks"] == 1


def test_a_claim_may_last_beyond_the_deadline() -> None:
    queue = Queue()
    queue.clock.advance(datetime(2018, 3, 4, 6, tzinfo=UTC) - NOW)
    queue.create(TASK_ID, deadline="2018-03-04T06:07:00.000Z")
    answer = succeeded(queue.claim(TASK_ID, **WORKER)).get_json()
    assert answer["takenUntil"] == "2018-03-04T06:20:00.000Z"
