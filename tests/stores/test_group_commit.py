import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.stores.group_commit import GroupCommit


class Gate:
    """Notes each batch when it begins, and ends it when ``may_end`` is released."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.has_begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.error: BaseException | None = None

    def write(self, items: Sequence[int]) -> None:
        self.batches.append(list(items))
        self.has_begun.release()
        assert self.may_end.acquire(timeout=30)
        if self.error:
            error, self.error = self.error, None
            raise error


class Callers:
    """Calls at once, the first of which has its batch under way, and the others wait behind it in order."""

    def __init__(self, *items: int, max_items: int = 4) -> None:
        self.gate = Gate()
        self.commits = GroupCommit(self.gate.write, max_items)
        self._threads = ThreadPoolExecutor(len(items))
        self.calls: list[Future[None]] = []
        for count, item in enumerate(items):
            self.calls.append(self._threads.submit(self.commits.add, item))
            if count == 0:
                assert self.gate.has_begun.acquire(timeout=30)
            while self.commits.waiting < count:
                assert not self.calls[-1].done()

    def let_all_end(self) -> list[list[int]]:
        for _ in self.calls * 5:
            self.gate.may_end.release()
        self._threads.shutdown()
        return self.gate.batches


def test_an_error_reaches_every_caller_of_the_batch_and_no_other() -> None:
    error = ServiceUnavailable("away")
    callers = Callers(*range(1, 7), max_items=3)
    callers.gate.may_end.release()
    callers.calls[0].result(30)
    callers.gate.error = error
    assert callers.let_all_end() == [[1], [2, 3, 4], [5, 6]]
    for failed in callers.calls[1:4]:
        with pytest.raises(type(error), match=str(error)):
            failed.result()
    callers.calls[4].result()
    callers.commits.add(7)
