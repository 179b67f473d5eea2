"""Temporary credentials of real clients: those of a claim, and those that a client makes itself."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from .http_queue import Json, Queue, definition, in_time, slugid
from .processes import Server
from .real_clients import RealClient, refusal
from .uploads import body, of_blob, send

# does not depend on the storage
pytestmark = pytest.mark.parametrize("server", ["memory"], indirect=True)

WORKER = {"workerGroup": "group", "workerId": "one"}
HOUR = timedelta(hours=1)
INSUFFICIENT, FAILED = (403, "InsufficientScopes"), (401, "AuthenticationFailed")
REASON = {"reason": "worker-shutdown"}

# each call that a worker makes about its run
ON_A_RUN: dict[str, tuple[Any, ...]] = {
    "reportCompleted": (),
    "reportFailed": (),
    "reportException": (REASON,),
    "reclaimTask": (),
    "createArtifact": ("public/log", body("reference", expires=in_time(days=1))),
    "completeArtifact": ("public/log", {"etags": ["none"]}),
}


class Claimant:
    """Creates tasks of a worker type and claims them by claimTask, claimWork or reclaimTask."""

    def __init__(self, queue: Queue, client: RealClient, worker_type: str) -> None:
        self._queue, self._client, self._worker_type = queue, client, worker_type

    def create(self, task_id: str | None = None, **changes: Any) -> str:
        return self._queue.create(definition(self._worker_type, **changes), task_id)

    def by_task(self, **changes: Any) -> Json:
        return self._keep_secret(self._client.call("claimTask", self.create(**changes), "0", WORKER))

    def by_work(self, **changes: Any) -> Json:
        task_id = self.create(**changes)
        wanted = {**WORKER, "tasks": 1}
        [claim] = self._client.call("claimWork", "system", self._worker_type, wanted)["tasks"]
        assert claim["status"]["taskId"] == task_id
        return self._keep_secret(claim)

    def by_reclaim(self, **changes: Any) -> Json:
        claim = self.by_task(**changes)
        task_id, mine = claim["status"]["taskId"], claim["credentials"]
        return self._keep_secret(self._client.call("reclaimTask", task_id, "0", credentials=mine))

    def _keep_secret(self, claim: Json) -> Json:
        self._queue.with_credentials(claim["credentials"])
        return claim


@pytest.fixture
def claimant(queue: Queue, client: RealClient, worker_type: str) -> Claimant:
    return Claimant(queue, client, worker_type)


def refusals(
    client: RealClient, run: tuple[str, str], credentials: Mapping[str, str], **more: Any
) -> set[tuple[int, str]]:
    """The refusals of each call about the run; asserts that it is still running."""
    refused = {
        refusal(client.call, method, *run, *args, credentials=credentials, **more)
        for method, args in ON_A_RUN.items()
    }
    assert client.call("status", run[0])["status"]["runs"][int(run[1])]["state"] == "running"
    return refused


@pytest.mark.parametrize(
    ("claimed", "report", "reason"),
    [
        (Claimant.by_task, "reportCompleted", ()),
        (Claimant.by_work, "reportFailed", ()),
        (Claimant.by_reclaim, "reportException", (REASON,)),
    ],
    ids=["claimTask", "claimWork", "reclaimTask"],
)
def test_the_scope_of_a_claim_allows_each_call_of_a_worker_about_its_run(
    client: RealClient,
    claimant: Claimant,
    claimed: Callable[..., Json],
    report: str,
    reason: tuple[Any, ...],
) -> None:
    claim = claimed(claimant)
    task_id = claim["status"]["taskId"]

    def call(method: str, *args: Any) -> Any:
        scopes = [f"queue:claim-task:{task_id}/0"]
        return client.call(
            method, task_id, "0", *args, credentials=claim["credentials"], authorized_scopes=scopes
        )

    renewed = call("reclaimTask")
    assert renewed["takenUntil"] >= claim["takenUntil"]
    upload_blob(call, "private/blob", b"all that the task said")
    client.call(
        "createArtifact", task_id, "0", *ON_A_RUN["createArtifact"], credentials=renewed["credentials"]
    )
    status = call(report, *reason)["status"]
    assert status["runs"][0]["state"] == {"reportCompleted": "completed", "reportFailed": "failed"}.get(
        report, "exception"
    )


def upload_blob(call: Callable[..., Any], name: str, content: bytes) -> None:
    """createArtifact, the uploads and completeArtifact, as a worker makes them."""
    [upload] = call("createArtifact", name, of_blob(content))["requests"]
    answer = send(upload, content)
    assert answer.status_code == 200, answer.text
    call("completeArtifact", name, {"etags": [answer.headers["etag"]]})


def test_credentials_restricted_to_the_tasks_scopes_can_use_these_and_cannot_report(
    client: RealClient, claimant: Claimant, worker_type: str
) -> None:
    scopes = [f"queue:create-task:lowest:system/{worker_type}", "queue:scheduler-id:-"]
    claim = claimant.by_work(scopes=scopes)
    run, more = (claim["status"]["taskId"], "0"), {"authorized_scopes": claim["task"]["scopes"]}
    mine = claim["credentials"]
    assert refusals(client, run, mine, **more) == {INSUFFICIENT}
    task_id = slugid()
    created = client.call("createTask", task_id, definition(worker_type), credentials=mine, **more)
    assert created["status"]["state"] == "pending"
    elsewhere = slugid(), definition("elsewhere")
    assert refusal(client.call, "createTask", *elsewhere, credentials=mine, **more) == INSUFFICIENT
    assert refusal(client.call, "cancelTask", task_id, credentials=mine, **more) == INSUFFICIENT
    too_much = {"authorized_scopes": [*scopes, "queue:cancel-task:*"]}
    assert refusal(client.call, "cancelTask", task_id, credentials=mine, **too_much) == FAILED


def test_the_credentials_of_a_claim_are_refused_for_any_other_run(
    client: RealClient, claimant: Claimant
) -> None:
    mine, other = claimant.by_task(), claimant.by_work()
    task_id = mine["status"]["taskId"]
    assert refusals(client, (other["status"]["taskId"], "0"), mine["credentials"]) == {INSUFFICIENT}
    client.call("reportException", task_id, "0", REASON, credentials=mine["credentials"])
    client.call("claimTask", task_id, "1", {**WORKER, "workerId": "two"})
    assert refusals(client, (task_id, "1"), mine["credentials"]) == {INSUFFICIENT}


def test_credentials_assembled_from_parts_of_others_are_refused(
    client: RealClient, claimant: Claimant
) -> None:
    claim, other = claimant.by_task(), claimant.by_work()
    mine, theirs = claim["credentials"], other["credentials"]
    certificate, their_certificate = json.loads(mine["certificate"]), json.loads(theirs["certificate"])

    def with_certificate(**changes: Any) -> Json:
        return {**mine, "certificate": json.dumps({**certificate, **changes})}

    wrong = [
        {**mine, "accessToken": theirs["accessToken"]},
        {**mine, "certificate": theirs["certificate"]},
        {**mine, "clientId": theirs["clientId"]},
        {key: mine[key] for key in ("clientId", "accessToken")},
        with_certificate(seed=their_certificate["seed"]),
        with_certificate(signature=their_certificate["signature"]),
        with_certificate(issuer="root"),
        with_certificate(scopes=["*"]),
        with_certificate(scopes=[*certificate["scopes"], *their_certificate["scopes"]]),
        with_certificate(expiry=certificate["expiry"] + 1000),
        with_certificate(start=certificate["start"] - 1000),
    ]
    run = claim["status"]["taskId"], "0"
    assert [refusals(client, run, credentials) for credentials in wrong] == [{FAILED}] * len(wrong)
    client.call("reportCompleted", *run, credentials=mine)


def test_the_credentials_of_a_claim_at_another_server_are_refused(
    client: RealClient, claimant: Claimant, azurite_server: Server, worker_type: str
) -> None:
    claim = claimant.by_task()
    task_id = claim["status"]["taskId"]
    there = Queue(azurite_server)
    there.create(definition(worker_type), task_id)
    foreign = there.claim_by_name(task_id, 0).json()["credentials"]
    there.with_credentials(foreign)
    assert refusals(client, (task_id, "0"), foreign) == {FAILED}


def test_a_worker_claims_work_with_credentials_that_a_client_made(
    client: RealClient, claimant: Claimant, queue: Queue, worker_type: str
) -> None:
    scopes = [f"queue:claim-work:system/{worker_type}", "queue:worker-id:group/*"]
    for name in (None, "worker/one"):
        made = client.temporary(scopes, name=name)
        queue.with_credentials(made)
        task_id = claimant.create()
        wanted = {**WORKER, "tasks": 32}
        [claim] = client.call("claimWork", "system", worker_type, wanted, credentials=made)["tasks"]
        queue.with_credentials(claim["credentials"])
        assert claim["status"]["taskId"] == task_id
        elsewhere = "system", "elsewhere", wanted
        assert refusal(client.call, "claimWork", *elsewhere, credentials=made) == INSUFFICIENT
        assert refusals(client, (task_id, "0"), made) == {INSUFFICIENT}
        client.call("reportCompleted", task_id, "0", credentials=claim["credentials"])


def test_credentials_that_a_client_made_are_refused_outside_their_time_and_from_another_issuer(
    client: RealClient, claimant: Claimant, queue: Queue
) -> None:
    claim = claimant.by_task()
    task_id = claim["status"]["taskId"]
    scopes = [f"queue:claim-task:{task_id}/0"]
    another = {"clientId": queue.credentials["clientId"], "accessToken": "of-another-server-" + "x" * 26}
    unknown = {**another, "clientId": "unknown"}
    wrong = [
        client.temporary(scopes, start=-2 * HOUR, expiry=-HOUR),
        client.temporary(scopes, start=-2 * HOUR, expiry=timedelta(minutes=-6), name="worker/late"),
        client.temporary(scopes, start=HOUR, expiry=2 * HOUR),
        client.temporary(scopes, issuer=another),
        client.temporary(scopes, issuer=unknown),
        client.temporary(scopes, issuer=unknown, name=queue.credentials["clientId"]),
    ]
    assert [refusals(client, (task_id, "0"), credentials) for credentials in wrong] == [{FAILED}] * len(wrong)
    for time in (timedelta(), timedelta(minutes=-4)):  # clocks may differ by five minutes
        late = client.temporary(scopes, start=-2 * HOUR, expiry=time)
        client.call("reclaimTask", task_id, "0", credentials=late)
