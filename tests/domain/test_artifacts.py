"""Which artifacts createArtifact accepts, and when: docs/reference/artifacts.md."""

import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.artifact import (
    MAX_BLOB_SIZE,
    MAX_UPLOAD_SIZE,
    MIN_PART_SIZE,
    UPLOAD_WINDOW,
    AzureArtifact,
    artifact_created,
    blob_etag,
    check_open,
    created_again,
    etags_are_right,
    note_blob,
    requested_artifact,
)
from legacy_queue.domain.errors import InputError, InputTooLarge, RequestConflict, ResourceNotFound
from legacy_queue.domain.times import format_time
from tests.domain.sample_tasks import DAY, HOUR, MINUTE, MS, NOW, TASK_ID, ended, pending, running, shut_down

NAME = "public/logs/live.log"
SHA, OTHER_SHA = "ab" * 32, "cd" * 32
S3 = {"storageType": "s3", "contentType": "text/plain"}
AZURE = {"storageType": "azure", "contentType": "text/plain"}
REFERENCE = {"storageType": "reference", "contentType": "text/plain", "url": "https://example.com/a?b"}
LINK = {"storageType": "link", "contentType": "text/plain", "artifact": "public/logs/live_backing.log"}
ERROR = {"storageType": "error", "reason": "file-missing-on-worker", "message": "it is not there"}
OBJECT = {"storageType": "object", "contentType": "text/plain"}
BLOB = {"storageType": "blob", "contentType": "text/plain", "contentLength": 10, "contentSha256": SHA}
TRANSFER = {"transferLength": 7, "transferSha256": OTHER_SHA}
GZIP = {**BLOB, "contentEncoding": "gzip", **TRANSFER}
MIB = 1024**2


def new_artifact(body: Mapping[str, Any], **changes: Any) -> Any:
    body = {"expires": at(HOUR), **body, **changes}
    return requested_artifact(running(), 0, NAME, body, NOW)


def at(difference: timedelta) -> str:
    return format_time(NOW + difference)


def in_parts(*sizes: int, **changes: Any) -> dict[str, Any]:
    parts = [{"sha256": SHA.upper(), "size": size} for size in sizes]
    return {**BLOB, "contentLength": sum(sizes), "parts": parts, **changes}


def test_an_artifact_has_the_fields_of_its_request() -> None:
    for body, details in ((S3, ()), (AZURE, ()), (REFERENCE, ("url",)), (LINK, ("artifact",))):
        artifact = new_artifact(body)
        assert (artifact.task_id, artifact.run_id, artifact.is_complete) == (TASK_ID, 0, True)
        assert artifact.details() == {name: body[name] for name in details}
        wire = {"name": NAME, "expires": "2030-01-02T04:04:05.678Z", "contentType": "text/plain"}
        assert artifact.to_wire() == {"storageType": body["storageType"], **wire}


def test_an_artifact_keeps_its_content_length_and_a_repeated_request_can_change_it() -> None:
    for body in (S3, OBJECT):
        artifact = new_artifact(body, contentLength=10.0)
        assert artifact.to_wire() == {**new_artifact(body).to_wire(), "contentLength": 10}
        longer = created_again(artifact, new_artifact(body, contentLength=11), NOW)
        assert longer == replace(artifact, content_length=11)


def test_the_default_content_type_of_a_link_is_binary_and_of_an_error_json() -> None:
    bare_link = {"storageType": "link", "artifact": "public/logs/live_backing.log"}
    kinds = [new_artifact(body).content_type for body in (LINK, bare_link, ERROR)]
    assert kinds == ["text/plain", "application/binary", "application/json"]


def test_an_object_keeps_its_upload_id_and_never_shows_it() -> None:
    artifact, again = new_artifact(OBJECT), new_artifact(OBJECT)
    assert artifact.details() == {"projectId": "none"}
    assert again.upload_id != artifact.upload_id
    assert created_again(artifact, again, NOW) == artifact
    with pytest.raises(RequestConflict) as conflict:
        created_again(artifact, new_artifact(OBJECT, contentType="text/html"), NOW)
    assert artifact.upload_id not in str(conflict.value.details)


