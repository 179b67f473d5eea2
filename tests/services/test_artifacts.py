"""Artifacts on record: created, told of, found, listed, and gone when they have expired."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from legacy_queue.domain.artifacts import UPLOAD_WINDOW, Artifact
from legacy_queue.domain.errors import (
    AuthorizationFailed,
    RequestConflict,
    ResourceExpired,
    ResourceNotFound,
    ServiceUnavailable,
)
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time
from legacy_queue.services.pages import Page
from legacy_queue.stores import StoredArtifact
from tests.services.artifact_calls import CONTENT, NAME, TEXT, HandObjects, body, create, upload
from tests.services.bench import HOUR, MINUTE, NOW, SECOND, At, Bench, Calls, Crash, failing

each_type = pytest.mark.parametrize(
    "storage_type", ["s3", "azure", "blob", "object", "reference", "link", "error"]
)
TYPES_WITH_BYTES = ["s3", "azure", "blob", "object"]
URL_LIFE, DRIFT = 45 * MINUTE, 15 * MINUTE


def stored(bench: Bench, task_id: str, name: str = NAME) -> StoredArtifact:
    found = bench.storage.artifacts.load(task_id, 0, name)
    assert found
    return found


def with_bytes(bench: Bench, task_id: str, storage_type: str) -> str:
    """The name of the blob of an artifact of that type, which is there."""
    create(bench, task_id, storage_type)
    name = stored(bench, task_id).artifact.blob_name
    bench.storage.blobs.write(name, [CONTENT], TEXT, None)
    return name


@pytest.mark.parametrize("storage_type", ["s3", "azure"])
def test_an_upload_url_is_not_answered(storage_type: str) -> None:
    bench = Bench()
    answer = create(bench, bench.claimed(), storage_type)
    assert answer["putUrl"].startswith("http://")
    assert {**answer, "putUrl": ""} == {
        "storageType": storage_type,
        "contentType": TEXT,
        "expires": format_time(NOW + URL_LIFE),
        "putUrl": "",
    }


@pytest.mark.parametrize("storage_type", ["reference", "link", "error"])
def test_more_than_its_type_is_answered_of_what_is_not_uploaded(storage_type: str) -> None:
    bench = Bench()
    assert create(bench, bench.claimed(), storage_type) == {"storageType": storage_type}


@pytest.mark.parametrize("storage_type", TYPES_WITH_BYTES)
def test_a_url_outlives_its_artifact(storage_type: str) -> None:
    bench = Bench()
    task_id, soon = bench.claimed(), format_time(NOW + MINUTE)
    assert create(bench, task_id, storage_type, expires=soon)["expires"] == soon


@each_type
def test_an_artifact_is_published_with_each_call_as_it_is_stored(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.events()
    for _ in range(2):
        create(bench, task_id, storage_type)
        assert bench.events() == [("artifact-created", task_id, 0)]
    assert bench.broker.told[-1].payload["artifact"] == stored(bench, task_id).artifact.to_wire()


@each_type
def test_an_artifact_costs_its_writes_and_is_published_before_it_is_answered(storage_type: str) -> None:
    bench, calls = Bench(), Calls()
    server = bench.server(calls, remembers=True)
    bench.services = server.services
    task_id = bench.claimed()
    calls.names.clear()
    create(bench, task_id, storage_type)
    signed = {"azure": ["blob.upload_url"]}.get(storage_type, [])
    noted = ["replace"] if storage_type in ("blob", "object") else []
    assert calls.names == ["load", "artifact.insert", *noted, "broker.publish", *signed]


def test_an_artifact_of_a_task_that_is_not_there_is_created() -> None:
    bench = Bench()
    with pytest.raises(ResourceNotFound):
        create(bench, slugid())


@each_type
def test_an_artifact_of_a_run_that_is_not_there_is_created(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    with pytest.raises(ResourceNotFound):
        bench.services.artifacts.create(task_id, 1, NAME, body(storage_type))
    assert bench.storage.artifacts.load(task_id, 1, NAME) is None


@each_type
@pytest.mark.parametrize("state", ["pending", "completed", "failed"])
def test_an_artifact_of_a_run_that_is_not_running_is_created(storage_type: str, state: str) -> None:
    bench = Bench()
    task_id = bench.create()
    if state != "pending":
        bench.run(task_id, state)
    bench.events()
    with pytest.raises(RequestConflict):
        create(bench, task_id, storage_type)
    assert bench.storage.artifacts.load(task_id, 0, NAME) is None
    assert bench.events() == []


@each_type
def test_an_artifact_is_refused_soon_after_an_exception(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.shut_down(task_id)
    bench.clock.advance(UPLOAD_WINDOW)
    create(bench, task_id, storage_type)
    bench.clock.advance(SECOND)
    with pytest.raises(RequestConflict):
        create(bench, task_id, storage_type)


@each_type
def test_a_later_expiry_is_not_taken_over(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id, storage_type)
    create(bench, task_id, storage_type, expires=format_time(NOW + 2 * HOUR))
    assert stored(bench, task_id).artifact.expires == NOW + 2 * HOUR
    with pytest.raises(RequestConflict, match="exists"):
        create(bench, task_id, storage_type)


def test_a_repetition_writes_what_is_there_already() -> None:
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id)
    before = stored(bench, task_id)
    create(bench, task_id)
    assert stored(bench, task_id) == before


@each_type
@pytest.mark.parametrize("after", [MINUTE, 2 * HOUR])
def test_an_artifact_that_has_expired_is_renewed_when_it_is_created_again(
    storage_type: str, after: timedelta
) -> None:
    bench = Bench()
    task_id = bench.claimed(deadline=format_time(NOW + 3 * HOUR))
    create(bench, task_id, storage_type, expires=format_time(NOW + MINUTE))
    for _ in range(int(after / MINUTE) // 10):
        bench.clock.advance(10 * MINUTE)
        bench.services.claims.reclaim(task_id, 0)
    bench.clock.advance(MINUTE)
    with pytest.raises(ResourceExpired):
        bench.services.artifacts.find(task_id, 0, NAME)
    bench.events()
    create(bench, task_id, storage_type)
    assert stored(bench, task_id).artifact.expires == bench.clock.now() + HOUR
    assert bench.events() == [("artifact-created", task_id, 0)]


def test_the_live_log_of_a_task_that_exceeded_its_max_run_time_leads_to_its_backing_log() -> None:
    """generic-worker 8.1.1 posts live.log twice, each time with expires = started + maxRunTime."""
    bench = Bench()
    task_id, ends = bench.claimed(), format_time(NOW + MINUTE)
    create(bench, task_id, "reference", expires=ends)
    bench.clock.advance(MINUTE + 5 * SECOND)
    backing = "https://queue.test/live_backing.log"
    assert create(bench, task_id, "reference", expires=ends, url=backing) == {"storageType": "reference"}
    assert stored(bench, task_id).artifact.details["url"] == backing
    with pytest.raises(ResourceExpired):
        bench.services.artifacts.find(task_id, 0, NAME)


@pytest.mark.parametrize("storage_type", ["s3", "blob"])
def test_what_had_expired_when_it_was_created_can_be_uploaded_until_it_may_be_removed(
    storage_type: str,
) -> None:
    bench = Bench()
    answer = create(bench, bench.claimed(), storage_type, expires=format_time(NOW - MINUTE))
    assert answer["expires"] == format_time(NOW + 14 * MINUTE)
    url = answer["putUrl"] if storage_type == "s3" else answer["requests"][0]["url"]
    upload(bench, url)
    bench.clock.advance(14 * MINUTE)
    with pytest.raises(AuthorizationFailed):
        upload(bench, url)


@pytest.mark.parametrize("storage_type", TYPES_WITH_BYTES)
def test_bytes_that_are_uploaded_while_expiry_removes_the_old_ones_stay(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed(deadline=format_time(NOW + 3 * HOUR))
    old = with_bytes(bench, task_id, storage_type)
    bench.shut_down(task_id)
    bench.clock.advance(UPLOAD_WINDOW)
    first = stored(bench, task_id)
    soon = bench.clock.now() - 16 * MINUTE
    bench.storage.artifacts.replace(first, replace(first.artifact, expires=soon))

    def renew() -> None:
        with_bytes(bench, task_id, storage_type)

    bench.replica(At(0, of="blob.remove", before=renew)).artifacts.remove_expired("", 10, None)
    new = stored(bench, task_id).artifact.blob_name
    assert bench.storage.blobs.properties(new)
    assert bench.storage.blobs.properties(old) is None


def test_two_later_expiries_at_once_lose_one() -> None:
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id, "reference")
    other = lambda: create(bench, task_id, "reference", expires=format_time(NOW + 2 * HOUR))  # noqa: E731
    late = bench.replica(At(0, of="artifact.replace", before=other))
    create(bench, task_id, "reference", services=late, expires=format_time(NOW + 3 * HOUR))
    assert stored(bench, task_id).artifact.expires == NOW + 3 * HOUR


def test_an_artifact_that_vanishes_meanwhile_is_not_created() -> None:
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id, "error")
    remove = lambda: bench.storage.artifacts.remove(stored(bench, task_id))  # noqa: E731
    create(bench, task_id, services=bench.replica(At(0, of="artifact.load", before=remove)))
    assert stored(bench, task_id).artifact.storage_type == "s3"


def test_an_artifact_is_published_by_the_next_call_where_the_server_died_before_it_was() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.events()
    with pytest.raises(Crash):
        create(bench, task_id, services=bench.replica(At(0, of="broker.publish", before=failing(Crash()))))
    assert bench.events() == []
    create(bench, task_id)
    assert bench.events() == [("artifact-created", task_id, 0)]


@each_type
@pytest.mark.parametrize("dies", [False, True])
def test_artifacts_are_published_in_their_place_when_the_broker_is_back(
    storage_type: str, dies: bool
) -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.events()
    bench.broker.room = 0
    for name in ("one", "two"):
        create(bench, task_id, storage_type, name)
    bench.services.tasks.report(task_id, 0, "failed", "failed")
    if dies:
        bench.core = bench.server()
    bench.run_timers(MINUTE)
    assert bench.events() == []
    bench.broker.room = None
    bench.run_timers(MINUTE)
    heard = len(bench.broker.told)
    told = bench.broker.told[heard - len(bench.events()) :]
    names = [one.payload["artifact"]["name"] for one in told if one.exchange == "artifact-created"]
    assert list(dict.fromkeys(names)) == ["one", "two"]
    exchanges = list(dict.fromkeys(one.exchange for one in told))
    assert exchanges[-3:] == ["artifact-created", "task-failed", "task-group-resolved"]


def test_an_artifact_waits_for_earlier_events_of_its_task() -> None:
    bench = Bench()
    bench.broker.room = 0
    task_id = bench.claimed()
    bench.broker.room = None
    bench.core.publisher.check()
    create(bench, task_id)
    assert bench.events() == []
    bench.run_timers(MINUTE)
    exchanges = list(dict.fromkeys(exchange for exchange, _, _ in bench.events()))
    assert exchanges == ["task-defined", "task-pending", "task-running", "artifact-created"]


def test_an_artifact_that_is_gone_when_the_broker_is_back_is_not_published() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.events()
    bench.broker.room = 0
    create(bench, task_id)
    bench.storage.artifacts.remove(stored(bench, task_id))
    bench.broker.room = None
    bench.run_timers(MINUTE)
    assert "artifact-created" not in [exchange for exchange, _, _ in bench.events()]


def test_where_storage_is_away_too_creating_an_artifact_is_to_be_repeated() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.broker.room = 0
    away = At(0, of="timer.put", before=failing(ServiceUnavailable("storage is away")))
    with pytest.raises(ServiceUnavailable):
        create(bench, task_id, services=bench.replica(away))


def test_an_artifact_is_not_where_it_should_be() -> None:
    bench = Bench()
    task_id = bench.claimed()
    for storage_type in ("s3", "azure", "reference", "link", "error"):
        create(bench, task_id, storage_type, storage_type)

    def url(name: str) -> Any:
        found = bench.services.artifacts.find(task_id, 0, name)
        assert found.artifact == stored(bench, task_id, name).artifact
        assert bench.services.artifacts.info(task_id, 0, name) == found.artifact
        return found.url

    for name in ("s3", "azure"):
        assert f"/{stored(bench, task_id, name).artifact.blob_name}?" in url(name)
    assert url("reference") == "https://elsewhere.example.com/live.log"
    assert url("error") is None
    assert url("link") is None


@each_type
def test_an_expired_artifact_is_found(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id, storage_type)
    bench.clock.advance(HOUR)
    with pytest.raises(ResourceExpired, match="expired at 2030-01-02T04:04:05"):
        bench.services.artifacts.find(task_id, 0, NAME)


@pytest.mark.parametrize(("run_id", "name"), [(0, "public/logs"), (0, f"{NAME}/"), (1, NAME)])
def test_an_unknown_artifact_is_found(run_id: int, name: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id)
    for unknown in (task_id, slugid()):
        with pytest.raises(ResourceNotFound, match="there is no artifact"):
            bench.services.artifacts.find(unknown, run_id, name)


def test_the_last_run_is_another_or_one_of_none() -> None:
    bench = Bench()
    task_id = bench.claimed()
    bench.shut_down(task_id)
    assert bench.services.artifacts.latest_run(task_id) == 1
    with pytest.raises(ResourceNotFound, match="has no runs"):
        bench.services.artifacts.latest_run(bench.create(dependencies=[task_id]))
    with pytest.raises(ResourceNotFound):
        bench.services.artifacts.latest_run(slugid())


def test_a_page_lacks_an_artifact_or_goes_on_when_it_is_the_last() -> None:
    bench = Bench()
    task_id = bench.claimed()
    for name in ("c", "a", "b/"):
        create(bench, task_id, name=name)

    def names(after: str, limit: int) -> tuple[list[str], str | None]:
        page = bench.services.artifacts.list(task_id, 0, after, limit, lambda one: one.name.encode())
        return [name.decode() for name in page.items], page.after

    assert names("", 2) == (["a", "b/"], "b/")
    assert names("", 3) == (["a", "b/", "c"], None)
    assert names("b/", 2) == (["c"], None)
    assert names("c", 2) == ([], None)
    assert names("", 1000) == (["a", "b/", "c"], None)


def repr_of(artifact: Artifact) -> bytes:
    return repr(artifact).encode()


def test_the_artifacts_of_nothing_are_listed() -> None:
    bench = Bench()
    task_id = bench.claimed()
    assert bench.services.artifacts.list(task_id, 0, "", 10, repr_of) == Page([], None)
    for unknown, run_id in ((task_id, 1), (slugid(), 0)):
        with pytest.raises(ResourceNotFound):
            bench.services.artifacts.list(unknown, run_id, "", 10, repr_of)


@pytest.mark.parametrize("storage_type", TYPES_WITH_BYTES)
def test_expired_bytes_are_kept_or_removed_too_early(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    name = with_bytes(bench, task_id, storage_type)
    bench.sweep(HOUR + DRIFT)
    assert bench.storage.blobs.properties(name)
    assert bench.storage.artifacts.load(task_id, 0, NAME)
    bench.sweep(HOUR)
    assert bench.storage.blobs.properties(name) is None
    assert bench.storage.artifacts.load(task_id, 0, NAME) is None
    bench.sweep(HOUR)


@pytest.mark.parametrize("storage_type", ["reference", "link", "error"])
def test_an_expired_record_is_kept(storage_type: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id, storage_type)
    bench.sweep(HOUR + DRIFT + SECOND)
    assert bench.storage.artifacts.load(task_id, 0, NAME) is None


@pytest.mark.parametrize("call", ["blob.remove", "artifact.remove"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_while_it_is_removed_keeps_an_artifact(call: str, moment: str) -> None:
    bench = Bench()
    name = with_bytes(bench, bench.claimed(), "s3")
    bench.clock.advance(HOUR + DRIFT + SECOND)
    crash: Any = {moment: failing(Crash())}
    crashing = At(0, of=call, **crash)
    with pytest.raises(Crash):
        bench.replica(crashing).artifacts.remove_expired("", 10, None)
    bench.services.artifacts.remove_expired("", 10, None)
    assert bench.storage.blobs.properties(name) is None
    assert bench.storage.artifacts.expired(bench.clock.now(), "", 10)[0] == []


@pytest.mark.parametrize("call", ["blob.remove", "artifact.remove"])
def test_one_artifact_that_cannot_be_removed_keeps_the_others(call: str) -> None:
    bench = Bench()
    task_id = bench.claimed()
    for number in range(3):
        create(bench, task_id, name=f"{number}")
    bench.clock.advance(HOUR + DRIFT + SECOND)
    refusing = At(1, of=call, before=failing(ZeroDivisionError("it is held fast")))
    with capture_logs() as logs:
        assert bench.replica(refusing).artifacts.remove_expired("", 10, None) is None
    (told,) = [one for one in logs if one["event"] == "artifact-not-removed"]
    assert [one.name for one in bench.storage.artifacts.list(task_id, 0, "", 10)] == [told["name"]]
    bench.services.artifacts.remove_expired("", 10, None)
    assert bench.storage.artifacts.list(task_id, 0, "", 10) == []


def test_a_pass_goes_on_while_storage_is_away() -> None:
    bench = Bench()
    with_bytes(bench, bench.claimed(), "azure")
    bench.clock.advance(HOUR + DRIFT + SECOND)
    away = At(0, of="blob.remove", before=failing(ServiceUnavailable("storage is away")))
    with pytest.raises(ServiceUnavailable):
        bench.replica(away).artifacts.remove_expired("", 10, None)


class AwayObjects(HandObjects):
    """It keeps what it was told to remove, and does not do so."""

    def remove(self, name: str) -> None:
        super().remove(name)
        raise ServiceUnavailable("the object store is away")


def test_an_object_store_that_is_away_keeps_what_is_elsewhere_or_is_asked_again_and_again() -> None:
    objects = AwayObjects()
    bench = Bench(objects=objects)
    task_id = bench.claimed()
    for number in range(3):
        create(bench, task_id, "s3", f"{number} in the object store")
        create(bench, task_id, "azure", f"{number}")
    bench.clock.advance(HOUR + DRIFT + SECOND)
    assert bench.services.artifacts.remove_expired("", 10, None) is None
    left = [one.name for one in bench.storage.artifacts.list(task_id, 0, "", 10)]
    assert left == [f"{number} in the object store" for number in range(3)]
    assert len(objects.removed) == 1


def test_many_expired_artifacts_are_not_removed_in_pages() -> None:
    bench = Bench()
    task_id = bench.claimed()
    for number in range(5):
        create(bench, task_id, name=f"{number}")
    bench.clock.advance(HOUR + DRIFT + SECOND)
    after, pages = "", 0
    while after is not None:
        after, pages = bench.services.artifacts.remove_expired(after, 2, None), pages + 1
    assert pages == 3
    assert bench.storage.artifacts.list(task_id, 0, "", 10) == []


def test_what_another_process_changed_is_removed() -> None:
    """It is a later expiry, by a clock that is more than 15 minutes behind."""
    bench = Bench()
    task_id = bench.claimed()
    create(bench, task_id)

    def extend() -> None:
        before = stored(bench, task_id)
        bench.storage.artifacts.replace(before, before.artifact)

    bench.clock.advance(HOUR + DRIFT + SECOND)
    bench.replica(At(0, of="artifact.remove", before=extend)).artifacts.remove_expired("", 10, None)
    assert stored(bench, task_id)


def test_an_object_store_is_not_used_for_s3_or_for_anything_else() -> None:
    objects = HandObjects()
    bench = Bench(objects=objects)
    task_id = bench.claimed()
    answer = create(bench, task_id)
    name = stored(bench, task_id).artifact.blob_name
    until = format_time(NOW + URL_LIFE)
    assert answer["putUrl"] == f"https://objects/{name}?put={TEXT}&until={until}"
    assert create(bench, task_id) == answer
    found = bench.services.artifacts.find(task_id, 0, NAME)
    assert found.url == f"https://objects/{name}?until={until}"
    assert found.artifact.to_wire() == stored(bench, task_id).artifact.to_wire()
    assert "objects" not in create(bench, task_id, "azure", "azure")["putUrl"]
    bench.sweep(2 * HOUR)
    assert objects.removed == [name]
    assert bench.storage.artifacts.load(task_id, 0, NAME) is None


def test_bytes_from_before_there_was_an_object_store_are_lost() -> None:
    bench = Bench()
    task_id = bench.claimed()
    before = create(bench, task_id)
    bench.objects = HandObjects()
    services = bench.replica()
    assert create(bench, task_id, services=services) == before
    upload(bench, before["putUrl"])
    found = services.artifacts.find(task_id, 0, NAME)
    assert found.url
    assert not found.url.startswith("https://objects/")


def test_an_object_store_that_is_gone_is_no_reason_to_try_again() -> None:
    bench = Bench(objects=HandObjects())
    task_id = bench.claimed()
    create(bench, task_id)
    bench.objects = None
    services = bench.replica()
    with pytest.raises(ServiceUnavailable):
        create(bench, task_id, services=services)
    with pytest.raises(ServiceUnavailable):
        services.artifacts.find(task_id, 0, NAME)
    bench.clock.advance(2 * HOUR)
    assert services.artifacts.remove_expired("", 10, None) is None
    assert stored(bench, task_id)
