"""Artifacts are created, published, found, listed, and removed after they expired."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.errors import ResourceNotFound, ServiceUnavailable
from legacy_queue.domain.ids import slugid
from tests.services.artifact_calls import CONTENT, NAME, TEXT, blob_name, create, etag, stored
from tests.services.harness import HOUR, MINUTE, NOW, SECOND, CallRecorder, Crash, FaultAt, Harness, failing

each_type = pytest.mark.parametrize(
    "storage_type", ["s3", "azure", "blob", "object", "reference", "link", "error"]
)
TYPES_WITH_BYTES = ["s3", "azure", "blob", "object"]
DRIFT = 15 * MINUTE


def with_bytes(harness: Harness, task_id: str, storage_type: str) -> str:
    """Create an artifact of that type with content. Returns the name of its blob."""
    create(harness, task_id, storage_type)
    name = blob_name(harness, task_id)
    harness.storage.blobs.write(name, [CONTENT], TEXT, None)
    return name


@each_type
def test_each_create_publishes_the_stored_artifact(harness: Harness, storage_type: str) -> None:
    task_id = harness.claimed()
    harness.events()
    for _ in range(2):
        create(harness, task_id, storage_type)
        assert harness.events() == [("artifact-created", task_id, 0)]
    wire = stored(harness, task_id).artifact.to_wire()
    if storage_type in ("link", "object"):  # which readers of 2018 do not know
        wire["storageType"] = "reference"
    assert harness.broker.published[-1].payload["artifact"] == wire


@each_type
def test_a_create_writes_once_and_publishes_before_it_answers(storage_type: str) -> None:
    harness, calls = Harness(), CallRecorder()
    server = harness.replica(calls, caches_tasks=True)
    harness.services = server
    task_id = harness.claimed()
    calls.names.clear()
    create(harness, task_id, storage_type)
    signed = {"azure": ["blob.upload_url"]}.get(storage_type, [])
    noted = ["replace"] if storage_type in ("blob", "object") else []
    assert calls.names == ["load", "artifact.insert", *noted, "broker.publish", *signed]


def test_an_artifact_removed_during_a_create_is_created_again(harness: Harness) -> None:
    task_id = harness.claimed()
    create(harness, task_id, "error")
    remove = lambda: harness.storage.artifacts.remove(stored(harness, task_id))  # noqa: E731
    create(harness, task_id, services=harness.replica(FaultAt(0, of="artifact.load", before=remove)))
    assert stored(harness, task_id).artifact.storage_type == "s3"


@pytest.mark.parametrize(("storage_type", "dies"), [("s3", False), ("blob", True)])
def test_unpublished_artifacts_are_published_in_order_when_the_broker_is_back(
    harness: Harness, storage_type: str, dies: bool
) -> None:
    task_id = harness.claimed()
    harness.events()
    harness.broker.capacity = 0
    for name in ("one", "two"):
        create(harness, task_id, storage_type, name)
    harness.services.tasks.report(task_id, 0, "failed", "failed")
    if dies:
        harness.services = harness.replica()
    harness.run_timers(MINUTE)
    assert harness.events() == []
    harness.broker.capacity = None
    harness.run_timers(MINUTE)
    events = harness.broker.published[-len(harness.events()) :]
    names = [event.payload["artifact"]["name"] for event in events if event.exchange == "artifact-created"]
    assert list(dict.fromkeys(names)) == ["one", "two"]
    exchanges = list(dict.fromkeys(event.exchange for event in events))
    assert exchanges[-3:] == ["artifact-created", "task-failed", "task-group-resolved"]


@pytest.mark.parametrize(("write", "name"), [("artifact.insert", "another"), ("artifact.replace", NAME)])
def test_an_artifact_whose_server_dies_after_its_write_is_published_by_another(
    harness: Harness, write: str, name: str
) -> None:
    task_id = harness.claimed()
    with_bytes(harness, task_id, "blob")
    harness.kill_process()
    dies = harness.replica(FaultAt(0, of=write, after=failing(Crash())))
    complete = partial(dies.artifacts.complete, task_id, 0, name, [etag(CONTENT)])
    call = complete if name == NAME else partial(create, harness, task_id, "s3", name, dies)
    with pytest.raises(Crash):
        call()
    before = len(harness.broker.published)
    harness.run_timers(30 * SECOND)
    events = harness.broker.published[before:]
    assert name in [event.payload["artifact"]["name"] for event in events if "artifact" in event.payload]


def test_find_returns_the_artifact_and_its_url(harness: Harness) -> None:
    task_id = harness.claimed()
    for storage_type in ("s3", "azure", "reference", "link", "error"):
        create(harness, task_id, storage_type, storage_type)

    def url(name: str) -> Any:
        found = harness.services.artifacts.find(task_id, 0, name)
        assert found.artifact == stored(harness, task_id, name).artifact
        assert harness.services.artifacts.info(task_id, 0, name) == found.artifact
        return found.url

    for name in ("s3", "azure"):
        assert f"/{blob_name(harness, task_id, name)}?" in url(name)
    assert url("reference") == "https://elsewhere.example.com/live.log"
    assert url("error") is None
    assert url("link") is None


def test_latest_run_is_the_last_run_of_a_task_with_runs(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.shut_down(task_id)
    assert harness.services.artifacts.latest_run(task_id) == 1
    with pytest.raises(ResourceNotFound, match="has no runs"):
        harness.services.artifacts.latest_run(harness.create(dependencies=[task_id]))
    with pytest.raises(ResourceNotFound):
        harness.services.artifacts.latest_run(slugid())


@pytest.mark.parametrize("storage_type", TYPES_WITH_BYTES)
def test_expiry_removes_row_and_bytes_but_not_before_the_drift_has_passed(
    harness: Harness, storage_type: str
) -> None:
    task_id = harness.claimed()
    name = with_bytes(harness, task_id, storage_type)
    harness.sweep(HOUR + DRIFT)
    assert harness.storage.blobs.properties(name)
    assert harness.storage.artifacts.load(task_id, 0, NAME)
    harness.sweep(HOUR)
    assert harness.storage.blobs.properties(name) is None
    assert harness.storage.artifacts.load(task_id, 0, NAME) is None
    harness.sweep(HOUR)


def test_an_expired_artifact_without_bytes_is_removed(harness: Harness) -> None:
    task_id = harness.claimed()
    create(harness, task_id, "reference")
    harness.sweep(2 * HOUR + DRIFT)
    assert harness.storage.artifacts.load(task_id, 0, NAME) is None


@pytest.mark.parametrize("call", ["blob.remove", "artifact.remove"])
def test_a_pass_removes_the_other_artifacts_if_one_fails(harness: Harness, call: str) -> None:
    task_id = harness.claimed()
    for number in range(3):
        create(harness, task_id, name=f"{number}")
    harness.clock.advance(HOUR + DRIFT + SECOND)
    refusing = FaultAt(1, of=call, before=failing(ZeroDivisionError("it is held fast")))
    with capture_logs() as logs:
        assert harness.replica(refusing).artifacts.remove_expired("", 10, None) is None
    (entry,) = [entry for entry in logs if entry["event"] == "artifact-not-removed"]
    assert [artifact.name for artifact in harness.storage.artifacts.list(task_id, 0, "", 10)] == [
        entry["name"]
    ]
    harness.services.artifacts.remove_expired("", 10, None)
    assert harness.storage.artifacts.list(task_id, 0, "", 10) == []


def test_a_pass_ends_while_storage_is_away(harness: Harness) -> None:
    with_bytes(harness, harness.claimed(), "azure")
    harness.clock.advance(HOUR + DRIFT + SECOND)
    away = FaultAt(0, of="blob.remove", before=failing(ServiceUnavailable("storage is away")))
    with pytest.raises(ServiceUnavailable):
        harness.replica(away).artifacts.remove_expired("", 10, None)


def test_an_expired_artifact_that_is_created_again_leaves_no_old_content(harness: Harness) -> None:
    task_id = harness.claimed()
    old, first = with_bytes(harness, task_id, "blob"), stored(harness, task_id)
    harness.storage.artifacts.replace(first, replace(first.artifact, expires=NOW - 10 * MINUTE))
    new = with_bytes(harness, task_id, "blob")
    assert harness.storage.blobs.properties(new)
    assert harness.storage.blobs.properties(old) is None