def test_a_blob_gets_defaults_for_the_fields_that_are_left_out() -> None:
    artifact = new_artifact(BLOB, contentSha256=SHA.upper(), contentLength=10.0)
    assert not artifact.is_complete
    defaults = {"contentEncoding": "identity", "transferLength": 10, "transferSha256": SHA}
    assert artifact.details() == {"contentLength": 10, "contentSha256": SHA, **defaults}
    assert artifact.encoding is None
    assert new_artifact(BLOB, **defaults) == artifact


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ({**BLOB, "contentEncoding": "gzip"}, InputError, "needs transferLength and transferSha256"),
        ({**BLOB, **TRANSFER}, InputError, "the same values, or neither"),
        ({**BLOB, "contentLength": MAX_UPLOAD_SIZE + 1}, InputTooLarge, "to send more, use parts"),
        (in_parts(MIN_PART_SIZE - 1, 1), InputError, "the size of part 1 is 5242879:"),
        (in_parts(MIN_PART_SIZE, 0), InputError, "the size of part 2 is 0: .* 1 for the last"),
        (in_parts(MAX_UPLOAD_SIZE + 1), InputTooLarge, "the size of part 1"),
        (in_parts(*[MAX_UPLOAD_SIZE] * 30, 1), InputTooLarge, f"at most {MAX_BLOB_SIZE} bytes"),
        (in_parts(6 * MIB, 1, contentLength=6 * MIB), InputError, "the parts have 6291457 bytes in total"),
    ],
)
def test_an_impossible_blob_is_refused(body: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        new_artifact(body)


@pytest.mark.parametrize(
    ("expires", "message"),
    [
        (at(-15 * MINUTE), r"at most 15 minutes ago \(it is 2030-01-02T03:04:05\.678Z now\)"),
        (at(-15 * MINUTE + MS), None),
        (at(DAY), None),
        (at(DAY + MS), "not later than the task's expires, 2030-01-03T03:04:05.678Z"),
        ("2030-02-30T00:00:00Z", "out of range"),
    ],
)
def test_an_artifact_expires_between_15_minutes_ago_and_the_expiry_of_its_task(
    expires: str, message: str | None
) -> None:
    with pytest.raises(InputError, match=f"expires.*{message}") if message else nullcontext():
        requested_artifact(running(expires=at(DAY)), 0, NAME, {**S3, "expires": expires}, NOW)


@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        *((name, True) for name in ("public/logs/live.log", ".a/b", "a b", "a%2F?#&", "x" * 999, "a" * 63)),
        *((name, False) for name in (".", "..", "a/../b", "a.", "a./b", "a/", "/a", "a//b", "a\\b")),
        ("x" * 1000, False),
        ("a/" * 250 + "a", True),
        ("a/" * 251 + "a", False),
        (hashlib.sha256(b"public/another").hexdigest(), False),
        (hashlib.sha256(b"public/another").hexdigest() + "-1136214245678", False),
    ],
)
def test_the_blob_of_an_azure_artifact_has_the_artifacts_name_if_azure_allows_it_and_any_other_a_hash(
    name: str, is_so: bool
) -> None:
    artifact, s3 = (replace(new_artifact(body), name=name) for body in (AZURE, S3))
    assert (artifact.blob_name == f"{TASK_ID}/0/{name}") is is_so
    of_first_version = replace(artifact, is_named=False)
    hashed = f"{TASK_ID}/0/{hashlib.sha256(name.encode()).hexdigest()}"
    assert s3.blob_name == of_first_version.blob_name == hashed
    renewed = created_again(replace(artifact, expires=NOW - HOUR), artifact, NOW)
    assert isinstance(renewed, AzureArtifact)
    assert renewed.blob_name == f"{of_first_version.blob_name}{renewed.blob_suffix}"


def test_a_running_run_accepts_artifacts_and_so_does_an_exception_for_20_minutes_and_a_drift() -> None:
    check_open(running(), 0, NOW + HOUR)
    check_open(shut_down(), 0, NOW + UPLOAD_WINDOW)
    assert note_blob(shut_down(), new_artifact(BLOB), NOW).task == shut_down()
    with pytest.raises(ResourceNotFound, match="has no run 1"):
        check_open(running(), 1, NOW)


def test_artifacts_of_a_pending_or_resolved_run_are_refused() -> None:
    for task, run_id, after, message in (
        (pending(), 0, MS, "run 0 of task .* is pending"),
        (shut_down(), 1, MS, "run 1 of task .* is pending"),
        (shut_down(), 0, UPLOAD_WINDOW + MS, "run 0 of task .* is exception"),
        (transitions.cancel(pending(), NOW).task, 0, MS, "is exception"),
        (ended(), 0, MS, "is completed"),
    ):
        with pytest.raises(RequestConflict, match=message):
            check_open(task, run_id, NOW + after)


def test_repeating_a_request_changes_only_the_expiry() -> None:
    for body in (S3, REFERENCE, LINK, ERROR, BLOB, GZIP, in_parts(6 * MIB, 1)):
        existing = replace(new_artifact(body), is_complete=True)
        again = created_again(existing, new_artifact(body, expires=at(2 * HOUR)), NOW)
        assert again == replace(existing, expires=NOW + 2 * HOUR)


