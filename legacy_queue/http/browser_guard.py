"""What a page in a browser may do: nothing under a foreign host name, nor read what its origin may not.

A page can have its own host name resolve to this machine (DNS rebinding). For the browser the server is then
a part of the page; but its requests carry that name in Host. Source: RFC 9110, 15.5.20; the Fetch standard,
"CORS protocol".
"""

import re
from collections.abc import Collection, Iterable
from typing import Any

from legacy_queue.domain.errors import MisdirectedRequest
from legacy_queue.domain.hosts import is_address
from legacy_queue.http.error_answers import render
from legacy_queue.http.request_log import Environ, WsgiApp, record_of
from legacy_queue.ports import Clock

ANY = "*"  # among hosts or origins: all of them
_PORT = re.compile(r":[0-9]*$")
_METHODS = "OPTIONS,GET,HEAD,POST,PUT,DELETE"
_MAX_AGE = "900"  # seconds for which a browser remembers the answer to a preflight, as in the original queue


class BrowserGuard:
    """A WSGI application that answers requests to ``hosts``, and lets pages of ``origins`` read its answers.

    ``hosts`` are lower-case names; ``*.example.com`` stands for all names below it. localhost and addresses
    are always answered: no page has them for its own name. A request without Host comes from no browser.
    """

    def __init__(self, app: WsgiApp, hosts: Collection[str], origins: Collection[str], clock: Clock) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        self._clock = clock

    def __call__(self, environ: Environ, start_response: Any) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if host and ANY not in self._hosts and not self._is_known(_PORT.sub("", host.lower()).strip("[].")):
            known = ", ".join(sorted({"localhost", "addresses", *self._hosts}))
            error = MisdirectedRequest(
                f"the host is {host[:200]!r}: {known} are accepted; the setting allowed-hosts adds others"
            )
            return render(error, record_of(environ), self._clock)(environ, start_response)
        origin = environ.get("HTTP_ORIGIN")
        allowed = ANY if ANY in self._origins else origin if origin in self._origins else None
        if not allowed:
            return self._app(environ, start_response)
        headers = [("Access-Control-Allow-Origin", allowed), ("Vary", "Origin")]
        if environ["REQUEST_METHOD"] == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ:
            wanted = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "Authorization,Content-Type")
            granted = {"Methods": _METHODS, "Headers": wanted}
            headers += [(f"Access-Control-Allow-{name}", value) for name, value in granted.items()]
            start_response("204 No Content", [*headers, ("Access-Control-Max-Age", _MAX_AGE)])
            return ()
        headers.append(("Access-Control-Expose-Headers", "*"))

        def start(status: str, answered: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(status, [*answered, *headers], *error)

        return self._app(environ, start)

    def _is_known(self, host: str) -> bool:
        above = (f"*{host[at:]}" for at, character in enumerate(host) if character == ".")
        return host in self._hosts or is_address(host) or not self._hosts.isdisjoint(above)
