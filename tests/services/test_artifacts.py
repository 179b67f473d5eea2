"""Artifacts are created, published and, when they have expired, removed.

Blobs are completed before their run.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.artifact import BlobArtifact
from legacy_queue.domain.errors import InputError, RequestConflict, ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.tickets import Ticket
from legacy_queue.domain.times import format_time
from legacy_queue.services.services import Services
from tests.domain.sample_tasks import HOUR, MINUTE, MS, NOW, SECOND
from tests.services.artifact_calls import (
    CONTENT,
    NAME,
    TEXT,
    blob_name,
    create,
    etag,
    in_parts,
    stored,
    upload,
)
from tests.services.fake_ports import CallRecorder, Crash, FaultAt
from tests.services.harness import Harness

DRIFT = 15 * MINUTE
PARTS = (b"1" * 5 * 1024**2, b"the last part")


def with_bytes(harness: Harness, task_id: str, storage_type: str) -> str:
    create(harness, task_id, storage_type)
    name = blob_name(harness, task_id)
    harness.storage.blobs.write(name, [CONTENT], TEXT, None)
    return name


@pytest.mark.parametrize("storage_type", ["s3", "azure", "blob", "object", "reference", "link", "error"])
def test_create_artifact_writes_once_and_publishes_before_it_answers(storage_type: str) -> None:
    harness, calls = Harness(), CallRecorder()
    server = harness.replica(calls, caches_tasks=True)
    harness.services = server
    task_id = harness.claimed()
    calls.names.clear()
    create(harness, task_id, storage_type)
    signed = {"azure": ["blob.upload_url"]}.get(storage_type, [])
    noted = ["replace"] if storage_type in ("blob", "object") else []
    assert calls.names == ["load", "artifact.insert", *noted, "broker.publish", *signed]


def test_an_artifact_that_is_removed_during_create_artifact_is_created_again(harness: Harness) -> None:
    task_id = harness.claimed()
    create(harness, task_id, "error")
    remove = lambda: harness.storage.artifacts.remove(stored(harness, task_id))  # noqa: E731
    create(harness, task_id, services=harness.replica(FaultAt(0, of="artifact.load", before=remove)))
    assert stored(harness, task_id).artifact.storage_type == "s3"


@pytest.mark.parametrize(("write", "name"), [("artifact.insert", "another"), ("artifact.replace", NAME)])
def test_if_a_server_dies_after_writing_an_artifact_another_server_publishes_the_event(
    harness: Harness, write: str, name: str
) -> None:
    task_id = harness.claimed()
    with_bytes(harness, task_id, "blob")
    harness.kill_process()
    dies = harness.replica(FaultAt(0, of=write, after=Crash()))
    complete = partial(dies.artifacts.complete, task_id, 0, name, [etag(CONTENT)])
    call = complete if name == NAME else partial(create, harness, task_id, "s3", name, dies)
    with pytest.raises(Crash):
        call()
    before = len(harness.broker.published)
    harness.do_work(30 * SECOND)
    events = harness.broker.published[before:]
    assert name in [event.payload["artifact"]["name"] for event in events if "artifact" in event.payload]


def test_the_latest_artifacts_are_those_of_the_last_run(harness: Harness) -> None:
    task_id = harness.claimed()
    assert harness.services.artifacts.latest_run(task_id) == 0
    with pytest.raises(ResourceNotFound, match="has no runs"):
        harness.services.artifacts.latest_run(harness.create(dependencies=[task_id]))


def test_an_expired_artifact_loses_its_row_and_its_bytes_after_the_drift(harness: Harness) -> None:
    task_id = harness.claimed()
    name = with_bytes(harness, task_id, "object")
    create(harness, task_id, "reference", "another")
    harness.sweep(HOUR + DRIFT)
    assert harness.storage.blobs.properties(name)
    assert harness.storage.artifacts.load(task_id, 0, NAME)
    harness.sweep(HOUR)
    assert harness.storage.blobs.properties(name) is None
    assert harness.storage.artifacts.list(task_id, 0, "", 10) == []


@pytest.mark.parametrize("call", ["blob.remove", "artifact.remove"])
def test_if_one_expired_artifact_cannot_be_removed_the_others_are(harness: Harness, call: str) -> None:
    task_id = harness.claimed()
    for number in range(3):
        create(harness, task_id, name=f"{number}")
    harness.clock.advance(HOUR + DRIFT + SECOND)
    refusing = FaultAt(1, of=call, before=ZeroDivisionError("it is held fast"))
    with capture_logs() as logs:
        assert harness.replica(refusing).artifacts.remove_expired("", 10, None) is None
    (entry,) = [entry for entry in logs if entry["event"] == "artifact-not-removed"]
    (left,) = harness.storage.artifacts.list(task_id, 0, "", 10)
    assert left.name == entry["name"]
    harness.services.artifacts.remove_expired("", 10, None)
    assert harness.storage.artifacts.list(task_id, 0, "", 10) == []


def test_the_removal_of_expired_artifacts_stops_while_storage_is_away(harness: Harness) -> None:
    with_bytes(harness, harness.claimed(), "azure")
    harness.clock.advance(HOUR + DRIFT + SECOND)
    away = FaultAt(0, of="blob.remove", before=ServiceUnavailable("storage is away"))
    with pytest.raises(ServiceUnavailable):
        harness.replica(away).artifacts.remove_expired("", 10, None)


def test_an_artifact_that_is_created_again_after_it_expired_loses_its_old_content(harness: Harness) -> None:
    task_id = harness.claimed()
    old, first = with_bytes(harness, task_id, "blob"), stored(harness, task_id)
    harness.storage.artifacts.replace(first, replace(first.artifact, expires=NOW - 10 * MINUTE))
    new = with_bytes(harness, task_id, "blob")
    assert harness.storage.blobs.properties(new)
    assert harness.storage.blobs.properties(old) is None


def complete(harness: Harness, task_id: str, *etags: str, services: Services | None = None) -> None:
    (services or harness.services).artifacts.complete(task_id, 0, NAME, etags or [etag(CONTENT)])


def uploaded(harness: Harness) -> str:
    """A running task. Its blob is uploaded, but not completed."""
    task_id = harness.claimed()
    (request,) = create(harness, task_id, "blob")["requests"]
    upload(harness, request["url"])
    return task_id


def test_a_blobs_download_url_does_not_serve_a_later_artifact_of_the_same_name(harness: Harness) -> None:
    task_id = harness.claimed()
    create(harness, task_id, "s3")
    ticket = Ticket(task_id, 0, stored(harness, task_id).artifact.name, harness.clock.now())
    with pytest.raises(ResourceNotFound, match="was replaced after"):
        harness.services.artifacts.content(ticket)


def test_a_blob_is_incomplete_until_its_missing_part_is_uploaded(harness: Harness) -> None:
    task_id, etags = harness.claimed(), [etag(part) for part in PARTS]
    first, missing = harness.services.artifacts.create(task_id, 0, NAME, in_parts(*PARTS))["requests"]
    upload(harness, first["url"], PARTS[0], "")
    with pytest.raises(RequestConflict, match="not all 2 parts"):
        complete(harness, task_id, *etags)
    upload(harness, missing["url"], PARTS[1], "")
    complete(harness, task_id, *etags)
    assert stored(harness, task_id).artifact.is_complete


def test_a_blob_that_was_not_uploaded_cannot_be_completed(harness: Harness) -> None:
    task_id = harness.claimed()
    create(harness, task_id, "blob")
    with pytest.raises(RequestConflict, match="has not been uploaded"):
        complete(harness, task_id)


@pytest.mark.parametrize("is_complete", [False, True])
def test_wrong_etags_are_refused(harness: Harness, is_complete: bool) -> None:
    task_id = uploaded(harness)
    if is_complete:
        complete(harness, task_id)
    with pytest.raises(InputError, match=r"the etags \(1\)"):
        complete(harness, task_id, etag(b"x"))
    assert stored(harness, task_id).artifact.is_complete == is_complete


def test_a_blob_that_is_created_again_during_its_completion_is_not_completed(harness: Harness) -> None:
    task_id = uploaded(harness)

    def begin_anew() -> None:
        before = stored(harness, task_id)
        assert isinstance(before.artifact, BlobArtifact)
        harness.storage.artifacts.replace(before, replace(before.artifact, blob_suffix="-1"))

    server = harness.replica(FaultAt(0, of="artifact.replace", before=begin_anew))
    with pytest.raises(RequestConflict, match="created again"):
        complete(harness, task_id, services=server)
    assert not stored(harness, task_id).artifact.is_complete


def test_a_blob_stays_complete_if_its_expiry_is_extended_concurrently(harness: Harness) -> None:
    task_id = uploaded(harness)
    extend = lambda: create(harness, task_id, "blob", expires=format_time(NOW + 2 * HOUR))  # noqa: E731
    complete(harness, task_id, services=harness.replica(FaultAt(0, of="artifact.replace", before=extend)))
    artifact = stored(harness, task_id).artifact
    assert (artifact.is_complete, artifact.expires) == (True, NOW + 2 * HOUR)


def test_complete_artifact_can_be_repeated_after_the_run_was_resolved(harness: Harness) -> None:
    task_id = uploaded(harness)
    complete(harness, task_id)
    harness.complete(task_id)
    harness.events()
    complete(harness, task_id)
    assert harness.events() == [("artifact-created", task_id, 0)]


def test_a_run_with_an_incomplete_blob_can_be_completed_after_the_blob_expired(harness: Harness) -> None:
    task_id = uploaded(harness)
    create(harness, task_id, "blob", "another", expires=format_time(NOW + 2 * MINUTE))
    complete(harness, task_id)
    harness.clock.advance(2 * MINUTE - MS)
    with pytest.raises(RequestConflict, match="'another' of run 0 is not complete"):
        harness.complete(task_id)
    harness.clock.advance(MS)
    assert harness.complete(task_id).state == "completed"


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_refused_create_artifact_removes_only_a_row_that_it_inserted_itself(
    harness: Harness, is_repeated: bool
) -> None:
    task_id = uploaded(harness) if is_repeated else harness.claimed()
    fail = lambda: harness.services.tasks.report(task_id, 0, "failed", "failed")  # noqa: E731
    server = harness.replica(FaultAt(0, of="artifact.insert", before=fail))
    with pytest.raises(RequestConflict):
        create(harness, task_id, "blob", services=server)
    assert len(harness.storage.artifacts.list(task_id, 0, "", 10)) == is_repeated


def is_refused(call: Callable[[], object]) -> bool:
    with suppress(RequestConflict):
        call()
        return False
    return True


@pytest.mark.parametrize("number", range(5))
def test_if_the_run_is_reported_during_create_artifact_one_of_the_two_is_refused(
    harness: Harness, number: int
) -> None:
    """The report comes before each call that the create makes to a store and to the broker."""
    task_id, refused = harness.claimed(), list[bool]()
    report = lambda: refused.append(is_refused(lambda: harness.complete(task_id)))  # noqa: E731
    server = harness.replica(FaultAt(number, before=report), caches_tasks=True)
    server.tasks.recall(task_id)
    refused.append(is_refused(lambda: create(harness, task_id, "blob", services=server)))
    assert sorted(refused) == [False, True]
