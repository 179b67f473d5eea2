"""Hawk for requests: the only place where the worker shares code with the server."""

import secrets
from collections.abc import Callable
from datetime import datetime
from urllib.parse import urlsplit

import requests

from legacy_queue.domain import hawk
from legacy_queue.worker.http import Sign

_PORTS = {"http": 80, "https": 443}


def hawk_auth(client_id: str, access_token: str, ext: str | None, now: Callable[[], datetime]) -> Sign:
    """What signs a request just before it is sent; a repeated request is signed anew.

    The target is signed as it goes over the wire, after requests has quoted it, and so is the body.
    """

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = urlsplit(str(request.url))
        signed = hawk.SignedRequest(
            str(request.method),
            request.path_url,
            url.hostname or "",
            url.port or _PORTS[url.scheme],
            content_type=request.headers.get("Content-Type", ""),
            body=request.body if isinstance(request.body, bytes) else b"",
        )
        request.headers["Authorization"] = hawk.sign_header(
            signed, client_id, access_token, now(), secrets.token_urlsafe(6), ext or ""
        )
        return request

    return sign
