"""Makes signed requests, and checks that every bad signature is refused with the same error."""

import base64
import hmac
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from legacy_queue.domain import hawk
from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.hawk import SignedRequest
from tests.domain.sample_tasks import HOUR

NOW = datetime(2018, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
KEY = "44-characters-or-so-of-an-access-token-0123"
CREDENTIALS = {"id": "worker/1", "key": KEY}
TARGET = "/v1/task/T/runs/0/artifacts/public%2Flogs%2Flive.log?a=1&b=%20"
URL = f"http://Queue.example.com:8080{TARGET}"
REQUEST = SignedRequest("POST", TARGET, "Queue.example.com", 8080, None, "Application/JSON; x=y", b'{"a":1}')
EXT = "eyJhdXRob3JpemVkU2NvcGVzIjpbXX0="


def signed(
    request: SignedRequest = REQUEST, now: datetime = NOW, body: bytes = b"", content_type: str | None = None
) -> SignedRequest:
    """A signed request. If you give a content type, the signature covers the body."""
    covered = replace(request, body=body, content_type=content_type)
    header = hawk.sign_header(covered, CREDENTIALS["id"], KEY, now, "Ab3-_x", EXT)
    return replace(request, authorization=header)


def with_bewit(target: str = TARGET, expires: datetime = NOW + HOUR, ext: str = "") -> SignedRequest:
    end = str(int(expires.timestamp()))
    lines = ["hawk.1.bewit", end, "", "GET", target, REQUEST.host.lower(), str(REQUEST.port), "", ext, ""]
    mac = base64.b64encode(hmac.digest(KEY.encode(), "\n".join(lines).encode(), "sha256")).decode()
    text = "\\".join([CREDENTIALS["id"], end, mac, ext])
    bewit = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    mark = "&" if "?" in target else "?"
    return SignedRequest("GET", f"{target}{mark}bewit={bewit}", REQUEST.host, REQUEST.port)


def verify(request: SignedRequest, now: datetime = NOW, key: str = KEY) -> hawk.Signature:
    signature = hawk.read_signature(request)
    assert signature is not None
    hawk.verify(signature, request, key, now)
    return signature


def unreadable(request: SignedRequest) -> str:
    """What the error tells the caller about a signature that cannot be parsed."""
    with pytest.raises(AuthenticationFailed) as error:
        hawk.read_signature(request)
    assert str(error.value) == f"Authentication failed: {error.value.reason}"
    return str(error.value)


def refused(request: SignedRequest, now: datetime = NOW, key: str = KEY) -> None:
    with pytest.raises(AuthenticationFailed) as error:
        verify(request, now, key)
    assert str(error.value) == str(AuthenticationFailed(""))
