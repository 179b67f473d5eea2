"""What a pattern of a topic exchange matches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legacy_queue.domain.topics import topic_regex
from tests.topics import matches

WORDS = st.lists(st.sampled_from(["a", "b", "", "*"]), max_size=4)
WITHOUT = WORDS.filter(bool)
WITH = st.tuples(WORDS, WORDS).map(lambda parts: [*parts[0], "#", *parts[1]])
KEYS = st.lists(st.sampled_from(["a", "b", "", "c"]), min_size=1, max_size=6).map(".".join)


@given(st.one_of(WITHOUT, WITH).map(".".join), KEYS)
def test_a_pattern_with_at_most_one_number_sign_matches_as_a_broker_does(pattern: str, key: str) -> None:
    assert (topic_regex(pattern).fullmatch(key) is not None) == matches(pattern, key)


@pytest.mark.parametrize("pattern", ["#.#", "#.a.#", "a.#.b.#.c"])
def test_a_pattern_with_two_number_signs_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="more than one #: at most one is accepted"):
        topic_regex(pattern)
