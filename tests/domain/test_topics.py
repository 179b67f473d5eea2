"""An index of many patterns; test_events shows what a single pattern matches."""

from hypothesis import given
from hypothesis import strategies as st

from legacy_queue.domain.topics import TopicIndex

WORDS = st.sampled_from(["a", "b", "", "*", "#"])
PATTERNS = st.lists(WORDS, min_size=1, max_size=6).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "", "c"]), min_size=1, max_size=6).map(".".join)


def matches(pattern: list[str], key: list[str]) -> bool:
    """The simplest implementation."""
    match pattern:
        case []:
            return not key
        case ["#", *others]:
            return matches(others, key) or (bool(key) and matches(pattern, key[1:]))
        case [word, *others]:
            return bool(key) and word in ("*", key[0]) and matches(others, key[1:])
    raise AssertionError


@given(st.lists(PATTERNS, max_size=8), st.lists(PATTERNS, max_size=4), st.lists(KEYS, max_size=3))
def test_an_index_finds_the_patterns_that_match_and_are_not_removed(
    added: list[str], removed: list[str], keys: list[str]
) -> None:
    index: TopicIndex[str] = TopicIndex()
    for pattern in (*added, *removed):
        index.add(pattern, pattern)
    for pattern in removed:
        index.remove(pattern, pattern)
    left = set(added) - set(removed)
    expected = {
        pattern for pattern in left if any(matches(pattern.split("."), key.split(".")) for key in keys)
    }
    assert index.matching(keys) == expected


def test_removing_an_item_again_does_nothing() -> None:
    index: TopicIndex[int] = TopicIndex()
    for item, pattern in enumerate(("a.b", "a.#", "a.#.c", "a.b")):
        index.add(pattern, item)
    assert index.matching(["a.b"]) == {0, 1, 3}
    for _ in range(2):
        for item, pattern in enumerate(("a.b", "a.#", "a.#.c", "a.b")):
            index.remove(pattern, item)
    assert index.matching(["a.b"]) == set()
    assert index.is_empty
