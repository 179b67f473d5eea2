"""Flask as this server uses it: with raw paths, and with routes that a process compiles only once.

Each reset and each test builds a new application. Without the cache most of that time would go into compiling
routes.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property
from threading import Lock
from typing import Any

from flask import Flask, Request
from flask.sessions import NullSession, SessionInterface
from werkzeug.datastructures import ImmutableDict
from werkzeug.routing import BaseConverter, Map, MapAdapter, Rule, RuleFactory

from legacy_queue.http.client_connection import TrustedProxies
from legacy_queue.http.request_log import Environ, begin

_compiled: dict[tuple[Any, ...], Map] = {}  # by the content of the rules; a process has few different ones
_lock = Lock()


class Rest(BaseConverter):
    """The rest of a path, including slashes."""

    regex = ".*"
    part_isolating = False


class UrlMap(Map):
    """The routes of one application. Its first request compiles them, and none can be added after that."""

    default_converters = ImmutableDict({**Map.default_converters, "rest": Rest})

    @cached_property
    def _routes(self) -> list[Rule]:
        return []

    def add(self, rulefactory: RuleFactory) -> None:
        self._routes.extend(rulefactory.get_rules(self))

    def iter_rules(self, endpoint: str | None = None) -> Iterator[Rule]:
        return self.compiled.iter_rules(endpoint)

    @cached_property
    def compiled(self) -> Map:
        """The compiled map, shared by all applications with the same routes. It never merges slashes."""
        key = tuple((rule.rule, rule.endpoint, *sorted(rule.methods or ())) for rule in self._routes)
        with _lock:
            if key not in _compiled:
                _compiled[key] = Map(self._routes, merge_slashes=False, converters=self.converters)
            return _compiled[key]


class _Request(Request):
    """A request whose limits a view can set. Flask before 3.1 reads them only from the configuration."""

    max_content_length: int | None = None
    max_form_memory_size: int | None = 500_000


class _NoSession(SessionInterface):
    """No session of Flask: the web page signs a cookie of its own."""

    _empty = NullSession()

    def open_session(self, *_: Any) -> NullSession:
        return self._empty


class FlaskApp(Flask):
    """The Flask class of ``create_app``. PATH_INFO is the path as the client sent it."""

    request_class = _Request
    session_interface = _NoSession()
    url_map_class = UrlMap
    url_map: UrlMap

    def __init__(self, name: str, proxies: TrustedProxies) -> None:
        super().__init__(name)
        self._proxies = proxies

    def wsgi_app(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        self._proxies.apply(environ)
        begin(environ)
        return super().wsgi_app(environ, start_response)

    def ensure_sync(self, func: Any) -> Any:
        """Returns the function. None is a coroutine here, and Flask would check five in each request."""
        return func

    def create_url_adapter(self, request: Request | None) -> MapAdapter | None:
        """Routes by the raw path alone, because no rule names a host."""
        if request is None:
            return None
        path = request.environ["PATH_INFO"]
        method = request.environ["REQUEST_METHOD"]
        return MapAdapter(self.url_map.compiled, "", "", "", "http", path, method)
