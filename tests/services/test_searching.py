"""Tasks that a person looks for: by state, pool and words of their names."""

import pytest

from legacy_queue.services.tasks import listing
from legacy_queue.services.tasks.listing import Wanted
from tests.domain.tasks import task_body
from tests.services.harness import NOW, PROVISIONER, WORKER_TYPE, Harness

POOL = f"{PROVISIONER}/{WORKER_TYPE}"


def named(harness: Harness, name: str, **changes: str) -> str:
    metadata = {**task_body(NOW)["metadata"], "name": name}
    return harness.create(metadata=metadata, **changes)


def search(
    harness: Harness, *words: str, limit: int = 50, after: str = "", **wanted: str
) -> tuple[list[str], str | None]:
    found = Wanted(words=words, **wanted)
    page = harness.services.listing.search(found, after, limit, lambda task: task.task_id.encode())
    return [item.decode() for item in page.items], page.after


def test_a_task_is_found_by_state_worker_type_and_all_words(harness: Harness) -> None:
    build, test, other = (
        named(harness, "Build of Linux"),
        named(harness, "Test of linux"),
        named(harness, "Build of Linux", workerType="another"),
    )
    harness.services.tasks.cancel(test)
    assert search(harness, "LINUX", "build")[0] == [other, build]
    assert search(harness, "linux", state="unresolved", task_queue_id=POOL)[0] == [build]
    assert search(harness, state="exception")[0] == [test]
    assert search(harness, "linux", state="failed") == ([], None)
    assert search(harness, "linux", group_id=other) == ([other], None)
    assert search(harness, group_id=build, state="failed") == ([], None)


def test_a_search_that_ends_before_all_tasks_says_where_to_look_further(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = named(harness, "needle")
    for _ in range(4):
        named(harness, "hay")
    monkeypatch.setattr(listing, "_MAX_TASKS", 2)
    found, after = search(harness, "needle", limit=1)
    while after is not None and not found:
        found, after = search(harness, "needle", limit=1, after=after)
    assert found == [old]
    monkeypatch.setattr(listing, "_MAX_READS", 1)
    assert search(harness, "needle", limit=1)[0] == []
