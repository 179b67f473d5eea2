"""How a browser signs in to the pages, although it cannot sign its requests with Hawk.

The user opens a link with a bewit, and the browser gets a cookie. The cookie works only for the pages and
their forms. It has the scopes of the credentials that signed the link, and expires no later than they do.
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
    """Makes and checks the cookies. ``has_tls`` says that every request arrives by TLS."""

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
        # browsers share cookies between the ports of a host, so each server has a cookie of its own name
        self._cookie = f"legacy-queue-{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def identity(self, environ: Mapping[str, Any]) -> Identity | None:
        """The identity in the cookie, None if it is invalid or a page of another site sent the request."""
        # a form sends its origin, and ``is_own`` checks its token
        is_form = environ["REQUEST_METHOD"] == "POST"
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
        """The token that the forms of this session contain, "" if the browser is not signed in."""
        cookie = self._sent(environ)
        return hmac.new(self._key, f"form/{cookie}".encode(), hashlib.sha256).hexdigest() if cookie else ""

    def is_own(self, environ: Mapping[str, Any], token: str) -> bool:
        """Whether the token belongs to this session, so that the form comes from a page of this server."""
        own = self.token(environ)
        return own != "" and hmac.compare_digest(own.encode(), token.encode())

    def _sent(self, environ: Mapping[str, Any]) -> str:
        # parse_cookie of werkzeug.http fails for bytes that are not UTF-8, which another server may have set
        return parse_cookie(environ.get("HTTP_COOKIE", "")).get(self._cookie, "")

    def remember(self, response: Response, identity: Identity) -> None:
        """Set the cookie that signs the browser in, for twelve hours or until the credentials expire."""
        now = self._now()
        end = min(now + _LIFE, identity.expires or now + _LIFE)
        issuer = identity.issuer or identity.client_id
        version = self._authenticator.version(issuer, now)
        session = [identity.client_id, issuer, version, epoch_milliseconds(end)]
        scopes = ["*"] if "*" in identity.scopes else identity.scopes
        value = str(self._serializer.dumps([*session, scopes]))
        if len(value) > _MAX_COOKIE:  # keep only the scope of the pages: their forms are then refused
            value = str(self._serializer.dumps([*session, [self._scope]]))
        response.set_cookie(
            self._cookie, value, max_age=end - now, secure=self._has_tls, httponly=True, samesite="Strict"
        )
