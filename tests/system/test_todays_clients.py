"""The newest clients of the queue, unchanged."""

import base64
import random
from collections.abc import Callable

import pytest
import requests

from legacy_queue.domain.ids import slugid
from tests.http.calls import artifact_body

from .conftest import EACH_NEWEST_CLIENT
from .http_queue import Queue
from .processes import LONG, Server
from .real_clients import ClaimedRun, RealClient

pytestmark = pytest.mark.processes

WORKER = {"workerGroup": "northamerica-northeast1-a", "workerId": "4611686018427387904"}
CONTENT = b"all that the task said\n"
LARGE = random.Random(2).randbytes(5 * 1024**2)  # too large for an inline upload and for one block


@EACH_NEWEST_CLIENT
def test_the_newest_client_can_create_claim_and_complete_a_task(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    pool, task_id = f"system/{worker_type}", slugid()
    named = {"provisionerId": None, "workerType": None, "taskQueueId": pool}
    created = client.call("createTask", task_id, queue.task_body(**named, projectId="a-project"))["status"]
    assert (created["taskQueueId"], created["projectId"]) == (pool, "a-project")
    assert (created["provisionerId"], created["workerType"]) == ("system", worker_type)
    assert client.call("task", task_id)["taskQueueId"] == pool
    assert client.call("pendingTasks", pool)["pendingTasks"] == 1

    [claim] = client.call("claimWork", pool, {**WORKER, "tasks": 4})["tasks"]
    assert claim["status"]["runs"][0]["workerGroup"] == WORKER["workerGroup"]
    counts = client.call("taskQueueCounts", pool)
    assert (counts["pendingTasks"], counts["claimedTasks"]) == (0, 1)
    reclaim = client.call("reclaimTask", task_id, "0", credentials=claim["credentials"])
    queue.server.secrets.update(each["credentials"]["accessToken"] for each in (claim, reclaim))
    done = client.call("reportCompleted", task_id, "0", credentials=reclaim["credentials"])
    assert done["status"]["state"] == "completed"
    assert client.call("status", task_id) == done


@EACH_NEWEST_CLIENT
def test_each_method_of_the_newest_clients_has_a_route(server: Server, client: RealClient) -> None:
    reference = requests.get(f"{server.root_url}/references/queue/v1/api.json", timeout=LONG).json()
    served = {(entry["method"].upper(), entry["name"]) for entry in reference["entries"]}
    called = {(method, name) for name, (method, _) in client.call("", job="methods").items()}
    assert called - served == set()


@pytest.fixture
def run(
    queue: Queue, clients: Callable[[str, Server], RealClient], server: Server, worker_type: str
) -> ClaimedRun:
    """A run that an older client claimed."""
    return ClaimedRun(queue, clients("pypi-3.0.2", server), worker_type)


@EACH_NEWEST_CLIENT
@pytest.mark.parametrize("data", [CONTENT, LARGE], ids=["inline", "put"])
def test_the_newest_clients_own_functions_can_upload_and_download_an_object(
    queue: Queue, run: ClaimedRun, client: RealClient, data: bytes
) -> None:
    artifact = artifact_body("object", queue.now(), contentType="application/octet-stream")
    content = base64.b64encode(data).decode()
    client.call("", run.task_id, "0", "public/an object", artifact, content, job="putObject")
    for run_id in ("0", None):
        assert client.download(run.task_id, run_id, "public/an object") == (data, "application/octet-stream")
    assert run.get("public/an object").content == data
    assert run.call("reportCompleted")["status"]["state"] == "completed"


@EACH_NEWEST_CLIENT
def test_the_newest_clients_can_download_artifacts_that_a_legacy_worker_created(
    run: ClaimedRun, client: RealClient
) -> None:
    run.put("public/s3", CONTENT)
    headers = {"Content-Type": "text/plain", "x-ms-blob-type": "BlockBlob"}
    put_url = run.create("public/azure", "azure")["putUrl"]
    assert requests.put(put_url, CONTENT, headers=headers, timeout=LONG).status_code == 201
    created = run.create_blob("public/blob", CONTENT)
    etag = run.send(created["requests"][0], CONTENT).headers["etag"]
    run.call("completeArtifact", "public/blob", {"etags": [etag]})
    run.create(
        "public/reference", "reference", url=run.client.url("getArtifact", run.task_id, "0", "public/s3")
    )
    run.create("public/link", "link", artifact="public/blob")
    run.create("public/error", "error")
    for name in ("s3", "azure", "blob", "reference", "link"):
        content, content_type = client.download(run.task_id, "0", f"public/{name}")
        assert (name, content, content_type.partition(";")[0]) == (name, CONTENT, "text/plain")
    failed = client.call("", run.task_id, "0", "public/error", job="download")
    assert failed == {"reason": "too-large-file-on-worker"}
