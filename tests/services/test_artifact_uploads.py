"""An upload is stored only if all of it is as createArtifact declared it."""

from dataclasses import replace
from typing import Any

import pytest

from legacy_queue.domain import errors
from legacy_queue.domain.artifact import MAX_UPLOAD_SIZE
from legacy_queue.domain.ids import slugid
from tests.domain.sample_tasks import MINUTE, NOW
from tests.services.artifact_calls import (
    CONTENT,
    NAME,
    blob_name,
    body,
    create,
    etag,
    in_parts,
    sha256,
    stored,
    upload,
)
from tests.services.harness import Harness

PARTS = (b"1" * 5 * 1024**2, b"the last part")
MIB = 1024**2


def url_of(harness: Harness, task_id: str, storage_type: str = "s3", **changes: Any) -> str:
    answer = create(harness, task_id, storage_type, **changes)
    return str(answer["requests"][0]["url"] if storage_type == "blob" else answer["putUrl"])


def content(harness: Harness, task_id: str) -> bytes | None:
    try:
        return b"".join(harness.storage.blobs.read(blob_name(harness, task_id)))
    except KeyError:
        return None


@pytest.mark.parametrize(
    ("storage_type", "more", "error", "said"),
    [
        ("s3", {"content_type": "text/html"}, errors.AuthorizationFailed, "'text/html': expected"),
        ("s3", {"chunks": [CONTENT[:-1]]}, errors.MalformedPayload, "ended after 21 of 22 bytes"),
        ("s3", {"chunks": [CONTENT, b"x"]}, errors.MalformedPayload, "ended after 23 of 22 bytes"),
        ("s3", {"length": MAX_UPLOAD_SIZE + 1}, errors.InputTooLarge, "at most 5368709120 bytes"),
        ("s3", {"md5": "x"}, errors.InputError, "content-md5 is 'x'"),
        ("s3", {"content_encoding": "gz\u00e4p"}, errors.InputError, "content-encoding is 'gzäp'"),
        ("blob", {"content": b"x" * len(CONTENT)}, errors.InputError, f"{sha256(CONTENT)} was declared"),
        ("blob", {"content": b"x"}, errors.InputError, "content-length is 1: expected 22"),
    ],
)
def test_an_upload_that_differs_from_its_declaration_is_not_stored(
    harness: Harness, storage_type: str, more: dict[str, Any], error: type[errors.QueueError], said: str
) -> None:
    task_id = harness.claimed()
    with pytest.raises(error, match=said):
        upload(harness, url_of(harness, task_id, storage_type), **more)
    assert content(harness, task_id) is None


def test_an_upload_after_the_task_is_resolved_is_not_stored(harness: Harness) -> None:
    task_id = harness.claimed()
    url = url_of(harness, task_id)
    harness.services.tasks.report(task_id, 0, "failed", "failed")
    with pytest.raises(errors.RequestConflict, match="is failed"):
        upload(harness, url)
    assert content(harness, task_id) is None


@pytest.mark.parametrize("now", ["reference", "blob", "parts", "expired"])
def test_an_old_upload_url_stores_only_what_the_present_artifact_accepts(harness: Harness, now: str) -> None:
    """The artifact expired and was created again before its URL expired. Only a wrong clock leads to this."""
    task_id = harness.claimed()
    url, name = url_of(harness, task_id), blob_name(harness, task_id)
    before = stored(harness, task_id)
    harness.storage.artifacts.remove(before)
    if now == "parts":
        harness.services.artifacts.create(task_id, 0, NAME, in_parts(*PARTS))
    elif now == "expired":
        harness.storage.artifacts.insert(replace(before.artifact, expires=NOW - 15 * MINUTE))
    else:
        create(harness, task_id, now)
    if now == "blob":
        assert upload(harness, url) == etag(CONTENT)  # the content fits the new blob as well
        return
    with pytest.raises(errors.ResourceNotFound if now == "expired" else errors.RequestConflict):
        upload(harness, url)
    assert harness.storage.blobs.properties(name) is None


def parts_of(size: int, count: int) -> dict[str, Any]:
    length = size * count
    parts = [{"sha256": sha256(b"part"), "size": size}] * count
    return body("blob", contentLength=length, contentSha256=sha256(b"whole"), parts=parts)


def test_parts_that_storage_cannot_join_are_refused_when_the_artifact_is_created(harness: Harness) -> None:
    task_id = harness.claimed()
    with pytest.raises(errors.InputTooLarge, match="2002 blocks of 4 MiB, each part rounded up"):
        harness.services.artifacts.create(task_id, 0, NAME, parts_of(5 * MIB, 1001))
    assert harness.storage.artifacts.load(task_id, 0, NAME) is None
    harness.services.artifacts.create(task_id, 0, NAME, parts_of(5 * MIB, 1000))


def put_part(harness: Harness, task_id: str) -> str:
    """Upload the first of two parts, which has two blocks. Returns the URL."""
    url = harness.services.artifacts.create(task_id, 0, NAME, in_parts(*PARTS))["requests"][0]["url"]
    upload(harness, url, PARTS[0])
    return str(url)


def test_uploads_that_leave_too_many_blocks_fail(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(harness.account.container), "max_blocks", 4)
    task_id = harness.claimed()
    put_part(harness, task_id)
    url = put_part(harness, task_id)
    with pytest.raises(errors.RequestConflict, match="left as many blocks as are allowed"):
        upload(harness, url, PARTS[0])


@pytest.mark.parametrize(
    ("result", "after", "blocks"),
    [("", 60, 2), ("failed", 0, 0), ("exception", 25, 2), ("exception", 26, 0), ("corrupt", 60, 2)],
)
def test_unused_blocks_are_discarded_when_the_run_accepts_no_more_artifacts(
    harness: Harness, result: str, after: int, blocks: int
) -> None:
    task_id = harness.claimed()
    put_part(harness, task_id)
    name = blob_name(harness, task_id)
    reason = "internal-error" if result == "exception" else result
    if result == "corrupt":
        table = harness.account.table("qtasks")
        table.merge(task_id, "task", {"runs": b"{"}, None)
    elif result:
        harness.services.tasks.report(task_id, 0, result, reason)
    harness.clock.advance(after * MINUTE)
    assert harness.services.artifacts.discard_blocks("", 100, None) is None
    found = harness.account.container.block_list(name)
    assert len(found.uncommitted if found else []) == blocks


def test_blocks_of_removed_tasks_and_unknown_blocks_are_discarded_page_by_page(harness: Harness) -> None:
    container = harness.account.container
    names = [f"{slugid()}/0/digest", f"{slugid()}/0/public/logs/live.log", "foreign"]
    for name in names:
        container.put_block(name, "block", b"content")
    after: str | None = ""
    pages = 0
    while after is not None:
        after = harness.services.artifacts.discard_blocks(after, 2, None)
        pages += 1
    assert (pages, [container.block_list(name) for name in names]) == (2, [None] * 3)
