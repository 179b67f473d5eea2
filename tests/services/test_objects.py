"""Artifacts of the type ``object``: uploaded and finished as an object, then finished by the queue."""

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from legacy_queue.domain.artifact import ObjectArtifact
from legacy_queue.domain.errors import (
    InputError,
    NoMatchingMethod,
    RequestConflict,
    ResourceExpired,
    ResourceNotFound,
)
from legacy_queue.domain.times import format_time
from tests.services.artifact_calls import CONTENT, NAME, create, sha256, upload
from tests.services.harness import HOUR, MINUTE, NOW, Harness

HTML = "text/html"
HASHES = {"sha256": sha256(CONTENT)}
PUT_URL = {"putUrl": {"contentType": HTML, "contentLength": len(CONTENT)}}
INLINE = {"dataInline": {"contentType": HTML, "objectData": base64.b64encode(CONTENT).decode()}}


class Run:
    """A claimed task with an object artifact."""

    def __init__(self, **changes: Any) -> None:
        self.harness = Harness()
        self.task_id = self.harness.claimed(**changes)
        self.created = create(self.harness, self.task_id, "object")
        self.name = self.created["name"]
        self.services = self.harness.services
        self.harness.events()

    @property
    def artifact(self) -> ObjectArtifact:
        stored = self.harness.storage.artifacts.load(self.task_id, 0, NAME)
        assert stored
        assert isinstance(stored.artifact, ObjectArtifact)
        return stored.artifact

    @property
    def content(self) -> bytes:
        return b"".join(self.harness.storage.blobs.read(self.artifact.blob_name))

    def upload_of(self, **changes: Any) -> dict[str, Any]:
        upload = {key: self.created[key] for key in ("projectId", "uploadId")}
        return {**upload, **changes}

    def create_upload(self, methods: Mapping[str, Any], **changes: Any) -> Any:
        upload = self.upload_of(expires=self.created["expires"], proposedUploadMethods=methods, **changes)
        return self.services.objects.create_upload(self.name, upload)

    def finish_upload(self, **changes: Any) -> None:
        self.services.objects.finish_upload(self.name, self.upload_of(hashes=HASHES, **changes))

    def finish(self) -> None:
        self.services.artifacts.finish(self.task_id, 0, NAME, self.created["uploadId"])

    def report(self) -> str:
        return self.services.tasks.report(self.task_id, 0, "completed", "completed").state


def test_an_object_is_available_once_its_upload_and_artifact_are_finished() -> None:
    run = Run()
    answer = run.create_upload({**PUT_URL, **INLINE})
    assert answer == {
        **run.upload_of(),
        "expires": run.created["expires"],
        "uploadMethod": {"dataInline": True},
    }
    assert run.content == CONTENT
    with pytest.raises(ResourceNotFound, match="finish its upload"):
        run.services.objects.find(run.name)
    run.finish_upload()
    assert run.services.objects.find(run.name) == run.artifact
    with pytest.raises(ResourceNotFound, match="is not complete"):
        run.services.artifacts.find(run.task_id, 0, NAME)
    for _ in range(2):
        run.finish()
        assert run.harness.events() == [("artifact-created", run.task_id, 0)]
    found = run.services.artifacts.find(run.task_id, 0, NAME)
    assert f"/{run.artifact.blob_name}?" in str(found.url)
    assert run.services.objects.access(run.artifact)["name"] == run.name


def test_create_upload_without_a_method_stores_nothing() -> None:
    run = Run()
    assert run.create_upload({})["uploadMethod"] == {}
    assert run.harness.storage.blobs.properties(run.artifact.blob_name) is None


def test_inline_data_that_is_not_base64_is_refused() -> None:
    run = Run()
    for data in ("x", "?===", "eA==x"):
        with pytest.raises(InputError, match="not base64"):
            run.create_upload({"dataInline": {"contentType": HTML, "objectData": data}})


def test_the_content_of_a_finished_upload_cannot_be_replaced() -> None:
    run = Run()
    url = run.create_upload(PUT_URL)["uploadMethod"]["putUrl"]["url"]
    upload(run.harness, url, content_type=HTML)
    for _ in range(2):
        run.finish_upload()
    for replacing in (lambda: run.create_upload(INLINE), lambda: upload(run.harness, url, content_type=HTML)):
        with pytest.raises(RequestConflict, match="can't be replaced"):
            replacing()


def test_an_upload_without_content_cannot_be_finished() -> None:
    run = Run()
    run.create_upload(PUT_URL)
    with pytest.raises(RequestConflict, match="not uploaded yet"):
        run.finish_upload()


def test_finish_needs_an_object_a_finished_upload_and_its_upload_id() -> None:
    run = Run()
    finish = run.services.artifacts.finish
    run.create_upload(INLINE)
    with pytest.raises(InputError, match="is not finished: call finishUpload"):
        run.finish()
    run.finish_upload()
    with pytest.raises(InputError, match="differs from the uploadId that createArtifact answered"):
        finish(run.task_id, 0, NAME, "another")
    create(run.harness, run.task_id, "s3", "log")
    with pytest.raises(InputError, match="storage type s3: uploadId is for an object"):
        finish(run.task_id, 0, "log", "any")
    with pytest.raises(InputError, match="storage type object: etags are for a blob"):
        run.services.artifacts.complete(run.task_id, 0, NAME, [])


def test_inline_data_for_a_resolved_run_is_refused() -> None:
    run = Run()
    run.services.tasks.report(run.task_id, 0, "failed", "failed")
    with pytest.raises(RequestConflict, match="is failed"):
        run.create_upload(INLINE)


def test_an_object_is_downloaded_from_a_signed_url_with_its_hashes() -> None:
    run = Run()
    run.create_upload(INLINE)
    run.finish_upload()
    answer = run.services.objects.start_download(run.name, {"getUrl": True, "simple": True})
    assert f"/{run.artifact.blob_name}?" in answer["url"]
    assert {**answer, "url": ""} == {
        "method": "getUrl",
        "url": "",
        "expires": format_time(NOW + 45 * MINUTE),
        "hashes": HASHES,
    }
    assert run.services.objects.start_download(run.name, {"simple": True}).keys() == {"method", "url"}
    with pytest.raises(NoMatchingMethod):
        run.services.objects.start_download(run.name, {})


def test_only_an_unexpired_artifact_of_the_type_object_is_an_object() -> None:
    run = Run()
    create(run.harness, run.task_id, "s3", "log")
    for name in (f"t/{run.task_id}/0/log", f"t/{run.task_id}/0/other", f"t/{run.task_id}/1/{NAME}"):
        with pytest.raises(ResourceNotFound, match="there is no object"):
            run.services.objects.find(name)
    run.create_upload(INLINE)
    run.finish_upload()
    run.harness.clock.advance(HOUR)
    with pytest.raises(ResourceNotFound, match="there is no object"):
        run.services.objects.find(run.name)
    with pytest.raises(ResourceExpired):
        run.finish()
