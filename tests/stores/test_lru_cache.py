from legacy_queue.stores.lru_cache import SharedLruCache


def test_the_entries_that_were_written_or_read_last_are_kept() -> None:
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