def test_a_reference_can_change_its_url_or_become_a_link_of_the_same_content_type() -> None:
    """Today's workers turn ``live.log`` into a link when they have uploaded the finished log."""
    moved = new_artifact(REFERENCE, url="https://example.com/final")
    assert created_again(new_artifact(REFERENCE), moved, NOW) == moved
    link = new_artifact(LINK, contentType="text/html")
    assert created_again(new_artifact(REFERENCE), link, NOW) == new_artifact(LINK)
    assert created_again(new_artifact(LINK), link, NOW) == new_artifact(LINK)


@pytest.mark.parametrize(
    ("body", "ago"),
    [*((body, 10 * MINUTE) for body in (S3, BLOB, OBJECT, REFERENCE)), (BLOB, 10 * MINUTE - MS)],
)
def test_ten_minutes_after_it_expired_an_artifact_can_be_created_again_with_a_new_blob(
    body: dict[str, Any], ago: timedelta
) -> None:
    existing = replace(new_artifact(body), is_complete=True, expires=NOW - ago)
    renewed = created_again(existing, new_artifact(body), NOW)
    assert renewed.to_wire() == new_artifact(body).to_wire()
    has_new_name = body != REFERENCE and ago >= 10 * MINUTE
    assert (getattr(renewed, "blob_name", "") != getattr(existing, "blob_name", "")) is has_new_name
    assert renewed.is_complete is (body not in (BLOB, OBJECT) or not has_new_name)
    assert created_again(renewed, new_artifact(body), NOW + MINUTE) == renewed
    with pytest.raises(RequestConflict):
        created_again(existing, new_artifact(body, storageType="s3" if body != S3 else "azure"), NOW)


@pytest.mark.parametrize(
    ("existing", "given", "shown"),
    [
        (S3, {**S3, "contentType": "text/html"}, ("text/plain", "text/html")),
        (S3, AZURE, ("s3", "azure")),
        (S3, {**S3, "expires": at(MINUTE)}, ("04:04:05", "03:05:05")),
        (REFERENCE, S3, ("reference", "s3")),
        (REFERENCE, {**LINK, "expires": at(MINUTE)}, ("04:04:05", "03:05:05")),
        (LINK, {**LINK, "artifact": "another"}, ("live_backing", "another")),
        (ERROR, {**ERROR, "message": "another"}, ("it is not there", "another")),
        (BLOB, {**BLOB, "contentLength": 11}, ("10", "11")),
        (BLOB, GZIP, ("identity", "gzip")),
        (in_parts(6 * MIB, 7 * MIB), in_parts(7 * MIB, 6 * MIB), ("partsSha256", "partsSha256")),
    ],
)
def test_another_artifact_of_the_same_name_is_a_conflict(
    existing: dict[str, Any], given: dict[str, Any], shown: tuple[str, str]
) -> None:
    with pytest.raises(RequestConflict, match=r"Artifact already exists, and .* is different") as conflict:
        created_again(new_artifact(existing), new_artifact(given), NOW)
    assert shown[0] in str(conflict.value.details["existing"])
    assert shown[1] in str(conflict.value.details["given"])


def test_the_event_artifact_created_names_the_run_of_the_artifact() -> None:
    """Source: "artifactCreated" in "Queue AMQP Exchanges"."""
    task = shut_down()
    event = artifact_created(task, new_artifact(S3))
    assert event.routing_key.startswith(f"primary.{TASK_ID}.0.group.alice.provisioner.worker-Type_1.-.")
    worker = {"workerGroup": "group", "workerId": "alice"}
    about = {"version": 1, "status": task.status(), "runId": 0, **worker}
    assert event.payload == {**about, "artifact": new_artifact(S3).to_wire()}


def test_todays_event_of_an_artifact_is_published_when_the_artifact_can_be_read() -> None:
    for body in (S3, AZURE, BLOB, OBJECT):
        assert artifact_created(running(), new_artifact(body)).only == "2018"
    for body in (BLOB, OBJECT, REFERENCE, LINK, ERROR):
        assert artifact_created(running(), replace(new_artifact(body), is_complete=True)).only is None


def test_the_etags_of_a_blobs_parts_are_accepted_in_any_form_but_only_in_their_order() -> None:
    parts = new_artifact(in_parts(6 * MIB, 1))
    for written in ("{}", '"{}"', 'W/"{}"'):
        assert etags_are_right(new_artifact(GZIP), [written.format(blob_etag(OTHER_SHA, 7))])
        assert etags_are_right(parts, [written.format(blob_etag(SHA, size)) for size in (6 * MIB, 1)])
    assert not etags_are_right(parts, [blob_etag(SHA, 1), blob_etag(SHA, 6 * MIB)])
