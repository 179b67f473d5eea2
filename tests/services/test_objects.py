"""Artifacts of the type ``object``, the check of a blob in parts, and the limits on concurrent uploads."""

import base64
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain import errors
from legacy_queue.domain.artifact import BlobArtifact, ObjectArtifact
from legacy_queue.domain.times import format_time
from legacy_queue.services.artifacts.blob_checks import BlobChecks
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from tests.domain.sample_tasks import HOUR, MINUTE, NOW
from tests.services.artifact_calls import CONTENT, NAME, create, in_parts, sha256, stored, upload
from tests.services.harness import Harness

HTML = "text/html"
HASHES = {"sha256": sha256(CONTENT)}
PUT_URL = {"putUrl": {"contentType": HTML, "contentLength": len(CONTENT)}}
INLINE = {"dataInline": {"contentType": HTML, "objectData": base64.b64encode(CONTENT).decode()}}


class Run:
    def __init__(self, **changes: Any) -> None:
        self.harness = Harness()
        self.task_id = self.harness.claimed(**changes)
        self.created = create(self.harness, self.task_id, "object")
        self.name = self.created["name"]
        self.services = self.harness.services
        self.harness.events()

    @property
    def artifact(self) -> ObjectArtifact:
        artifact = stored(self.harness, self.task_id).artifact
        assert isinstance(artifact, ObjectArtifact)
        return artifact

    @property
    def content(self) -> bytes:
        return b"".join(self.harness.storage.blobs.read(self.artifact.blob_name))

    def upload_of(self, **changes: Any) -> dict[str, Any]:
        return {key: self.created[key] for key in ("projectId", "uploadId")} | changes

    def create_upload(self, methods: Mapping[str, Any], **changes: Any) -> Any:
        upload = self.upload_of(expires=self.created["expires"], proposedUploadMethods=methods, **changes)
        return self.services.objects.create_upload(self.name, upload)

    def finish_upload(self, **changes: Any) -> None:
        self.services.objects.finish_upload(self.name, self.upload_of(hashes=HASHES, **changes))

    def finish(self) -> None:
        self.services.artifacts.finish(self.task_id, 0, NAME, self.created["uploadId"])


@pytest.fixture
def run() -> Run:
    return Run()


def test_an_object_is_available_when_its_upload_and_its_artifact_are_finished(run: Run) -> None:
    assert run.create_upload({**PUT_URL, **INLINE})["uploadMethod"] == {"dataInline": True}
    assert run.content == CONTENT
    with pytest.raises(errors.ResourceNotFound, match="finish its upload"):
        run.services.objects.find(run.name)
    run.finish_upload()
    assert run.services.objects.find(run.name) == run.artifact
    with pytest.raises(errors.ResourceNotFound, match="is not complete"):
        run.services.artifacts.find(run.task_id, 0, NAME)
    for _ in range(2):
        run.finish()
        assert run.harness.events() == [("artifact-created", run.task_id, 0)]
    found = run.services.artifacts.find(run.task_id, 0, NAME)
    assert f"/{run.artifact.blob_name}?" in str(found.url)
    assert run.services.objects.access(run.artifact)["name"] == run.name


def test_an_object_can_be_empty(run: Run) -> None:
    run.create_upload({"dataInline": {"contentType": HTML, "objectData": ""}})
    upload = run.upload_of(hashes={"sha256": sha256(b"")})
    run.services.objects.finish_upload(run.name, upload)
    run.finish()
    assert (run.content, run.artifact.is_complete) == (b"", True)


def test_an_upload_without_a_method_valid_base64_or_a_running_task_stores_nothing(run: Run) -> None:
    assert run.create_upload({})["uploadMethod"] == {}
    for data in ("x", "?===", "eA==x"):
        with pytest.raises(errors.InputError, match="not base64"):
            run.create_upload({"dataInline": {"contentType": HTML, "objectData": data}})
    run.services.tasks.report(run.task_id, 0, "failed", "failed")
    with pytest.raises(errors.RequestConflict, match="is failed"):
        run.create_upload(INLINE)
    assert run.harness.storage.blobs.properties(run.artifact.blob_name) is None


