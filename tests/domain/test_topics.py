"""Which routing keys the pattern of a binding to a topic exchange matches."""

import pytest

from legacy_queue.domain.topics import topic_regex


@pytest.mark.parametrize(
    ("pattern", "key", "is_matched"),
    [
        ("#", "a.b.c", True),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#.c", "a.b.c", True),
        ("a.*.#", "a.b", True),
        ("a.b*", "a.bc", False),
        ("a.+", "a.b", False),
        ("a.*", "a.b\n", True),
    ],
)
def test_a_pattern_matches_the_keys_that_a_topic_exchange_would_route(
    pattern: str, key: str, is_matched: bool
) -> None:
    assert (topic_regex(pattern).fullmatch(key) is not None) is is_matched


def test_a_pattern_with_two_number_signs_is_refused() -> None:
    for pattern in ("#.#", "#.a.#", "a.#.b.#.c"):
        with pytest.raises(ValueError, match="more than one #: expected at most one"):
            topic_regex(pattern)
