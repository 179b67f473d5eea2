"""The patterns of a topic exchange. ``*`` is one word, ``#`` any number of words, also none.

Source: AMQP 0-9-1, topic exchanges.
"""

from collections.abc import Sequence


class TopicPattern:
    """A pattern with at most one ``#``, so that a match reads a key once. Raises ValueError for more."""

    def __init__(self, pattern: str) -> None:
        words = pattern.split(".")
        if words.count("#") > 1:
            raise ValueError(f"the pattern {pattern[:255]!r} has more than one #: at most one is accepted")
        self._is_open = "#" in words
        end = words.index("#") if self._is_open else len(words)
        self._begin, self._end = words[:end], words[end + 1 :]

    def matches(self, words: Sequence[str]) -> bool:
        """Whether the pattern matches the routing key of these words."""
        least = len(self._begin) + len(self._end)
        return (
            (len(words) >= least if self._is_open else len(words) == least)
            and _fit(self._begin, words)
            and _fit(self._end, words[len(words) - len(self._end) :])
        )


def _fit(pattern: Sequence[str], words: Sequence[str]) -> bool:
    return all(wanted in ("*", word) for wanted, word in zip(pattern, words, strict=False))
