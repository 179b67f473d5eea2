from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
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
from legacy_queue.ports import Changed
from legacy_queue.stores import Storage, StoredArtifact

from .paging import keyed_pages

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
DAY = timedelta(days=1)
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
    task_id: str, name: str = "public/logs/live.log", run_id: int = 0, **more: Any
) -> S3Artifact:
    given: dict[str, Any] = {"content_type": "text/plain", "expires": EXPIRES, **more}
    return S3Artifact(task_id=task_id, run_id=run_id, name=name, **given)


def names(storage: Storage, task_id: str, run_id: int = 0) -> list[str]:
    return [artifact.name for artifact in storage.artifacts.list(task_id, run_id, "", 1000)]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_an_artifact_is_found_only_under_its_name(storage: Storage, other: Storage, name: str) -> None:
    artifact = new_artifact(slugid(), name)
    stored = storage.artifacts.insert(artifact)
    assert stored.artifact == artifact
    assert other.artifacts.load(artifact.task_id, 0, name) == stored
    others = {one for one in NAMES if one != name} | {name[:-1], name + "x", name.upper() + "X"} - {""}
    assert [one for one in others if storage.artifacts.load(artifact.task_id, 0, one)] == []


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (S3Artifact, {"in_object_store": True, "blob_suffix": "-1"}),
        (AzureArtifact, {"run_id": 999, "content_type": "", "expires": datetime(9999, 1, 1, tzinfo=UTC)}),
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
    common: dict[str, Any] = {"task_id": slugid(), "run_id": 0, "name": "é", "content_type": "text/plain"}
    artifact = kind(**{**common, "expires": EXPIRES, **own})
    storage.artifacts.insert(artifact)
    loaded = other.artifacts.load(artifact.task_id, artifact.run_id, artifact.name)
    assert loaded
    assert loaded.artifact == artifact


def test_each_run_of_each_task_has_its_own_artifacts(storage: Storage) -> None:
    first, second = slugid(), slugid()
    for task_id, run_id in ((first, 0), (first, 1), (first, 10), (second, 0)):
        storage.artifacts.insert(new_artifact(task_id, f"{run_id}", run_id))
    assert [names(storage, first, run_id) for run_id in (0, 1, 2, 10)] == [["0"], ["1"], [], ["10"]]
    assert names(storage, second) == ["0"]


def test_an_outdated_version_is_not_replaced_or_removed(storage: Storage, other: Storage) -> None:
    stored = storage.artifacts.insert(new_artifact(slugid()))
    changed = replace(stored.artifact, expires=EXPIRES + DAY, is_complete=False)
    now = other.artifacts.replace(stored, changed)
    assert storage.artifacts.load(changed.task_id, 0, changed.name) == StoredArtifact(changed, now.etag)
    for act in (storage.artifacts.remove, lambda old: storage.artifacts.replace(old, old.artifact)):
        with pytest.raises(Changed):
            act(stored)
    storage.artifacts.remove(now)
    storage.artifacts.remove(now)
    with pytest.raises(Changed):
        other.artifacts.replace(now, changed)
    assert names(storage, changed.task_id) == []


def test_artifacts_are_listed_in_pages_ordered_by_name(storage: Storage) -> None:
    task_id = slugid()
    in_order = [
        "a",
        "a b",
        "a!",
        "a#",
        "a%",
        "a.b",
        "a/",
        "a/a",
        "a/b",
        "a/b/c",
        "a0",
        "a?",
        "a[b",
        "a]",
        "ab",
    ]
    for name in reversed(in_order):
        storage.artifacts.insert(new_artifact(task_id, name))
    assert names(storage, task_id) == in_order
    found = keyed_pages(partial(storage.artifacts.list, task_id, 0), 5, lambda artifact: str(artifact.name))
    assert [[artifact.name for artifact in page] for page in found] == [
        in_order[:5],
        in_order[5:10],
        in_order[10:],
        [],
    ]


def test_pages_of_unusual_names_are_complete_and_repeat_none(storage: Storage) -> None:
    task_id = slugid()
    for name in NAMES:
        storage.artifacts.insert(new_artifact(task_id, name))
    found = keyed_pages(partial(storage.artifacts.list, task_id, 0), 2, lambda artifact: str(artifact.name))
    listed = [artifact.name for page in found for artifact in page]
    assert listed == names(storage, task_id)
    assert sorted(listed) == sorted(NAMES)


def test_an_incomplete_artifact_of_the_run_is_found_among_many(storage: Storage) -> None:
    task_id = slugid()
    for name in PRINTABLE:
        storage.artifacts.insert(new_artifact(task_id, name))
    storage.artifacts.insert(new_artifact(task_id, run_id=1, is_complete=False))
    before = EXPIRES - timedelta(milliseconds=1)
    assert storage.artifacts.incomplete(task_id, 0, before) is None
    stored = storage.artifacts.insert(new_artifact(task_id, is_complete=False))
    assert storage.artifacts.incomplete(task_id, 0, before) == stored.artifact
    assert storage.artifacts.incomplete(task_id, 0, EXPIRES) is None
    storage.artifacts.replace(stored, replace(stored.artifact, is_complete=True))
    assert storage.artifacts.incomplete(task_id, 0, before) is None
