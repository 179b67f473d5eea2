from collections.abc import Sequence


def matches(pattern: str, routing_key: str) -> bool:
    """Whether a topic exchange would route the key to a queue bound by the pattern."""
    return _match(pattern.split("."), routing_key.split("."))


def _match(pattern: Sequence[str], key: Sequence[str]) -> bool:
    """The simplest implementation."""
    match pattern:
        case []:
            return not key
        case ["#", *others]:
            return _match(others, key) or (bool(key) and _match(pattern, key[1:]))
        case [word, *others]:
            return bool(key) and word in ("*", key[0]) and _match(others, key[1:])
    raise AssertionError
