"""Routes of Flask, compiled once in a process for all applications that have the same.

A reset builds the application anew, and so does each test. Most of that time would go into compiling routes.
"""

from functools import cached_property
from threading import Lock
from typing import Any

from werkzeug.routing import Map, MapAdapter, Rule, RuleFactory

_compiled: dict[tuple[Any, ...], Map] = {}  # by the content of the rules; a process has few
_lock = Lock()


class UrlMap(Map):
    """The routes of one application. They are compiled for its first request; none is added after that."""

    @cached_property
    def _routes(self) -> list[Rule]:
        return []

    def add(self, rulefactory: RuleFactory) -> None:
        self._routes.extend(rulefactory.get_rules(self))

    def bind_to_environ(self, *args: Any, **options: Any) -> MapAdapter:
        return self.compiled.bind_to_environ(*args, **options)

    @cached_property
    def compiled(self) -> Map:
        """The map that all applications with the same routes share. Slashes in a path are not merged."""
        key = tuple((rule.rule, rule.endpoint, *sorted(rule.methods or ())) for rule in self._routes)
        with _lock:
            if key not in _compiled:
                _compiled[key] = Map(self._routes, merge_slashes=False)
            return _compiled[key]
