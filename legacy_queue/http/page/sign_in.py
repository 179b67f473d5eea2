"""Who looks at the pages: a browser cannot sign requests with Hawk.

It is signed in by a link with a bewit, which becomes a cookie. The cookie is good for the pages and their
forms alone, has the scopes of the credentials that signed the link, and ends with them.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from flask import Response
from itsdangerous import BadData, URLSafeSerializer
from werkzeug.sansio.http import parse_cookie

from legacy_queue.domain.authentication import Authenticator, Identity
from legacy_queue.domain.times import epoch_milliseconds

_LIFE = timedelta(hours=12)
_OWN = (None, "none", "same-origin")  # of Sec-Fetch-Site: the address bar, or the page itself
_MAX_COOKIE = 3800  # characters: a browser drops one of more than 4 KiB


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
        self._serializer = URLSafeSerializer(key, "legacy-queue session of pages")
        self._key = key.encode()
        # cookies do not know ports: each server has its own
        self._cookie = f"legacy-queue-{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def identity(self, environ: Mapping[str, Any]) -> Identity | None:
        """Who asks for the page without credentials of Hawk; None for a request that another page makes."""
        is_form = environ["REQUEST_METHOD"] == "POST"  # which has an origin, and a token
        if environ.get("HTTP_SEC_FETCH_SITE") not in _OWN or ("HTTP_ORIGIN" in environ and not is_form):
            return None
        try:
            client_id, issuer, version, end, scopes = self._serializer.loads(self._sent(environ))
        except BadData:
            return None
        now = self._now()
        has_ended = epoch_milliseconds(now) >= end or version is None
        if has_ended or version != self._authenticator.version(issuer, now):
            return None
        return Identity(client_id, tuple(scopes))

    def token(self, environ: Mapping[str, Any]) -> str:
        """What a form of this session sends, "" without a session."""
        cookie = self._sent(environ)
        return hmac.new(self._key, f"form/{cookie}".encode(), hashlib.sha256).hexdigest() if cookie else ""

    def is_own(self, environ: Mapping[str, Any], token: str) -> bool:
        """Whether the token is that of the session."""
        own = self.token(environ)
        return own != "" and hmac.compare_digest(own.encode(), token.encode())

    def _sent(self, environ: Mapping[str, Any]) -> str:
        # parse_cookie of werkzeug.http fails for bytes that are not UTF-8, which another server may have set
        return parse_cookie(environ.get("HTTP_COOKIE", "")).get(self._cookie, "")

    def remember(self, response: Response, identity: Identity) -> None:
        """Sign the browser in."""
        now = self._now()
        end = min(now + _LIFE, identity.expires or now + _LIFE)
        issuer = identity.issuer or identity.client_id
        version = self._authenticator.version(issuer, now)
        session = [identity.client_id, issuer, version, epoch_milliseconds(end)]
        scopes = ["*"] if "*" in identity.scopes else identity.scopes
        value = str(self._serializer.dumps([*session, scopes]))
        if len(value) > _MAX_COOKIE:  # then it can look, and change nothing
            value = str(self._serializer.dumps([*session, [self._scope]]))
        response.set_cookie(
            self._cookie, value, max_age=end - now, secure=self._has_tls, httponly=True, samesite="Strict"
        )
