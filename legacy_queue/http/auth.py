"""From the request that came in to the one that was signed. Source: "Authentication" in design/api.md."""

import re
from typing import Any

from legacy_queue.domain.errors import AuthenticationFailed, InvalidRequestArguments
from legacy_queue.domain.hawk import SignedRequest

_DEFAULT_PORTS = {"http": 80, "https": 443}


def raw_target(environ: dict[str, Any]) -> str:
    """The request target as it was sent, path and query, nothing decoded: what a Hawk MAC covers."""
    target: str = environ["RAW_URI"]
    if target.startswith("/"):
        return target
    _, _, after_scheme = target.partition("://")  # a proxy's absolute form
    return after_scheme[after_scheme.find("/") :] if "/" in after_scheme else "/"


def check_escapes(target: str) -> None:
    """Raises InvalidRequestArguments for a ``%`` that escapes nothing, which could mean two things."""
    if broken := "%" in target and re.search("%(?![0-9a-fA-F]{2}).{0,2}", target):
        raise InvalidRequestArguments(
            f"{broken[0]!r} in the request's target is no percent escape: write % as %25"
        )


def signed_request(environ: dict[str, Any], body: bytes, trusts_proxy: bool) -> SignedRequest:
    """What the client signed; raises AuthenticationFailed for a Host that names no port.

    Behind a trusted proxy the x-forwarded headers say which host and port the client addressed.
    """
    scheme, address = environ["wsgi.url_scheme"], environ.get("HTTP_HOST", "")
    port = ""
    if trusts_proxy:
        scheme = environ.get("HTTP_X_FORWARDED_PROTO", scheme).split(",")[0].strip()
        address = environ.get("HTTP_X_FORWARDED_HOST", address).split(",")[0].strip()
        port = environ.get("HTTP_X_FORWARDED_PORT", "").split(",")[0].strip()
    host, _, host_port = address.rpartition(":") if _has_port(address) else (address, "", "")
    port = port or host_port or str(_DEFAULT_PORTS.get(scheme, 80))
    if not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise AuthenticationFailed("host without a usable port")
    return SignedRequest(
        method=environ["REQUEST_METHOD"],
        target=raw_target(environ),
        host=host.strip("[]"),  # clients sign ::1 where they write [::1]
        port=int(port),
        authorization=environ.get("HTTP_AUTHORIZATION"),
        content_type=environ.get("CONTENT_TYPE", ""),
        body=body,
    )


def _has_port(address: str) -> bool:
    return ":" in address and not address.endswith("]")  # [::1] alone has none
