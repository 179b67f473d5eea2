from datetime import timedelta

from legacy_queue.domain.definition import MAX_DEADLINE
from legacy_queue.domain.ids import slugid
from legacy_queue.stores import Dependent, Storage

from .conftest import Backend
from .paging import remove_all_expired

DAY = timedelta(days=1)


def dependents(storage: Storage, required_id: str) -> list[Dependent]:
    return list(storage.dependencies.dependents(required_id, "", 1000))


def test_the_mark_of_dependents_is_removed_after_the_longest_deadline(
    storage: Storage, backend: Backend
) -> None:
    required_id, now = slugid(), backend.clock.now()
    storage.dependencies.add(required_id, Dependent(slugid(), "all-completed"), now + 30 * DAY)
    remove_all_expired(storage.dependencies, now + MAX_DEADLINE)
    assert storage.dependencies.has_any(required_id)
    remove_all_expired(storage.dependencies, now + MAX_DEADLINE + 2 * DAY)
    assert not storage.dependencies.has_any(required_id)
    assert len(dependents(storage, required_id)) == 1
