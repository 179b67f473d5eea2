"""The content of an artifact without a redirect, the information about it, and links to it."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from legacy_queue.domain.ids import slugid
from tests.http.calls import BLOB, ROOT, TODAY, WORKER, Queue, refused, succeeded, temporary

CONTENTS = [("artifact", {"runId": 0}), ("latestArtifact", {})]
INFOS = [("artifactInfo", {"runId": 0}), ("latestArtifactInfo", {})]
GETS = [("getArtifact", {"runId": 0}), ("getLatestArtifact", {})]
each_content = pytest.mark.parametrize(("call", "of_run"), CONTENTS, ids=[call for call, _ in CONTENTS])
each_info = pytest.mark.parametrize(("call", "of_run"), INFOS, ids=[call for call, _ in INFOS])
following = pytest.mark.parametrize(
    ("call", "of_run"), CONTENTS + GETS, ids=[call for call, _ in CONTENTS + GETS]
)


def links(queue: Queue, task_id: str, *names: str) -> None:
    """Each name but the last is a link to the next name."""
    for name, target in pairwise(names):
        succeeded(queue.artifact(task_id, name, "link", artifact=target))


@each_content
@pytest.mark.parametrize("storage_type", ["s3", "azure", "blob"])
def test_a_stored_artifact_is_answered_as_s3_with_a_signed_url(
    queue: Queue, call: str, of_run: dict[str, Any], storage_type: str
) -> None:
    task_id = queue.running()
    if storage_type == "blob":
        etags = queue.uploaded_blob(task_id, "public/a")
        answer = queue.call(call, taskId=task_id, name="public/a", credentials=None, **of_run)
        refused(answer, 404, "ResourceNotFound", "is not complete")
        succeeded(queue.call("completeArtifact", {"etags": etags}, taskId=task_id, runId=0, name="public/a"))
    else:
        succeeded(queue.artifact(task_id, "public/a", storage_type))
    answer = succeeded(queue.call(call, taskId=task_id, name="public/a", credentials=None, **of_run))
    content = answer.get_json()
    assert content.keys() == {"storageType", "url"}
    assert content["storageType"] == "s3"
    assert "&sig=" in content["url"] or "?signature=" in content["url"]


@each_content
def test_a_reference_and_an_error_are_answered_as_they_were_created(
    queue: Queue, call: str, of_run: dict[str, Any]
) -> None:
    task_id = queue.running()
    for storage_type in ("reference", "error"):
        succeeded(queue.artifact(task_id, storage_type, storage_type))
    contents = [
        succeeded(queue.call(call, taskId=task_id, name=name, **of_run)).get_json()
        for name in ("reference", "error")
    ]
    assert contents == [
        {"storageType": "reference", "url": "https://elsewhere.example.com/live.log"},
        {"storageType": "error", "reason": "file-missing-on-worker", "message": "there is no such file"},
    ]


@following
def test_a_link_leads_to_the_content_of_its_target(queue: Queue, call: str, of_run: dict[str, Any]) -> None:
    task_id = queue.running()
    links(queue, task_id, "public/one", "public/two", "public/three")
    at_the_end = queue.call(call, taskId=task_id, name="public/one", credentials=None, **of_run)
    refused(at_the_end, 404, "ResourceNotFound", "no artifact 'public/three'")
    succeeded(queue.artifact(task_id, "public/three", "reference"))
    answer = succeeded(queue.call(call, taskId=task_id, name="public/one", credentials=None, **of_run))
    assert answer.get_json() == {"storageType": "reference", "url": "https://elsewhere.example.com/live.log"}
    assert answer.headers.get("location", answer.get_json()["url"]) == answer.get_json()["url"]
    assert answer.headers.get("x-taskcluster-artifact-storage-type", "reference") == "reference"


@following
def test_a_public_link_does_not_open_a_private_target(
    queue: Queue, call: str, of_run: dict[str, Any]
) -> None:
    task_id = queue.running()
    links(queue, task_id, "public/a", "private/b", "private/c")
    succeeded(queue.artifact(task_id, "private/c", "reference"))
    asked = {"taskId": task_id, "name": "public/a", **of_run}
    refused(queue.call(call, credentials=None, **asked), 403, "InsufficientScopes", "private/b")
    some = temporary(ROOT, ["queue:get-artifact:private/b"])
    refused(queue.call(call, credentials=some, **asked), 403, "InsufficientScopes", "private/c")
    succeeded(queue.call(call, credentials=temporary(ROOT, ["queue:get-artifact:private/*"]), **asked))


def test_more_than_sixteen_links_and_a_circle_of_links_are_refused(queue: Queue) -> None:
    task_id = queue.running()
    names = [f"public/{number}" for number in range(18)]
    links(queue, task_id, *names)
    succeeded(queue.artifact(task_id, names[-1], "reference"))
    links(queue, task_id, "a", "b", "a")

    def get(name: str) -> Any:
        return queue.call("artifact", taskId=task_id, runId=0, name=name)

    succeeded(get("public/1"))
    for name in ("public/0", "a"):
        refused(get(name), 400, "InputError", f"{name!r} leads through more than 16 links, or in a circle")


@each_info
def test_the_information_of_an_artifact_is_its_entry_in_the_list(
    queue: Queue, call: str, of_run: dict[str, Any]
) -> None:
    task_id = queue.running()
    for storage_type in ("s3", "azure", "reference", "link", "error"):
        succeeded(queue.artifact(task_id, storage_type, storage_type))
    answer = queue.call("listArtifacts", taskId=task_id, runId=0, prefix=TODAY)
    listed = succeeded(answer).get_json()["artifacts"]
    assert len(listed) == 5
    for artifact in listed:
        answer = queue.call(call, taskId=task_id, name=artifact["name"], credentials=None, **of_run)
        assert succeeded(answer).get_json() == artifact


@each_info
def test_a_missing_incomplete_or_expired_artifact_has_no_information(
    queue: Queue, call: str, of_run: dict[str, Any]
) -> None:
    task_id = queue.running()
    succeeded(queue.artifact(task_id, "s3"))
    queue.uploaded_blob(task_id, "blob", BLOB)

    def info(task_id: str, name: str) -> Any:
        return queue.call(call, taskId=task_id, name=name, **of_run)

    refused(info(task_id, "other"), 404, "ResourceNotFound", "there is no artifact 'other'")
    refused(info(task_id, "blob"), 404, "ResourceNotFound", "is not complete")
    refused(info(slugid(), "s3"), 404, "ResourceNotFound")
    queue.clock.advance(timedelta(hours=1))
    refused(info(task_id, "s3"), 410, "ResourceExpired")


def test_the_latest_artifact_is_that_of_the_last_run(queue: Queue) -> None:
    task_id = queue.running()
    succeeded(queue.artifact(task_id, "a", "reference"))
    succeeded(queue.call("reportException", {"reason": "worker-shutdown"}, taskId=task_id, runId=0))
    for call in ("latestArtifact", "latestArtifactInfo"):
        refused(queue.call(call, taskId=task_id, name="a"), 404, "ResourceNotFound", "of run 1")
    succeeded(queue.call("claimTask", WORKER, taskId=task_id, runId=1))
    body = {"storageType": "link", "artifact": "b", "expires": queue.definition(task_id)["deadline"]}
    succeeded(queue.call("createArtifact", body, taskId=task_id, runId=1, name="a"))
    info = succeeded(queue.call("latestArtifactInfo", taskId=task_id, name="a")).get_json()
    assert (info["storageType"], info["contentType"]) == ("link", "application/binary")
