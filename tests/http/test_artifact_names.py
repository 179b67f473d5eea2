"""Names of artifacts are data: docs/explanation/legacy-clients.md#requests."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.http.calls import ROOT_URL, Queue, artifact_body, refused, succeeded

NAMES = [
    "public/logs/live.log",
    ".",
    "..",
    "../../../etc/passwd",
    "public/../private",
    "/",
    "//",
    "/a",
    "a/",
    "a//b",
    "a/b",
    "a b",
    " ",
    "a+b",
    "<b>'\"&|\\^`{}[]~!$*(),;:@=",
    "runs/0/artifacts/x",
    "x/claim",
    "a" * 1024,
    "b" * 1023 + "/",
    "/" * 1024,
]
INVALID = ["", "\x00", "a\nb", "a\x7f", "\u00e4", "\u2028", "a" * 1025]


@pytest.mark.parametrize("name", NAMES)
def test_a_slash_in_a_name_may_be_encoded_or_not(name: str) -> None:
    queue = Queue()
    task_id = queue.running()
    succeeded(queue.artifact(task_id, name, "reference"))
    for written in (quote(name, safe="/"), quote(name, safe=""), quote(name, safe="/~!$&'()*+,=:@")):
        for of in ("/runs/0", ""):
            answer = queue.send("GET", f"/v1/task/{task_id}{of}/artifacts/{written}")
            assert answer.status_code == 303, written


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_name_is_refused(queue: Queue, name: str) -> None:
    task_id = queue.running()
    params: dict[str, Any] = {"taskId": task_id, "name": name}
    for answer in (
        queue.call("createArtifact", artifact_body("s3"), runId=0, **params),
        queue.call("completeArtifact", {"etags": []}, runId=0, **params),
        queue.call("getArtifact", runId=0, **params),
        queue.call("getLatestArtifact", **params),
    ):
        refused(answer, 400, "InvalidRequestArguments", "name is")


def test_a_hawk_header_covers_one_spelling_of_a_name() -> None:
    queue = Queue()
    task_id = queue.running()
    for name in ("a/b", "a%2Fb"):
        succeeded(queue.artifact(task_id, name, "reference"))
    of_run = f"/v1/task/{task_id}/runs/0/artifacts/"
    signed = f"{ROOT_URL}{of_run}a%2Fb"
    assert queue.send("GET", f"{of_run}a%2Fb", signed_url=signed).status_code == 303
    for other in ("a/b", "a%2fb", "a%252Fb", "%61%2Fb"):
        refused(queue.send("GET", of_run + other, signed_url=signed), 401, "AuthenticationFailed")
