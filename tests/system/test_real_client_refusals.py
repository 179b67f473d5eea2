"""The refusals of claimWork and of the endpoints about artifacts, with real clients."""

from typing import Any

import pytest

from .http_queue import Queue, in_time, slugid
from .processes import wait_until
from .real_clients import RealClient, refusal
from .uploads import Run, body, claimed, of_blob

# does not depend on the storage
pytestmark = pytest.mark.parametrize("server", ["memory"], indirect=True)

INVALID, INPUT = (400, "InputValidationError"), (400, "InputError")
ARGUMENTS = 400, "InvalidRequestArguments"
FAILED, SCOPES = (401, "AuthenticationFailed"), (403, "InsufficientScopes")
NOT_FOUND, CONFLICT = (404, "ResourceNotFound"), (409, "RequestConflict")
EXPIRED, TOO_LARGE = (410, "ResourceExpired"), (413, "InputTooLarge")

CONTENT = b"all that the task said"
S3, BLOB, ETAGS = (
    body("s3", expires=in_time(days=1)),
    of_blob(CONTENT, expires=in_time(days=1)),
    {"etags": ["x"]},
)
UNKNOWN = slugid()


@pytest.fixture
def run(queue: Queue, client: RealClient, worker_type: str) -> Run:
    """A run with the blob public/blob, which is not uploaded, and the reference public/reference."""
    run = claimed(queue, client, worker_type)
    run.call("createArtifact", "public/blob", BLOB)
    run.call("createArtifact", "public/reference", body("reference"))
    return run


def test_a_wrong_create_artifact_or_complete_artifact_is_refused_with_its_code(run: Run) -> None:
    many = {"etags": [f"{BLOB['contentSha256']}-{BLOB['contentLength']}"]}
    creating: list[tuple[str, Any, tuple[int, str]]] = [
        ("public/a", {}, INVALID),
        ("public/a", body("paper"), INVALID),
        ("public/a", body("s3", expires="tomorrow"), INVALID),
        ("public/a", body("s3", url="https://example.com/"), INVALID),
        ("public/a", body("error", reason="it-did-not-work"), INVALID),
        ("public/a", body("s3", expires=in_time(hours=-1)), INPUT),
        ("public/a", body("s3", expires=in_time(days=1000)), INPUT),
        ("public/a", {**BLOB, "contentEncoding": "gzip"}, INPUT),
        ("public/\x7f", S3, ARGUMENTS),
        ("n" * 1025, S3, ARGUMENTS),
        ("public/reference", S3, CONFLICT),
        ("public/blob", of_blob(b"another", expires=BLOB["expires"]), CONFLICT),
        ("public/a", {**BLOB, "contentLength": 2**53}, TOO_LARGE),
    ]
    completing: list[tuple[str, Any, tuple[int, str]]] = [
        ("public/blob", {}, INVALID),
        ("public/blob", ETAGS, INPUT),
        ("public/reference", ETAGS, INPUT),
        ("public/blob", many, CONFLICT),  # the right ETags, but nothing is uploaded
        ("public/none", ETAGS, NOT_FOUND),
    ]
    for method, attempts in (("createArtifact", creating), ("completeArtifact", completing)):
        for name, artifact, expected in attempts:
            assert run.refusal(method, name, artifact) == expected, (method, name, artifact)
    [listed] = run.client.pages("listArtifacts", run.task_id, "0")
    assert {artifact["name"] for artifact in listed["artifacts"]} == {"public/blob", "public/reference"}


def test_create_artifact_and_complete_artifact_need_the_claim_of_the_run(run: Run) -> None:
    call = run.client.call
    other_run = run.client.temporary([f"queue:claim-task:{run.task_id}/1"])
    wrong = {**run.credentials, "accessToken": "w" * 44}
    for method, content in (("createArtifact", BLOB), ("completeArtifact", ETAGS)):
        arguments = run.task_id, "0", "public/blob", content
        assert refusal(call, method, *arguments, credentials=other_run) == SCOPES
        assert refusal(call, method, *arguments, credentials=wrong) == FAILED
        for run_id, expected in (("7", INPUT), ("x", ARGUMENTS), ("1001", ARGUMENTS)):
            assert refusal(call, method, run.task_id, run_id, "public/blob", content) == expected
        assert refusal(call, method, UNKNOWN, "0", "public/blob", content) == NOT_FOUND
        assert refusal(call, method, "x", "0", "public/blob", content) == ARGUMENTS
    assert refusal(call, "reportCompleted", run.task_id, "0") == CONFLICT  # the blob is not complete


