"""Who looks at the page: a browser cannot sign requests with Hawk.

It is signed in by a link with a bewit, which becomes a cookie. The cookie is good for the page alone, which
changes nothing, and ends with the credentials that signed the link.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from flask import Response
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.http import parse_cookie

from legacy_queue.domain.authentication import Authenticator, Identity
from legacy_queue.domain.times import epoch_milliseconds

_LIFE = timedelta(hours=12)
_OWN = (None, "none", "same-origin")  # of Sec-Fetch-Site: the address bar, or the page itself


class SignIn:
    """``has_tls``: all requests are by TLS."""

    def __init__(
        self,
        scope: str,
        secret: str,
        authenticator: Authenticator,
        has_tls: bool,
        now: Callable[[], datetime],
    ) -> None:
        self._scope = scope
        self._has_tls = has_tls
        self._authenticator = authenticator
        self._now = now
        key = hashlib.sha256(f"legacy-queue/page/{secret}".encode()).hexdigest()
        self._serializer = URLSafeSerializer(key, "legacy-queue page session")
        self._cookie = f"legacy-queue-{key[:8]}"  # cookies do not know ports: each server has its own

    def identity(self, environ: Mapping[str, Any]) -> Identity | None:
        """Who asks for the page without credentials of Hawk; None for a request that another page makes."""
        if environ.get("HTTP_SEC_FETCH_SITE") not in _OWN or "HTTP_ORIGIN" in environ:
            return None
        try:
            cookie = parse_cookie(environ.get("HTTP_COOKIE", "")).get(self._cookie, "")
            client_id, issuer, version, end = self._serializer.loads(cookie)
        except BadData:
            return None
        now = self._now()
        is_valid = epoch_milliseconds(now) < end and version == self._authenticator.version(issuer, now)
        return Identity(client_id, (self._scope,)) if is_valid else None

    def remember(self, response: Response, identity: Identity) -> None:
        """Sign the browser in."""
        now = self._now()
        end = min(now + _LIFE, identity.expires or now + _LIFE)
        issuer = identity.issuer or identity.client_id
        version = self._authenticator.version(issuer, now)
        value = str(self._serializer.dumps([identity.client_id, issuer, version, epoch_milliseconds(end)]))
        response.set_cookie(
            self._cookie, value, max_age=end - now, secure=self._has_tls, httponly=True, samesite="Strict"
        )
