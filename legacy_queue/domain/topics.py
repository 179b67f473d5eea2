"""Topic exchanges: the project in their names, and patterns for routing keys.

In a pattern ``*`` stands for one word, and ``#`` for any number of words or none.

Source: AMQP 0-9-1, topic exchanges.
"""

import re

PROJECT = "taskcluster-queue"  # in the names of the exchanges, unless a setting names another project


def topic_regex(pattern: str) -> re.Pattern[str]:
    """Returns a regular expression that matches, in full, the routing keys that the pattern matches.

    Raises ValueError if the pattern has more than one ``#``. With one ``#`` the match is fast for every key.
    """
    words = pattern.split(".")
    if words.count("#") > 1:
        raise ValueError(f"the pattern {pattern[:255]!r} has more than one #: expected at most one")
    # an escaped word has no bare "#"
    text = r"\.".join("[^.]*" if word == "*" else word if word == "#" else re.escape(word) for word in words)
    if text == "#":
        return re.compile(".*", re.DOTALL)
    if text.startswith("#"):
        return re.compile(text.replace(r"#\.", r"(?:[^.]*\.)*", 1))
    return re.compile(text.replace(r"\.#", r"(?:\.[^.]*)*", 1))
