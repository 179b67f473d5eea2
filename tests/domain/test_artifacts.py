"""What createArtifact may be asked for, and when: docs/explanation/http-contract.md#artifacts."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain import transitions
from legacy_queue.domain.artifact import (
    EXPIRED_FOR,
    LARGEST_BLOB,
    LARGEST_UPLOAD,
    SMALLEST_PART,
    UPLOAD_WINDOW,
    Artifact,
    artifact_created,
    blob_etag,
    check_open,
    created_again,
    etags_are_right,
    note_blob,
)
from legacy_queue.domain.errors import InputError, InputTooLarge, RequestConflict, ResourceNotFound
from legacy_queue.domain.task import Task
from legacy_queue.domain.times import format_time
from tests.domain.tasks import BOB, CLAIM_TIMEOUT, DAY, HOUR, MINUTE, MS, NOW, TASK_ID, pending, running

NAME = "public/logs/live.log"
SHA, OTHER_SHA = "ab" * 32, "cd" * 32
S3 = {"storageType": "s3", "contentType": "text/plain"}
REFERENCE = {"storageType": "reference", "contentType": "text/plain", "url": "https://example.com/a?b"}
LINK = {"storageType": "link", "contentType": "text/plain", "artifact": "public/logs/live_backing.log"}
ERROR = {"storageType": "error", "reason": "file-missing-on-worker", "message": "it is not there"}
OBJECT = {"storageType": "object", "contentType": "text/plain"}
BLOB = {"storageType": "blob", "contentType": "text/plain", "contentLength": 10, "contentSha256": SHA}
TRANSFER = {"transferLength": 7, "transferSha256": OTHER_SHA}
GZIP = {**BLOB, "contentEncoding": "gzip", **TRANSFER}
MIB = 1024**2


def asked_for(body: Mapping[str, Any], **changes: Any) -> Artifact:
    body = {"expires": format_time(NOW + HOUR), **body, **changes}
    return Artifact.from_wire(running(), 0, NAME, body, NOW)


def in_parts(*sizes: int, **changes: Any) -> dict[str, Any]:
    parts = [{"sha256": SHA.upper(), "size": size} for size in sizes]
    return {**BLOB, "contentLength": sum(sizes), "parts": parts, **changes}


def shut_down() -> Task:
    return transitions.resolve(running(), 0, "exception", "worker-shutdown", NOW).task


@pytest.mark.parametrize(
    ("body", "details"),
    [
        (S3, {}),
        ({**S3, "storageType": "azure"}, {}),
        (REFERENCE, {"url": "https://example.com/a?b"}),
        (LINK, {"artifact": "public/logs/live_backing.log"}),
    ],
    ids=["s3", "azure", "reference", "link"],
)
def test_an_artifact_is_not_as_it_was_asked_for(body: Mapping[str, Any], details: dict[str, Any]) -> None:
    artifact = asked_for(body)
    assert artifact == Artifact(
        TASK_ID, 0, NAME, body["storageType"], "text/plain", NOW + HOUR, details, is_complete=True
    )
    assert artifact.to_wire() == {
        "storageType": body["storageType"],
        "name": NAME,
        "expires": "2030-01-02T04:04:05.678Z",
        "contentType": "text/plain",
    }


def test_an_error_has_no_content_type() -> None:
    artifact = asked_for(ERROR)
    assert artifact.details == {"reason": "file-missing-on-worker", "message": "it is not there"}
    assert artifact.content_type == "application/json"


def test_a_link_needs_no_content_type() -> None:
    assert asked_for({**LINK, "contentType": "text/html"}).content_type == "text/html"
    without = {name: value for name, value in LINK.items() if name != "contentType"}
    assert asked_for(without).content_type == "application/binary"


def test_an_object_gets_an_upload_id_that_stays_and_is_not_told() -> None:
    artifact = asked_for(OBJECT)
    assert not artifact.is_complete
    assert artifact.details == {"projectId": "none", "uploadId": artifact.details["uploadId"]}
    again = asked_for(OBJECT)
    assert again.details["uploadId"] != artifact.details["uploadId"]
    assert created_again(artifact, again, NOW) == artifact
    with pytest.raises(RequestConflict) as conflict:
        created_again(artifact, asked_for(OBJECT, contentType="text/html"), NOW)
    assert artifact.details["uploadId"] not in str(conflict.value.details)


def test_what_was_uploaded_is_closed_once_a_blob_is_complete_or_an_objects_upload_is_finished() -> None:
    assert not any(asked_for(body).is_closed for body in (S3, BLOB, OBJECT))
    assert replace(asked_for(BLOB), is_complete=True).is_closed
    closed = asked_for(OBJECT)
    assert replace(closed, details={**closed.details, "hashes": {}}).is_closed


def test_a_blob_is_complete_at_once_or_lacks_what_was_left_out() -> None:
    artifact = asked_for(BLOB, contentSha256=SHA.upper(), contentLength=10.0)
    assert not artifact.is_complete
    assert artifact.details == {
        "contentLength": 10,
        "contentSha256": SHA,
        "transferLength": 10,
        "transferSha256": SHA,
        "contentEncoding": "identity",
    }
    assert artifact.content_encoding is None
    assert asked_for(BLOB, contentEncoding="identity", transferLength=10, transferSha256=SHA) == artifact


def test_an_encoded_blob_is_taken_for_what_it_decodes_to() -> None:
    artifact = asked_for(GZIP)
    assert artifact.content_encoding == "gzip"
    assert artifact.details == {
        "contentLength": 10,
        "contentSha256": SHA,
        **TRANSFER,
        "contentEncoding": "gzip",
    }


def test_the_parts_of_a_blob_are_all_stored() -> None:
    sizes = (SMALLEST_PART, LARGEST_UPLOAD, 1)
    details = asked_for(in_parts(*sizes)).details
    etags = [blob_etag(SHA, size) for size in sizes]
    assert details["partCount"] == 3
    assert details["partsSha256"] == hashlib.sha256("\n".join(etags).encode()).hexdigest()
    assert "parts" not in details


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ({**BLOB, "contentEncoding": "gzip"}, InputError, "needs transferLength and transferSha256"),
        ({**BLOB, "contentEncoding": "br", "transferLength": 7}, InputError, "'br'"),
        ({**BLOB, **TRANSFER}, InputError, "must be the same, or left out"),
        ({**BLOB, "transferLength": 7}, InputError, "must be the same, or left out"),
        ({**BLOB, "contentLength": LARGEST_UPLOAD + 1}, InputTooLarge, "send more in parts"),
        (in_parts(SMALLEST_PART - 1, 1), InputError, "the size of part 1 is 5242879:"),
        (in_parts(SMALLEST_PART, 0), InputError, "the size of part 2 is 0: .* 1 for the last"),
        (in_parts(0), InputError, "the size of part 1 is 0:"),
        (in_parts(LARGEST_UPLOAD + 1), InputTooLarge, "the size of part 1"),
        (in_parts(*[LARGEST_UPLOAD] * 30, 1), InputTooLarge, f"at most {LARGEST_BLOB} bytes"),
        (in_parts(6 * MIB, 1, contentLength=6 * MIB), InputError, "the parts have 6291457 bytes together"),
    ],
    ids=range(11),
)
def test_a_blob_that_cannot_be_is_accepted(body: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        asked_for(body)


@pytest.mark.parametrize("expires", [NOW - 15 * MINUTE + MS, NOW, NOW + MS, NOW + DAY])
def test_an_expiry_from_15_minutes_ago_to_the_tasks_is_accepted(expires: Any) -> None:
    body = {**S3, "expires": format_time(expires)}
    task = running(expires=format_time(NOW + DAY))
    assert Artifact.from_wire(task, 0, NAME, body, NOW).expires == expires


@pytest.mark.parametrize(
    ("expires", "said"),
    [
        (format_time(NOW - 15 * MINUTE), "more than 15 minutes ago, now is 2030-01-02T03:04:05.678Z"),
        (format_time(NOW + DAY + MS), "must not be after the task's, 2030-01-03T03:04:05.678Z"),
        ("2030-02-30T00:00:00Z", "out of range"),
    ],
)
def test_an_expiry_that_cannot_be_is_accepted(expires: str, said: str) -> None:
    with pytest.raises(InputError, match=f"expires.*{said}"):
        Artifact.from_wire(running(expires=format_time(NOW + DAY)), 0, NAME, {**S3, "expires": expires}, NOW)


@pytest.mark.parametrize(("expires", "until"), [(HOUR, HOUR), (-MINUTE, EXPIRED_FOR - MINUTE)])
def test_uploads_end_as_the_artifact_expires_or_may_be_removed(expires: timedelta, until: timedelta) -> None:
    assert asked_for(S3, expires=format_time(NOW + expires)).uploads_until(NOW) == NOW + until


@pytest.mark.parametrize("name", ["../../etc/passwd", "//", ".", "a%2Fb", "a/b", "x" * 1024, " "])
def test_the_place_of_the_bytes_is_a_path_that_the_name_makes(name: str) -> None:
    place = replace(asked_for(S3), name=name).blob_name
    assert place == f"{TASK_ID}/0/{hashlib.sha256(name.encode()).hexdigest()}"


def test_artifacts_are_closed_while_the_run_is_running() -> None:
    check_open(running(), 0, NOW + HOUR)


@pytest.mark.parametrize("after", [0 * MS, UPLOAD_WINDOW])
def test_artifacts_are_closed_soon_after_an_exception(after: Any) -> None:
    check_open(shut_down(), 0, NOW + after)


@pytest.mark.parametrize(
    ("task", "run_id", "after", "said"),
    [
        (pending(), 0, MS, "run 0 of task .* is pending"),
        (shut_down(), 1, MS, "run 1 of task .* is pending"),
        (shut_down(), 0, UPLOAD_WINDOW + MS, "run 0 of task .* is exception"),
        (transitions.cancel(pending(), NOW).task, 0, MS, "is exception"),
        (transitions.resolve(running(), 0, "completed", "completed", NOW).task, 0, MS, "is completed"),
        (transitions.resolve(running(), 0, "failed", "failed", NOW).task, 0, MS, "is failed"),
    ],
    ids=["pending", "retried", "too late", "never claimed", "completed", "failed"],
)
def test_artifacts_are_open_that_are_not(task: Task, run_id: int, after: Any, said: str) -> None:
    with pytest.raises(RequestConflict, match=said):
        check_open(task, run_id, NOW + after)


def test_a_run_that_is_not_there_has_artifacts() -> None:
    with pytest.raises(ResourceNotFound, match="has no run 1"):
        check_open(running(), 1, NOW)


def test_a_running_task_forgets_its_blob() -> None:
    noted = note_blob(running(), asked_for(BLOB), NOW)
    assert noted.task == replace(running(), newest_blob=NAME)
    assert (noted.events, noted.after, noted.hold) == ((), None, None)


def test_the_blob_of_an_earlier_run_is_noted_for_the_last() -> None:
    noted = note_blob(running(), asked_for(BLOB), NOW).task
    retried = transitions.resolve(noted, 0, "exception", "worker-shutdown", NOW).task
    assert retried.newest_blob == ""
    again = transitions.claim(retried, 1, BOB, None, None, CLAIM_TIMEOUT, NOW).task
    assert note_blob(again, asked_for(BLOB), NOW).task == again


def test_a_blob_is_noted_on_a_task_that_is_resolved() -> None:
    with pytest.raises(RequestConflict):
        note_blob(transitions.resolve(running(), 0, "failed", "failed", NOW).task, asked_for(BLOB), NOW)


@pytest.mark.parametrize("body", [S3, REFERENCE, LINK, ERROR, BLOB, GZIP, in_parts(6 * MIB, 1)], ids=range(7))
def test_the_same_request_again_changes_something(body: dict[str, Any]) -> None:
    existing = replace(asked_for(body), is_complete=True)
    assert created_again(existing, asked_for(body), NOW) == existing
    later = format_time(NOW + 2 * HOUR)
    assert created_again(existing, asked_for(body, expires=later), NOW) == replace(
        existing, expires=NOW + 2 * HOUR
    )


def test_a_reference_leads_to_where_it_first_led() -> None:
    moved = asked_for(REFERENCE, url="https://example.com/final")
    assert created_again(asked_for(REFERENCE), moved, NOW) == moved


def test_a_reference_becomes_a_link_that_keeps_its_content_type() -> None:
    """Workers of today post ``live.log`` so, once its backing log is uploaded."""
    link = asked_for(LINK, contentType="text/html")
    assert created_again(asked_for(REFERENCE), link, NOW) == asked_for(LINK)
    assert created_again(asked_for(LINK), link, NOW) == asked_for(LINK)


@pytest.mark.parametrize("body", [S3, BLOB, OBJECT, REFERENCE, LINK, ERROR], ids=range(6))
@pytest.mark.parametrize("ago", [0 * MS, 10 * MINUTE - MS, 10 * MINUTE, DAY])
def test_an_expired_artifact_is_renewed_with_bytes_of_its_own_once_expiry_may_be_at_the_others(
    body: dict[str, Any], ago: timedelta
) -> None:
    existing = replace(asked_for(body), is_complete=True, expires=NOW - ago)
    renewed = created_again(existing, asked_for(body), NOW)
    assert renewed.to_wire() == asked_for(body).to_wire()
    is_anew = existing.has_bytes and ago >= 10 * MINUTE
    assert (renewed.blob_name != existing.blob_name) is is_anew
    assert renewed.is_complete is (body not in (BLOB, OBJECT) or not is_anew)
    again = created_again(renewed, asked_for(body), NOW + MINUTE)
    assert again == renewed
    with pytest.raises(RequestConflict):
        created_again(existing, asked_for(body, storageType="s3" if body != S3 else "azure"), NOW)


def test_where_the_bytes_are_changes_when_new_ones_go_elsewhere() -> None:
    existing = asked_for(S3).for_object_store()
    assert existing.in_object_store
    assert not asked_for(S3).in_object_store
    assert created_again(existing, asked_for(S3), NOW) == existing
    assert created_again(asked_for(S3), asked_for(S3), NOW) == asked_for(S3)


@pytest.mark.parametrize(
    ("existing", "given", "shown"),
    [
        (S3, {**S3, "contentType": "text/html"}, ("text/plain", "text/html")),
        (S3, {**S3, "storageType": "azure"}, ("s3", "azure")),
        (S3, {**S3, "expires": format_time(NOW + MINUTE)}, ("04:04:05", "03:05:05")),
        (REFERENCE, {**REFERENCE, "contentType": "text/html"}, ("text/plain", "text/html")),
        (REFERENCE, {**REFERENCE, "expires": format_time(NOW + MINUTE)}, ("04:04:05", "03:05:05")),
        (REFERENCE, S3, ("reference", "s3")),
        (REFERENCE, {**LINK, "expires": format_time(NOW + MINUTE)}, ("04:04:05", "03:05:05")),
        (LINK, {**LINK, "artifact": "another"}, ("live_backing", "another")),
        (LINK, REFERENCE, ("link", "reference")),
        (S3, LINK, ("s3", "link")),
        (S3, OBJECT, ("s3", "object")),
        (ERROR, {**ERROR, "message": "another"}, ("it is not there", "another")),
        (BLOB, {**BLOB, "contentLength": 11}, ("10", "11")),
        (BLOB, GZIP, ("identity", "gzip")),
        (in_parts(6 * MIB, 7 * MIB), in_parts(7 * MIB, 6 * MIB), ("partsSha256", "partsSha256")),
    ],
    ids=range(15),
)
def test_another_artifact_takes_the_place_of_one(
    existing: dict[str, Any], given: dict[str, Any], shown: tuple[str, str]
) -> None:
    with pytest.raises(RequestConflict, match="exists, and is another one") as conflict:
        created_again(asked_for(existing), asked_for(given), NOW)
    assert shown[0] in str(conflict.value.details["existing"])
    assert shown[1] in str(conflict.value.details["given"])


def test_the_message_names_another_run_than_the_artifacts() -> None:
    """The message "artifactCreated" of "Queue AMQP Exchanges"."""
    task = shut_down()
    event = artifact_created(task, asked_for(S3))
    assert event.exchange == "artifact-created"
    assert event.routing_key.startswith(f"primary.{TASK_ID}.0.group.alice.provisioner.worker-Type_1.-.")
    assert event.payload == {
        "version": 1,
        "status": task.status(),
        "runId": 0,
        "workerGroup": "group",
        "workerId": "alice",
        "artifact": asked_for(S3).to_wire(),
    }


@pytest.mark.parametrize("written", ["{}", '"{}"', 'W/"{}"'])
def test_the_etags_of_a_blob_are_refused(written: str) -> None:
    whole = asked_for(GZIP)
    assert etags_are_right(whole, [written.format(blob_etag(OTHER_SHA, 7))])
    parts = asked_for(in_parts(6 * MIB, 1))
    assert etags_are_right(parts, [written.format(blob_etag(SHA, size)) for size in (6 * MIB, 1)])


@pytest.mark.parametrize(
    "etags", [[], [""], ["NOETAG"], [blob_etag(SHA, 1)], [blob_etag(SHA, 1), blob_etag(SHA, 6 * MIB)]]
)
def test_etags_of_something_else_are_those_of_a_blob(etags: list[str]) -> None:
    assert not etags_are_right(asked_for(in_parts(6 * MIB, 1)), etags)
    assert not etags_are_right(asked_for(BLOB), etags)
