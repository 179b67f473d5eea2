"""Limits what a web page of somebody else can do with this server from a browser.

A page can make its own host name resolve to this machine (DNS rebinding). Then the browser treats the server
as part of that page, but the requests still have the page's name in Host: they are refused. A page of another
origin can read answers only if its origin is allowed. Source: RFC 9110, 15.5.20; the Fetch standard, "CORS
protocol".
"""

import re
from collections.abc import Collection

from flask import Response, request

from legacy_queue.domain.errors import MisdirectedRequest
from legacy_queue.domain.hosts import is_address
from legacy_queue.http.request_log import Environ

ANY = "*"  # in a list of hosts or origins it allows all of them
_PORT = re.compile(r":[0-9]*$")
_METHODS = "OPTIONS,GET,HEAD,POST,PUT,DELETE"
_MAX_AGE = "900"  # seconds for which a browser keeps the answer to a preflight; as in the original queue


class BrowserGuard:
    """Refuses requests to names that are not in ``hosts``, and lets pages of ``origins`` read answers.

    ``hosts`` are lower-case names; ``*.example.com`` stands for all names below it. localhost and IP
    addresses are always allowed, because no page can have them as its own name. A request without Host does
    not come from a browser.
    """

    def __init__(self, hosts: Collection[str], origins: Collection[str]) -> None:
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)

    def check(self) -> Response | None:
        """Raises MisdirectedRequest for another host. Returns the answer to an allowed preflight."""
        environ = request.environ
        host = environ.get("HTTP_HOST", "")
        if host and ANY not in self._hosts and not self._is_known(_PORT.sub("", host.lower()).strip("[].")):
            known = ", ".join(sorted({"localhost", *self._hosts}))
            raise MisdirectedRequest(
                f"the host is {host[:200]!r}: expected an IP address, or one of {known}. "
                "To allow another host, add it to the setting allowed-hosts"
            )
        preflight = "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in environ and environ["REQUEST_METHOD"] == "OPTIONS"
        if not preflight or not self._allowed_origin(environ):
            return None
        response = Response(status=204)
        del response.headers["Content-Type"]
        wanted = environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "Authorization,Content-Type")
        granted = {"Methods": _METHODS, "Headers": wanted}
        response.headers.update({f"Access-Control-Allow-{name}": value for name, value in granted.items()})
        response.headers["Access-Control-Max-Age"] = _MAX_AGE
        return response

    def share(self, response: Response) -> Response:
        """Let a page of an allowed origin read the answer."""
        if self._origins and (allowed := self._allowed_origin(request.environ)):
            response.headers.add("Access-Control-Allow-Origin", allowed)
            response.headers.add("Access-Control-Expose-Headers", "*")
            response.headers.add("Vary", "Origin")
        return response

    def _allowed_origin(self, environ: Environ) -> str | None:
        origin = environ.get("HTTP_ORIGIN")
        return ANY if ANY in self._origins else origin if origin in self._origins else None

    def _is_known(self, host: str) -> bool:
        above = (f"*{host[at:]}" for at, character in enumerate(host) if character == ".")
        return host in self._hosts or is_address(host) or not self._hosts.isdisjoint(above)
