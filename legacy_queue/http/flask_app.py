"""Flask as this server uses it: raw paths, no session, and routes that are compiled once in a process.

A reset builds the application anew, and so does each test. Most of that time would go into compiling routes.
"""

from collections.abc import Iterator
from functools import cached_property
from threading import Lock
from typing import Any

from flask import Flask, Request
from flask.sessions import NullSession, SessionInterface
from werkzeug.datastructures import ImmutableDict
from werkzeug.routing import BaseConverter, Map, MapAdapter, Rule, RuleFactory

_compiled: dict[tuple[Any, ...], Map] = {}  # by the content of the rules; a process has few
_lock = Lock()


class Raw(BaseConverter):
    """A segment as it was sent: the parameters are unescaped and checked later."""

    def to_python(self, value: str) -> str:
        return value


class Rest(Raw):
    """The rest of a path, slashes included."""

    regex = ".*"
    part_isolating = False


class UrlMap(Map):
    """The routes of one application. They are compiled for its first request; none is added after that."""

    default_converters = ImmutableDict({**Map.default_converters, "raw": Raw, "rest": Rest})

    @cached_property
    def _routes(self) -> list[Rule]:
        return []

    def add(self, rulefactory: RuleFactory) -> None:
        self._routes.extend(rulefactory.get_rules(self))

    def iter_rules(self, endpoint: str | None = None) -> Iterator[Rule]:
        return self.compiled.iter_rules(endpoint)

    @cached_property
    def compiled(self) -> Map:
        """The map that all applications with the same routes share. Slashes in a path are not merged."""
        key = tuple((rule.rule, rule.endpoint, *sorted(rule.methods or ())) for rule in self._routes)
        with _lock:
            if key not in _compiled:
                _compiled[key] = Map(self._routes, merge_slashes=False, converters=self.converters)
            return _compiled[key]


class _NoSession(SessionInterface):
    """Requests are signed: there is no session, and no cookie is looked for."""

    _none = NullSession()

    def open_session(self, app: Flask, request: Request) -> NullSession:  # noqa: ARG002
        return self._none


class FlaskApp(Flask):
    """The Flask of ``create_app``. PATH_INFO is the path as it was sent."""

    url_map_class = UrlMap
    url_map: UrlMap
    session_interface = _NoSession()

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """By the raw path alone: no rule names a host."""
        if request is None:
            return None
        path = request.environ["PATH_INFO"]
        method = request.environ["REQUEST_METHOD"]
        return MapAdapter(self.url_map.compiled, "", "", "", "http", path, method)
