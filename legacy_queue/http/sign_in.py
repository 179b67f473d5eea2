"""Who looks at the page: a browser cannot sign requests with Hawk.

It is signed in by a link with a bewit, which becomes a cookie, or where a development client was made up, by
being on this machine. The cookie is good for the page alone, which changes nothing.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any

from flask import Response
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.http import parse_cookie

from legacy_queue.domain.authentication import Identity
from legacy_queue.domain.times import epoch_milliseconds

_LIFE = timedelta(hours=12)
_OWN = (None, "none", "same-origin")  # of Sec-Fetch-Site: the address bar, or the page itself


class SignIn:
    """``development_client`` signs in whoever is on this machine, "" nobody. ``has_tls``: all requests are by
    TLS.
    """

    def __init__(
        self,
        scope: str,
        secret: str,
        development_client: str,
        has_tls: bool,
        now: Callable[[], datetime],
    ) -> None:
        self._scope = scope
        self._has_tls = has_tls
        self._development_client = development_client
        self._now = now
        key = hashlib.sha256(f"legacy-queue/page/{secret}".encode()).hexdigest()
        self._serializer = URLSafeSerializer(key, "legacy-queue page")
        self._cookie = f"legacy-queue-{key[:8]}"  # cookies do not know ports: each server has its own

    def identity(self, environ: Mapping[str, Any]) -> Identity | None:
        """Who asks for the page without credentials of Hawk; None for a request that another page makes."""
        if environ.get("HTTP_SEC_FETCH_SITE") not in _OWN or "HTTP_ORIGIN" in environ:
            return None
        try:
            cookie = parse_cookie(environ.get("HTTP_COOKIE", "")).get(self._cookie, "")
            client_id, end = self._serializer.loads(cookie)
            if epoch_milliseconds(self._now()) < end:
                return Identity(client_id, (self._scope,))
        except BadData:
            pass
        is_local = ip_address(environ.get("REMOTE_ADDR") or "0.0.0.0").is_loopback  # noqa: S104
        if self._development_client and is_local and "HTTP_X_FORWARDED_FOR" not in environ:
            return Identity(self._development_client, (self._scope,))
        return None

    def remember(self, response: Response, client_id: str) -> None:
        """Sign the browser in."""
        value = str(self._serializer.dumps([client_id, epoch_milliseconds(self._now() + _LIFE)]))
        response.set_cookie(
            self._cookie, value, max_age=_LIFE, secure=self._has_tls, httponly=True, samesite="Strict"
        )
