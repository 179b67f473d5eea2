import pytest

from legacy_queue.domain.times import duration_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.04, "0s"),
        (2.34, "2.3s"),
        (9.97, "10s"),
        (59.6, "1m"),
        (1260, "21m"),
        (3605, "1h"),
        (5400, "1h 30m"),
        (437_000, "5d 1h"),
    ],
)
def test_a_duration_is_written_in_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words
