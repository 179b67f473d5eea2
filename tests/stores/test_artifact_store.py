from datetime import UTC, datetime
from typing import Any

import pytest

from legacy_queue.domain.artifact import (
    Artifact,
    AzureArtifact,
    BlobArtifact,
    ErrorArtifact,
    LinkArtifact,
    ObjectArtifact,
    ReferenceArtifact,
    S3Artifact,
)
from legacy_queue.domain.ids import slugid
from legacy_queue.ports.table import PARTITION, Condition
from legacy_queue.stores import Storage
from legacy_queue.stores.table_rows import json_values
from tests.domain.sample_tasks import NOW

from .conftest import Backend

FAR = datetime(9999, 1, 1, tzinfo=UTC)
PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
NAMES = [
    "public/logs/live.log",
    "public%2Flogs%2Flive.log",
    "public//logs/../live.log",
    "/",
    " ",
    "a'b",
    "what?#\\",
    PRINTABLE,
    "/" * 1024,
    "x" * 1024,
    "x" * 1023 + "y",
]

BLOB = {
    "content_length": 2**40,
    "content_sha256": "ab" * 32,
    "transfer_length": 7,
    "transfer_sha256": "cd" * 32,
    "content_encoding": "gzip",
}


def new_artifact(
    task_id: str, name: str = "public/live.log", kind: type[Artifact] = S3Artifact, **more: Any
) -> Artifact:
    given = {"task_id": task_id, "run_id": 0, "name": name, "content_type": "text/plain", "expires": NOW}
    return kind(**{**given, **more})


def names(storage: Storage, task_id: str, run_id: int = 0) -> list[str]:
    return [artifact.name for artifact in storage.artifacts.list(task_id, run_id, "", 1000)]


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (S3Artifact, {"blob_suffix": "-1"}),
        (AzureArtifact, {"is_named": True, "run_id": 999, "content_type": "", "expires": FAR}),
        (BlobArtifact, {**BLOB, "is_complete": False, "part_count": 10_000, "parts_sha256": "ef" * 32}),
        (ObjectArtifact, {"project_id": "none", "upload_id": "id", "hashes": {"sha256": "ab" * 32}}),
        (ReferenceArtifact, {"url": "https://example.com/é?a=b"}),
        (LinkArtifact, {"target": "public/é"}),
        (ErrorArtifact, {"reason": "file-missing", "message": "x" * 100_000}),
    ],
)
def test_every_field_of_an_artifact_is_stored(
    storage: Storage, other: Storage, kind: type[Artifact], own: dict[str, Any]
) -> None:
    artifact = new_artifact(slugid(), "é", kind=kind, **own)
    storage.artifacts.insert(artifact)
    loaded = other.artifacts.load(artifact.task_id, artifact.run_id, artifact.name)
    assert loaded
    assert loaded.artifact == artifact


def test_an_unknown_field_of_a_stored_artifact_is_ignored(backend: Backend) -> None:
    artifact = new_artifact(slugid())
    storage = backend.storage
    storage.artifacts.insert(artifact)
    table = storage.account.table(f"{backend.prefix}artifacts")
    (row,) = table.page([Condition(PARTITION, "eq", artifact.task_id)], "", 10).rows
    details = {"blob_suffix": "-1", "in_object_store": False}
    table.merge(row.partition, row.key, json_values("details", details))
    loaded = storage.artifacts.load(artifact.task_id, 0, artifact.name)
    assert loaded
    assert loaded.artifact == new_artifact(artifact.task_id, blob_suffix="-1")


def test_each_run_of_each_task_has_its_own_artifacts(storage: Storage) -> None:
    first, second = slugid(), slugid()
    for task_id, run_id in ((first, 0), (first, 1), (first, 10), (second, 0)):
        storage.artifacts.insert(new_artifact(task_id, f"{run_id}", run_id=run_id))
    assert [names(storage, first, run_id) for run_id in (0, 1, 2, 10)] == [["0"], ["1"], [], ["10"]]
    assert names(storage, second) == ["0"]


def test_artifacts_with_unusual_names_are_listed_once_each_across_pages(storage: Storage) -> None:
    task_id = slugid()
    for name in NAMES:
        storage.artifacts.insert(new_artifact(task_id, name))
    listed = [""]
    while page := storage.artifacts.list(task_id, 0, listed[-1], 2):
        listed += [artifact.name for artifact in page]
    assert listed[1:] == names(storage, task_id)
    assert sorted(listed[1:]) == sorted(NAMES)
