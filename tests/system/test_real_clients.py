"""Unchanged clients of 2015 to 2018 run a task by the charts of both protocols, and store artifacts."""

import gzip
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import requests

from legacy_queue.domain.ids import slugid
from tests.http.calls import WORKER

from .conftest import EACH_CLIENT
from .http_queue import Queue, in_time
from .processes import LONG
from .real_clients import ClaimedRun, RealClient, refusal

pytestmark = pytest.mark.processes

CONTENT = b'{"all": "that the task said, \xc3\xa4"}'
MIB = 1024**2
LARGE = random.Random(1).randbytes(6 * MIB)
PART = 5 * MIB  # bytes; S3 accepted no smaller part


@EACH_CLIENT
def test_a_real_client_can_create_claim_and_complete_a_task_with_both_protocols(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    assert client.call("ping")["alive"] is True
    task_id, task = slugid(), queue.task_body(workerType=worker_type, scopes=["a:scope"])
    created = client.call("createTask", task_id, task)["status"]
    assert client.call("createTask", task_id, task)["status"] == created
    assert client.call("status", task_id)["status"] == created
    assert client.call("task", task_id)["metadata"] == task["metadata"]
    assert client.call("pendingTasks", "system", worker_type)["pendingTasks"] > 0

    # the draft protocol: the message proves the claim, which holds it even if the worker tries to delete it
    urls = client.call("pollTaskUrls", "system", worker_type)["queues"]
    [message] = [message for pair in urls for message in queue.poll(pair["signedPollUrl"])]
    assert message.run == (task_id, 0)
    claim = client.call("claimTask", task_id, "0", {**WORKER, **message.proof_body})
    assert claim["task"] == client.call("task", task_id)
    delete_url = urls[-1]["signedDeleteUrl"]
    assert queue.delete(delete_url, message.lease).status_code in (400, 404)  # Azurite answers 400, Azure 404
    assert queue.messages(workerType=worker_type) == []
    mine = claim["credentials"]
    reclaim = client.call("reclaimTask", task_id, "0", credentials=mine)
    assert reclaim["takenUntil"] > claim["takenUntil"]
    queue.server.secrets.update((mine["accessToken"], reclaim["credentials"]["accessToken"]))
    stopping = {"reason": "worker-shutdown"}
    client.call("reportException", task_id, "0", stopping, credentials=reclaim["credentials"])

    # the deployed protocol: the worker claims without proof, then deletes the message
    [message] = queue.messages(workerType=worker_type)
    assert message.run == (task_id, 1)
    claim = client.call("claimTask", task_id, "1", WORKER)
    mine = claim["credentials"]
    queue.server.secrets.add(mine["accessToken"])
    assert [queue.delete(delete_url, message.lease).status_code for _ in range(2)] == [204, 404]
    done = client.call("reportCompleted", task_id, "1", credentials=mine)
    assert done["status"]["state"] == "completed"
    assert client.call("status", task_id) == done
    assert client.call("pendingTasks", "system", worker_type)["pendingTasks"] == 0


@EACH_CLIENT
def test_a_real_client_gets_the_status_and_code_of_each_error(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    run = ClaimedRun(queue, client, worker_type)
    task_id, another = run.task_id, {**WORKER, "workerId": "two"}
    wrong = {**queue.server.credentials, "accessToken": "w" * 44}
    mine = run.credentials
    assert refusal(client.call, "status", slugid()) == (404, "ResourceNotFound")
    assert refusal(client.call, "claimTask", task_id, "0", another) == (409, "RequestConflict")
    assert refusal(client.call, "createTask", task_id, queue.task_body()) == (409, "RequestConflict")
    assert refusal(client.call, "createTask", slugid(), {}) == (400, "InputValidationError")
    assert refusal(client.call, "cancelTask", task_id, credentials=mine) == (403, "InsufficientScopes")
    assert refusal(client.call, "cancelTask", task_id, credentials=wrong) == (401, "AuthenticationFailed")
    assert queue.runs(task_id) == [("running", None)]


@EACH_CLIENT
def test_a_real_client_can_define_schedule_and_rerun_a_task_and_list_its_group_and_dependents(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    first, second, third = sorted(slugid() for _ in range(3))
    task = queue.task_body(workerType=worker_type, taskGroupId=first, schedulerId="scheduler")
    defined = client.call("defineTask", first, task)["status"]
    assert (defined["state"], defined["runs"]) == ("unscheduled", [])
    for task_id in (second, third):
        waiting = client.call("createTask", task_id, {**task, "dependencies": [first]})["status"]
        assert waiting["state"] == "unscheduled"
    assert client.call("scheduleTask", first)["status"]["state"] == "pending"
    assert client.call("cancelTask", first)["status"]["state"] == "exception"
    rerun = client.call("rerunTask", first)["status"]
    assert [run["reasonCreated"] for run in rerun["runs"]] == ["scheduled", "rerun"]
    # a defined task depends on itself
    for method in ("listTaskGroup", "listDependentTasks"):
        pages = [client.call(method, first, query={"limit": 1})]
        while token := pages[-1].get("continuationToken"):
            pages.append(client.call(method, first, query={"limit": 1, "continuationToken": token}))
        assert [len(page["tasks"]) for page in pages if page["tasks"]] == [1, 1, 1]
        for entry, task_id in zip(client.call(method, first)["tasks"], (first, second, third), strict=True):
            assert entry["status"] == client.call("status", task_id)["status"]
            assert entry["task"] == client.call("task", task_id)


@EACH_CLIENT
def test_a_real_client_can_download_an_s3_artifact(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    run = ClaimedRun(queue, client, worker_type)
    run.put("public/a.json", CONTENT, contentType="application/json")
    url = client.url("getArtifact", run.task_id, "0", "public/a.json")
    redirect = requests.get(url, allow_redirects=False, timeout=LONG)
    assert redirect.status_code == 303
    assert redirect.headers["x-taskcluster-artifact-storage-type"] == "s3"
    downloaded = requests.get(url, timeout=LONG)
    assert (downloaded.status_code, downloaded.content) == (200, CONTENT)
    assert downloaded.headers["content-type"] == "application/json"
    # these clients follow the redirect and parse the artifact as if it were the answer
    assert run.call("getArtifact", "public/a.json") == downloaded.json()


@EACH_CLIENT
def test_a_blob_in_parts_can_be_downloaded_when_it_is_completed(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    run, parts = ClaimedRun(queue, client, worker_type), (LARGE[:PART], LARGE[PART:])
    created = run.create_blob("public/blob", *parts)
    assert refusal(run.call, "completeArtifact", "public/blob", {"etags": ["x", "x"]})[0] == 400
    assert refusal(run.call, "reportCompleted") == (409, "RequestConflict")
    forged = run.send(created["requests"][-1], bytes(len(parts[-1])))
    assert forged.status_code == 400  # the SHA-256 does not match
    etags = [run.send(*upload).headers["etag"] for upload in zip(created["requests"], parts, strict=True)]
    for _ in range(2):
        assert run.call("completeArtifact", "public/blob", {"etags": etags}) is None
    downloaded = run.get("public/blob")
    assert downloaded.content == LARGE
    assert downloaded.headers["x-amz-meta-content-length"] == str(len(LARGE))
    assert downloaded.headers["x-amz-meta-content-sha256"] == sha256(LARGE).hexdigest()
    assert run.call("reportCompleted")["status"]["state"] == "completed"


# only the JavaScript clients have this method
@pytest.mark.parametrize(
    ("server", "client"), [("embedded", "npm-4.1.0"), ("azurite", "npm-11.0.0")], indirect=True
)
@pytest.mark.parametrize("file", [{"compression": "gzip"}, {"partSize": PART}], ids=["gzip", "multipart"])
def test_the_upload_library_of_2018_can_upload_a_blob(
    queue: Queue, client: RealClient, worker_type: str, tmp_path: Path, file: dict[str, Any]
) -> None:
    run, content = ClaimedRun(queue, client, worker_type), LARGE if "partSize" in file else CONTENT * 1000
    (tmp_path / "file").write_bytes(content)
    settings = {"contentType": "text/plain", "expires": in_time(hours=1)}
    named = {"name": str(tmp_path / "file"), **file}
    etags = client.call("", run.task_id, "0", "public/file", settings, named, job="upload")
    assert len(etags) == (2 if "partSize" in file else 1)

    url = client.url("getLatestArtifact", run.task_id, "public/file")
    downloaded = requests.get(url, headers={"Accept-Encoding": "identity"}, stream=True, timeout=LONG)
    assert downloaded.headers.get("content-encoding") == file.get("compression")
    raw = downloaded.raw.read()
    assert (gzip.decompress(raw) if "compression" in file else raw) == content
    headers = downloaded.history[0].headers
    assert headers["x-taskcluster-location-content-length"] == str(len(content))
    assert headers["x-taskcluster-location-transfer-length"] == str(len(raw))
    assert headers["x-taskcluster-location-content-encoding"] == file.get("compression", "identity")
