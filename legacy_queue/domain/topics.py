"""Finds all patterns of a topic exchange that match a routing key, in one pass over its words.

``*`` is one word, ``#`` any number of words, also none. Source: AMQP 0-9-1, topic exchanges.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


@dataclass(eq=False)
class _Node(Generic[Item]):
    """A node for all patterns with the same beginning; ``items`` have patterns that end here."""

    is_any: bool = False  # reached by #
    items: set[Item] = field(default_factory=set)
    next: "dict[str, _Node[Item]]" = field(default_factory=dict)


class TopicIndex(Generic[Item]):
    """Items by pattern. The cost of a search hardly depends on the number of items."""

    def __init__(self) -> None:
        self._root: _Node[Item] = _Node()

    def add(self, pattern: str, item: Item) -> None:
        """Safe to repeat."""
        node = self._root
        for word in _words(pattern):
            node = node.next.setdefault(word, _Node(word == "#"))
        node.items.add(item)

    def remove(self, pattern: str, item: Item) -> None:
        """Does nothing if the index does not have the item with this pattern."""
        path, node = [], self._root
        for word in _words(pattern):
            if word not in node.next:
                return
            path.append((node, word))
            node = node.next[word]
        node.items.discard(item)
        for before, word in reversed(path):
            if before.next[word].items or before.next[word].next:
                return
            del before.next[word]

    @property
    def is_empty(self) -> bool:
        return not self._root.next

    def matching(self, routing_keys: Iterable[str]) -> set[Item]:
        """The items whose pattern matches any of the keys."""
        found: set[Item] = set()
        for key in routing_keys:
            reached = _with_any({self._root})
            for word in key.split("."):
                reached = _with_any(
                    {node for node in reached if node.is_any}
                    | {node.next[step] for node in reached for step in (word, "*") if step in node.next}
                )
            for node in reached:
                found |= node.items
        return found


def _with_any(nodes: set[_Node[Item]]) -> set[_Node[Item]]:
    """The nodes, and the nodes that a # without a word leads to."""
    return nodes | {node.next["#"] for node in nodes if "#" in node.next}


def _words(pattern: str) -> list[str]:
    """The words of an equal pattern in which adjacent wildcards have at most one #, at their end."""
    words: list[str] = []
    for word in pattern.split("."):
        if words[-1:] != ["#"] or word not in ("*", "#"):
            words.append(word)
        elif word == "*":
            words[-1:] = ["*", "#"]
    return words
