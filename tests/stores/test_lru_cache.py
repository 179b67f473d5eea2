import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from legacy_queue.domain.priority import WorkQueue
from legacy_queue.stores.lru_cache import SharedLruCache


@pytest.fixture
def other_threads_come_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_the_cache_keeps_the_entries_that_were_written_or_read_last() -> None:
    cache: SharedLruCache[str, int] = SharedLruCache(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        cache.put(key, value)
    assert [cache.get(key) for key in "bca"] == [None, 4, 3]
    assert cache.get("c") == 4
    cache.put("d", 5)
    assert [cache.get(key) for key in "acd"] == [None, 4, 5]
    for _ in range(2):
        cache.remove("c")
    assert cache.get("c") is None


@pytest.mark.usefixtures("other_threads_come_often")
def test_several_threads_can_use_keys_whose_comparison_runs_python_code() -> None:
    cache: SharedLruCache[WorkQueue, int] = SharedLruCache(40)

    def use(seed: int) -> None:
        chosen = Random(seed)
        for _ in range(10_000):
            key = WorkQueue("provisioner", f"pool-{chosen.randrange(100)}", "lowest")
            match chosen.randrange(9):
                case 0:
                    cache.remove(key)
                case 1 | 2 | 3 | 4:
                    cache.put(key, seed)
                case _:
                    cache.get(key)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8)))
    keys = [WorkQueue("provisioner", f"pool-{number}", "lowest") for number in range(100)]
    for number, key in enumerate(keys):
        cache.put(key, number)
    assert [cache.get(key) for key in keys] == [None] * 60 + [*range(60, 100)]