def test_an_upload_can_be_finished_only_with_content_and_then_the_content_cannot_be_replaced(
    run: Run,
) -> None:
    url = run.create_upload(PUT_URL)["uploadMethod"]["putUrl"]["url"]
    with pytest.raises(errors.RequestConflict, match="not been uploaded yet"):
        run.finish_upload()
    upload(run.harness, url, content_type=HTML)
    for _ in range(2):
        run.finish_upload()
    for replacing in (lambda: run.create_upload(INLINE), lambda: upload(run.harness, url, content_type=HTML)):
        with pytest.raises(errors.RequestConflict, match="cannot be replaced"):
            replacing()


def test_finish_artifact_needs_an_object_whose_upload_is_finished_and_its_upload_id(run: Run) -> None:
    finish = run.services.artifacts.finish
    run.create_upload(INLINE)
    with pytest.raises(errors.InputError, match="is not finished: call finishUpload"):
        run.finish()
    run.finish_upload()
    with pytest.raises(errors.InputError, match="expected the uploadId that createArtifact returned"):
        finish(run.task_id, 0, NAME, "another")
    create(run.harness, run.task_id, "s3", "log")
    with pytest.raises(errors.InputError, match="storage type s3, and only an object"):
        finish(run.task_id, 0, "log", "any")
    with pytest.raises(errors.InputError, match="storage type object, and only a blob"):
        run.services.artifacts.complete(run.task_id, 0, NAME, [])


def test_an_object_is_downloaded_from_a_signed_url_with_its_hashes(run: Run) -> None:
    run.create_upload(INLINE)
    run.finish_upload()
    answer = run.services.objects.start_download(run.name, {"getUrl": True, "simple": True})
    assert f"/{run.artifact.blob_name}?" in answer["url"]
    assert (answer["method"], answer["hashes"]) == ("getUrl", HASHES)
    assert answer["expires"] == format_time(NOW + 45 * MINUTE)
    assert run.services.objects.start_download(run.name, {"simple": True}).keys() == {"method", "url"}
    with pytest.raises(errors.NoMatchingMethod):
        run.services.objects.start_download(run.name, {})


def test_only_an_unexpired_artifact_of_the_type_object_is_an_object(run: Run) -> None:
    create(run.harness, run.task_id, "s3", "log")
    for name in (f"t/{run.task_id}/0/log", f"t/{run.task_id}/0/other", f"t/{run.task_id}/1/{NAME}"):
        with pytest.raises(errors.ResourceNotFound, match="there is no object"):
            run.services.objects.find(name)
    run.create_upload(INLINE)
    run.finish_upload()
    run.harness.clock.advance(HOUR)
    with pytest.raises(errors.ResourceNotFound, match="there is no object"):
        run.services.objects.find(run.name)
    with pytest.raises(errors.ResourceExpired):
        run.finish()


# the check of a blob in parts can last longer than a call waits for it

AT_ONCE, LONG = timedelta(0), timedelta(seconds=30)


def observed_timeout(when_waiting: Callable[[], object]) -> timedelta:
    """A timeout of half a minute that calls ``when_waiting`` when a call joins a check and begins to wait."""

    class ObservedTimeout(timedelta):
        def total_seconds(self) -> float:
            when_waiting()
            return super().total_seconds()

    return ObservedTimeout(seconds=30)


