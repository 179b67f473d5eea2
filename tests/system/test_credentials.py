"""Temporary credentials of real clients: those of a claim, and those that a client makes itself."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from .http_queue import Json, Queue, definition, in_time
from .real_clients import RealClient, refusal
from .uploads import body, of_blob, send

# does not depend on the storage
pytestmark = pytest.mark.parametrize("server", ["memory"], indirect=True)

WORKER = {"workerGroup": "group", "workerId": "one"}
INSUFFICIENT = 403, "InsufficientScopes"
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
