"""Flask whose routes are compiled once in a process, however many applications it builds.

A reset builds the application anew, and so does each test. Most of that is compiling its routes, which are
the same each time.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from flask import Flask
from werkzeug.routing import Map, Rule


class _CompiledOnce(Rule):
    _is_compiled = False

    def bind(self, map: Map, rebind: bool = False) -> None:  # noqa: A002 - werkzeug's name
        """Compile it for the first application's map; those of all others have the same converters."""
        if not self._is_compiled:
            super().bind(map, rebind)
            self._is_compiled = True


@lru_cache(maxsize=128)
def _rule(rule: str, methods: frozenset[str], options: tuple[tuple[str, Any], ...]) -> Rule:
    return _CompiledOnce(rule, methods=methods, **dict(options))


def _shared_rule(rule: str, *, methods: Iterable[str], **options: Any) -> Rule:
    """``options`` are hashable, but for the empty defaults that a blueprint gives."""
    given = [(name, value) for name, value in options.items() if value != {}]
    return _rule(rule, frozenset(methods), tuple(sorted(given)))


class FlaskApp(Flask):
    """All applications of a process have the same options for their maps of URLs, and share their rules."""

    url_rule_class = staticmethod(_shared_rule)  # type: ignore[assignment]