def test_a_wrong_get_artifact_or_list_artifacts_is_refused_with_its_code(run: Run) -> None:
    client, wrong = run.client, {**run.credentials, "accessToken": "w" * 44}
    getting: list[tuple[tuple[str, ...], tuple[int, str]]] = [
        (("getArtifact", run.task_id, "0", "public/blob"), NOT_FOUND),  # it is not complete
        (("getArtifact", run.task_id, "0", "public/none"), NOT_FOUND),
        (("getArtifact", run.task_id, "1", "public/blob"), NOT_FOUND),
        (("getArtifact", UNKNOWN, "0", "public/blob"), NOT_FOUND),
        (("getArtifact", run.task_id, "0", "private/none"), SCOPES),
        (("getArtifact", run.task_id, "0", "public/\x7f"), ARGUMENTS),
        (("getArtifact", run.task_id, "x", "public/blob"), ARGUMENTS),
        (("getLatestArtifact", run.task_id, "public/none"), NOT_FOUND),
        (("getLatestArtifact", UNKNOWN, "public/none"), NOT_FOUND),
        (("getLatestArtifact", run.task_id, "private/none"), SCOPES),
        (("getLatestArtifact", "x", "public/none"), ARGUMENTS),
        (("listArtifacts", UNKNOWN, "0"), NOT_FOUND),
        (("listArtifacts", run.task_id, "1"), NOT_FOUND),
        (("listArtifacts", run.task_id, "x"), ARGUMENTS),
        (("listLatestArtifacts", UNKNOWN), NOT_FOUND),
        (("listLatestArtifacts", "x"), ARGUMENTS),
    ]
    for call, expected in getting:
        assert refusal(client.call, *call, credentials=run.credentials) == expected, call
        without_scopes = FAILED if expected == SCOPES else expected
        assert refusal(client.call, *call, credentials=wrong) == without_scopes, call
    queries: list[dict[str, Any]] = [{"limit": 0}, {"limit": 1001}, {"continuationToken": "forged"}]
    for query in queries:
        for call in (("listArtifacts", run.task_id, "0"), ("listLatestArtifacts", run.task_id)):
            assert refusal(client.pages, *call, **query) == ARGUMENTS, (call, query)


def test_an_expired_artifact_is_answered_410_until_it_is_created_again(run: Run) -> None:
    brief = of_blob(CONTENT, expires=in_time(seconds=2))
    run.call("createArtifact", "public/brief", brief)
    wait_until(lambda: run.redirect("public/brief").status_code == 410)
    assert run.refusal("getArtifact", "public/brief") == EXPIRED
    assert refusal(run.client.call, "getLatestArtifact", run.task_id, "public/brief") == EXPIRED
    assert run.refusal("completeArtifact", "public/brief", ETAGS) == EXPIRED
    assert run.refusal("createArtifact", "public/brief", S3) == CONFLICT
    run.call("createArtifact", "public/brief", of_blob(CONTENT))
    assert run.refusal("getArtifact", "public/brief") == NOT_FOUND  # created again, not completed


def test_a_wrong_claim_work_is_refused_with_its_code(
    queue: Queue, client: RealClient, worker_type: str
) -> None:
    worker = {"workerGroup": "group", "workerId": "one", "tasks": 1}
    wrong = {**queue.credentials, "accessToken": "w" * 44}
    elsewhere = client.temporary(["queue:claim-work:system/elsewhere", "queue:worker-id:group/one"])
    another = client.temporary([f"queue:claim-work:system/{worker_type}", "queue:worker-id:group/two"])
    attempts: list[tuple[Any, Any, tuple[int, str]]] = [
        ({**worker, "tasks": 0}, None, INVALID),
        ({**worker, "tasks": 33}, None, INVALID),
        ({**worker, "workerId": "no.t"}, None, INVALID),
        ({"workerId": "one"}, None, INVALID),
        (worker, wrong, FAILED),
        (worker, elsewhere, SCOPES),
        (worker, another, SCOPES),
    ]
    for request, credentials, expected in attempts:
        call = "claimWork", "system", worker_type, request
        assert refusal(client.call, *call, credentials=credentials) == expected, request
    too_long = "claimWork", "system", "w" * 39, worker
    assert refusal(client.call, *too_long) == ARGUMENTS