class HeldUpChecks:
    """Blobs uploaded in parts, and checks of them that continue only when the test lets them."""

    def __init__(self, **bounds: int) -> None:
        self.harness = Harness()
        self.task_id = self.harness.claimed()
        blobs = self.harness.storage.blobs
        self.checks = BlobChecks(blobs, **bounds)
        self.done: list[str] = []
        self.begun: list[str] = []
        self.error: Exception | None = None
        self.entered, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)
        read = blobs.read
        blobs.read = lambda name: self._held(name, read(name))  # type: ignore[method-assign]

    def blob(self, name: str = "name", **declared: str) -> BlobArtifact:
        """A blob uploaded in one part. Its content matches the declaration, unless you declare another."""
        body = in_parts(CONTENT) | declared
        (request,) = self.harness.services.artifacts.create(self.task_id, 0, name, body)["requests"]
        upload(self.harness, request["url"], CONTENT, "")
        artifact = stored(self.harness, self.task_id, name).artifact
        assert isinstance(artifact, BlobArtifact)
        return artifact

    def check(self, artifact: BlobArtifact, wait: timedelta = AT_ONCE) -> None:
        self.checks.check(artifact, lambda: self.done.append(artifact.name), wait)

    def begin(self, artifact: BlobArtifact) -> None:
        """Begin a check for which no call waits."""
        with pytest.raises(errors.ServiceUnavailable, match="is being checked"):
            self.check(artifact)
        assert self.entered.acquire(timeout=30)

    def end(self, checks: int = 1) -> None:
        self.may_go_on.release(checks)

    def _held(self, name: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
        self.begun.append(name)
        self.entered.release()
        assert self.may_go_on.acquire(timeout=30)
        if self.error:
            raise self.error
        yield from chunks


def test_if_the_check_of_a_blob_fails_all_calls_that_wait_for_it_get_the_conflict() -> None:
    checks = HeldUpChecks()
    blob = checks.blob(contentSha256=sha256(b"another"))
    checks.begin(blob)
    all_wait = threading.Barrier(4, checks.end)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(checks.check, blob, observed_timeout(all_wait.wait)) for _ in range(4)]
    assert [type(call.exception()) for call in asked] == [errors.RequestConflict] * 4
    assert len(checks.begun) == 1


@pytest.mark.parametrize(
    ("error", "logged"),
    [(errors.ServiceUnavailable("storage is away"), []), (ZeroDivisionError("a bug"), ["blob-not-checked"])],
    ids=["storage away", "bug"],
)
def test_the_next_call_repeats_a_check_that_failed(error: Exception, logged: list[str]) -> None:
    checks = HeldUpChecks()
    blob, checks.error = checks.blob(), error
    with capture_logs() as logs:
        checks.end()
        with pytest.raises(type(error)):
            checks.check(blob, LONG)
    assert [entry["event"] for entry in logs] == logged
    checks.error = None
    checks.end()
    checks.check(blob, LONG)
    assert checks.done == ["name"]


def test_beyond_the_limit_of_concurrent_checks_a_call_is_service_unavailable() -> None:
    checks = HeldUpChecks(max_checks=2)
    blobs = [checks.blob(name) for name in "abc"]
    for blob in blobs[:2]:
        checks.begin(blob)
    with pytest.raises(errors.ServiceUnavailable, match="2 blobs are already being checked"):
        checks.check(blobs[2])
    checks.check(blobs[0], observed_timeout(lambda: checks.end(2)))
    checks.end()
    checks.check(blobs[2], LONG)


# how many uploads a run can have at a time

MIB = 1024 * 1024


def refused(take: Callable[[], object], words: str) -> None:
    with pytest.raises(errors.ServiceUnavailable, match=words) as refusal:
        take()
    assert refusal.value.retry_after == timedelta(seconds=5)


def test_a_run_gets_at_most_16_of_64_upload_slots_and_fewer_the_more_are_taken() -> None:
    slots = UploadSlots()
    for _ in range(2):
        with ExitStack() as held:
            for run_id, expected in enumerate((16, 12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 1)):

                def take(run_id: int = run_id) -> None:
                    held.enter_context(slots.acquire(("task", run_id)))

                for _slot in range(expected):
                    take()
                refused(take, f"{expected} uploads of this run")


def test_a_large_block_takes_one_upload_slot_for_each_4_mib() -> None:
    slots = UploadSlots(4)
    with slots.acquire(None, 12 * MIB + 1):
        refused(lambda: slots.acquire(("task", 0), 0).__enter__(), "4 in all")
    with slots.acquire(None, 12 * MIB), slots.acquire(("task", 0), 0):
        pass
