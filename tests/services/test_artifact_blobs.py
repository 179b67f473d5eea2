"""Blobs are complete once the declared content is stored. Before that their run cannot be completed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.domain.artifact import BlobArtifact
from legacy_queue.domain.errors import InputError, RequestConflict, ResourceNotFound
from legacy_queue.domain.tickets import Ticket
from legacy_queue.domain.times import format_time
from legacy_queue.services.composition import Services
from tests.services import interleaving
from tests.services.artifact_calls import CONTENT, NAME, create, etag, in_parts, stored, upload
from tests.services.harness import HOUR, MINUTE, NOW, FaultAt, Harness
from tests.services.interleaving import every_order, run

PARTS = (b"1" * 5 * 1024**2, b"2" * 6 * 1024**2, b"the last part")
MS = timedelta(milliseconds=1)
ETAGS = [etag(part) for part in PARTS]


def complete(harness: Harness, task_id: str, *etags: str, services: Services | None = None) -> None:
    (services or harness.services).artifacts.complete(task_id, 0, NAME, etags or [etag(CONTENT)])


def uploaded(harness: Harness, name: str = NAME) -> str:
    """A running task with an uploaded blob that is not completed."""
    task_id = harness.claimed()
    (request,) = create(harness, task_id, "blob", name)["requests"]
    upload(harness, request["url"])
    return task_id


def in_parts_uploaded(harness: Harness, sent: Any = PARTS, **changes: Any) -> str:
    task_id = harness.claimed()
    requests = harness.services.artifacts.create(task_id, 0, NAME, in_parts(*PARTS) | changes)["requests"]
    for request, part in zip(requests, sent, strict=True):
        if part is not None:
            upload(harness, request["url"], part, "")
    return task_id


def test_a_url_to_download_a_blob_downloads_no_other_artifact_of_that_name(harness: Harness) -> None:
    task_id = harness.claimed()
    create(harness, task_id, "s3")
    ticket = Ticket(task_id, 0, stored(harness, task_id).artifact.name, harness.clock.now())
    with pytest.raises(ResourceNotFound, match="is another now"):
        harness.services.artifacts.content(ticket)


def test_a_blob_is_incomplete_until_its_missing_part_is_uploaded(harness: Harness) -> None:
    task_id = in_parts_uploaded(harness, (PARTS[0], None, PARTS[2]))
    with pytest.raises(RequestConflict, match="not all 3 parts"):
        complete(harness, task_id, *ETAGS)
    requests = harness.services.artifacts.create(task_id, 0, NAME, in_parts(*PARTS))["requests"]
    upload(harness, requests[1]["url"], PARTS[1], "")
    complete(harness, task_id, *ETAGS)
    assert stored(harness, task_id).artifact.is_complete


def test_a_blob_that_was_not_uploaded_cannot_be_completed(harness: Harness) -> None:
    task_id = harness.claimed()
    create(harness, task_id, "blob")
    with pytest.raises(RequestConflict, match="was not uploaded"):
        complete(harness, task_id)


@pytest.mark.parametrize(
    "etags", [["x"], [etag(b"x")], [etag(CONTENT), etag(CONTENT)]], ids=["malformed", "wrong", "too many"]
)
@pytest.mark.parametrize("is_complete", [False, True])
def test_wrong_etags_are_refused(harness: Harness, etags: list[str], is_complete: bool) -> None:
    task_id = uploaded(harness)
    if is_complete:
        complete(harness, task_id)
    with pytest.raises(InputError, match=rf"the etags \({len(etags)}\)"):
        complete(harness, task_id, *etags)
    assert stored(harness, task_id).artifact.is_complete == is_complete


def test_a_blob_that_is_created_again_during_its_completion_is_not_completed(harness: Harness) -> None:
    task_id = uploaded(harness)

    def begin_anew() -> None:
        before = stored(harness, task_id)
        assert isinstance(before.artifact, BlobArtifact)
        harness.storage.artifacts.replace(before, replace(before.artifact, blob_suffix="-1"))

    with pytest.raises(RequestConflict, match="created again"):
        complete(
            harness, task_id, services=harness.replica(FaultAt(0, of="artifact.replace", before=begin_anew))
        )
    assert not stored(harness, task_id).artifact.is_complete


def test_a_blob_is_published_when_created_and_at_each_completion(harness: Harness) -> None:
    task_id = harness.claimed()
    harness.events()
    event = ("artifact-created", task_id, 0)
    (request,) = create(harness, task_id, "blob")["requests"]
    assert harness.events() == [event]
    upload(harness, request["url"])
    assert harness.events() == []
    complete(harness, task_id)
    assert harness.events() == [event]
    harness.complete(task_id)
    harness.events()
    complete(harness, task_id)
    assert harness.events() == [event]


def test_a_concurrent_extension_keeps_the_completion(harness: Harness) -> None:
    task_id = uploaded(harness)
    extend = lambda: create(harness, task_id, "blob", expires=format_time(NOW + 2 * HOUR))  # noqa: E731
    complete(harness, task_id, services=harness.replica(FaultAt(0, of="artifact.replace", before=extend)))
    artifact = stored(harness, task_id).artifact
    assert (artifact.is_complete, artifact.expires) == (True, NOW + 2 * HOUR)


def test_a_run_cannot_be_completed_before_its_blobs(harness: Harness) -> None:
    task_id = uploaded(harness)
    create(harness, task_id, "s3", "another")
    harness.events()
    with pytest.raises(RequestConflict, match=f"artifact '{NAME}' of run 0 is not complete"):
        harness.complete(task_id)
    assert harness.states(task_id) == ["running by alice"]
    assert harness.events() == []
    complete(harness, task_id)
    for _ in range(2):
        assert harness.complete(task_id).state == "completed"


def test_a_run_does_not_wait_for_an_expired_blob(harness: Harness) -> None:
    task_id = uploaded(harness)
    create(harness, task_id, "blob", "another", expires=format_time(NOW + 2 * MINUTE))
    complete(harness, task_id)
    harness.clock.advance(2 * MINUTE - MS)
    with pytest.raises(RequestConflict, match="'another' of run 0 is not complete"):
        harness.complete(task_id)
    harness.clock.advance(MS)
    assert harness.complete(task_id).state == "completed"


@pytest.mark.parametrize("before", [False, True])
def test_of_a_concurrent_create_and_report_one_gets_a_conflict(before: bool) -> None:
    """A create and a report at once, in every order of their port calls, also after an earlier blob."""

    def scene(choose: Callable[[int], int]) -> None:
        harness = Harness()
        task_id = uploaded(harness) if before else harness.claimed()
        if before:
            complete(harness, task_id)
        one, other = (harness.replica(pausing, caches_tasks=True) for _ in range(2))
        run([lambda: one.tasks.recall(task_id), lambda: other.tasks.recall(task_id)], lambda _: 0)
        results = run(
            [
                lambda: create(harness, task_id, "blob", "another", services=one),
                lambda: harness.complete(task_id, 0, other),
            ],
            choose,
        )
        is_refused = [isinstance(result, RequestConflict) for result in results]
        assert sorted(is_refused) == [False, True]
        left = harness.storage.artifacts.incomplete(task_id, 0, harness.clock.now())
        assert (left is not None) == is_refused[1]
        assert harness.task(task_id).state == ("running" if is_refused[1] else "completed")

    assert every_order(scene) > 10


def pausing(name: str, call: Callable[[], Any]) -> Any:
    """Timers and events do not matter for this race."""
    return call() if name in ("timer.put", "broker.publish") else interleaving.pausing(name, call)


def test_a_refused_create_removes_the_row_it_inserted_and_no_other(harness: Harness) -> None:
    task_id = harness.claimed()
    fail = lambda: harness.services.tasks.report(task_id, 0, "failed", "failed")  # noqa: E731
    with pytest.raises(RequestConflict):
        create(
            harness, task_id, "blob", services=harness.replica(FaultAt(0, of="artifact.insert", after=fail))
        )
    assert harness.storage.artifacts.list(task_id, 0, "", 10) == []

    other = uploaded(harness)
    fail = lambda: harness.services.tasks.report(other, 0, "failed", "failed")  # noqa: E731
    with pytest.raises(RequestConflict):
        create(
            harness, other, "blob", services=harness.replica(FaultAt(0, of="artifact.insert", before=fail))
        )
    assert stored(harness, other)
