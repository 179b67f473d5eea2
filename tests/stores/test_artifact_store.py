from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from legacy_queue.domain.artifact import Artifact
from legacy_queue.domain.ids import slugid
from legacy_queue.ports import AlreadyExists, Changed
from legacy_queue.stores import Storage, StoredArtifact

from .paging import keyed_pages, pages

EXPIRES = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
DAY = timedelta(days=1)
PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
NAMES = [
    "public/logs/live.log",
    "public%2Flogs%2Flive.log",
    "public//logs/../live.log",
    "/",
    "..",
    " ",
    "a'b",
    "what?#\\",
    PRINTABLE,
    "/" * 1024,
    "/" * 1023 + "?",
    "x" * 1024,
    "x" * 1023 + "y",
]


def new_artifact(task_id: str, name: str = "public/logs/live.log", run_id: int = 0, **more: Any) -> Artifact:
    given: dict[str, Any] = {"storage_type": "s3", "content_type": "text/plain", "expires": EXPIRES, **more}
    return Artifact(task_id, run_id, name, **given)


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
    "more",
    [
        {"storage_type": "reference", "details": {"url": "https://example.com/é?a=b"}},
        {"storage_type": "error", "details": {"reason": "file-missing", "message": "x" * 100_000}},
        {"storage_type": "blob", "is_complete": False, "details": {"parts": [{"size": 1}] * 10_000}},
        {"content_type": "", "expires": datetime(9999, 1, 1, tzinfo=UTC)},
        {"run_id": 999},
    ],
    ids=lambda more: next(iter(more)) + str(len(more)),
)
def test_every_field_of_an_artifact_is_stored(storage: Storage, other: Storage, more: dict[str, Any]) -> None:
    artifact = new_artifact(slugid(), **more)
    storage.artifacts.insert(artifact)
    loaded = other.artifacts.load(artifact.task_id, artifact.run_id, artifact.name)
    assert loaded
    assert loaded.artifact == artifact


def test_each_run_of_each_task_has_its_own_artifacts(storage: Storage) -> None:
    first, second = slugid(), slugid()
    for task_id, run_id in ((first, 0), (first, 1), (first, 10), (second, 0)):
        storage.artifacts.insert(new_artifact(task_id, f"{task_id}.{run_id}", run_id))
    assert [names(storage, first, run_id) for run_id in (0, 1, 2, 10)] == [
        [f"{first}.0"],
        [f"{first}.1"],
        [],
        [f"{first}.10"],
    ]
    assert names(storage, second) == [f"{second}.0"]


def test_one_of_two_concurrent_inserts_is_refused(storage: Storage, other: Storage) -> None:
    artifact = new_artifact(slugid())
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(one.artifacts.insert, artifact) for one in (storage, other)]
    refused = [call.exception() for call in both if call.exception()]
    assert [type(one) for one in refused] == [AlreadyExists]


def test_an_outdated_version_of_an_artifact_is_not_replaced(storage: Storage, other: Storage) -> None:
    stored = storage.artifacts.insert(new_artifact(slugid(), details={"url": "u", "more": "x" * 200_000}))
    changed = replace(stored.artifact, details={"url": "v"}, expires=EXPIRES + DAY, is_complete=False)
    now = other.artifacts.replace(stored, changed)
    assert storage.artifacts.load(changed.task_id, 0, changed.name) == StoredArtifact(changed, now.etag)
    with pytest.raises(Changed):
        storage.artifacts.replace(stored, stored.artifact)
    storage.artifacts.remove(now)
    with pytest.raises(Changed):
        other.artifacts.replace(now, changed)
    assert names(storage, changed.task_id) == []


def test_an_outdated_version_of_an_artifact_is_not_removed(storage: Storage, other: Storage) -> None:
    stored = storage.artifacts.insert(new_artifact(slugid()))
    now = other.artifacts.replace(stored, replace(stored.artifact, expires=EXPIRES + DAY))
    with pytest.raises(Changed):
        storage.artifacts.remove(stored)
    assert names(storage, stored.artifact.task_id) == [stored.artifact.name]
    for _ in range(2):
        storage.artifacts.remove(now)
        assert names(other, stored.artifact.task_id) == []


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


def test_a_page_may_begin_behind_a_removed_artifact(storage: Storage) -> None:
    task_id = slugid()
    a, _, _ = (storage.artifacts.insert(new_artifact(task_id, name)) for name in ("a", "b", "c"))
    storage.artifacts.remove(a)
    assert [artifact.name for artifact in storage.artifacts.list(task_id, 0, "a", 1)] == ["b"]


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


def test_expired_artifacts_are_found_page_by_page(storage: Storage, other: Storage) -> None:
    stored = [
        storage.artifacts.insert(new_artifact(slugid(), f"{number}", expires=EXPIRES + number * DAY))
        for number in range(10)
    ]
    for now, limit in ((EXPIRES, 3), (EXPIRES + 5 * DAY, 2), (EXPIRES + 5 * DAY, 100)):
        expired = [row for page in pages(partial(_expired, storage, now, limit)) for row in page]
        expected = [one for one in stored if one.artifact.expires < now]
        assert sorted(expired, key=lambda one: one.artifact.expires) == expected
    for one in stored[:2]:
        other.artifacts.remove(one)
    left, _ = storage.artifacts.expired(EXPIRES + 3 * DAY, "", 100)
    assert left == stored[2:3]


def _expired(storage: Storage, now: datetime, limit: int, after: str) -> Any:
    return storage.artifacts.expired(now, after, limit)


def test_the_details_of_an_artifact_may_shrink_and_grow(storage: Storage) -> None:
    task_id = slugid()
    large, small = (new_artifact(task_id, details={"message": "x" * length}) for length in (200_000, 1))
    storage.artifacts.insert(large)
    for artifact in (small, large, small):
        stored = storage.artifacts.load(task_id, 0, artifact.name)
        assert stored
        storage.artifacts.replace(stored, artifact)
        assert [*storage.artifacts.list(task_id, 0, "", 9)] == [artifact]
