import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.stores.group_commit import GroupCommit
from tests.system.processes import LONG


def test_an_error_of_a_batch_reaches_all_callers_in_it_and_no_others() -> None:
    batches: list[list[int]] = []
    has_begun, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def write(items: Sequence[int]) -> None:
        batches.append([*items])
        has_begun.release()
        assert may_end.acquire(timeout=LONG)
        if 2 in items:
            raise ServiceUnavailable("away")

    commits = GroupCommit(write, max_items=3)
    with ThreadPoolExecutor(6) as threads:
        calls = [threads.submit(commits.add, 1)]
        assert has_begun.acquire(timeout=LONG)
        for waiting in range(1, 6):  # the others wait behind it, one after the other
            calls.append(threads.submit(commits.add, waiting + 1))
            while commits.waiting < waiting:
                assert not calls[-1].done()
        may_end.release(4)
        failed = [isinstance(call.exception(LONG), ServiceUnavailable) for call in calls]
    commits.add(7)
    assert batches == [[1], [2, 3, 4], [5, 6], [7]]
    assert failed == [False, True, True, True, False, False]
