"""The connection of a request: the client behind proxies, the body, and whether the client still waits."""

import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from legacy_queue.domain.errors import MalformedPayload, ServiceUnavailable
from legacy_queue.domain.hosts import Network

_ESTABLISHED = 1  # TCP_ESTABLISHED in the kernel's include/net/tcp_states.h
_HEADERS = frozenset(
    f"HTTP_{name}"
    for name in [
        "X_FORWARDED_FOR",
        "X_FORWARDED_HOST",
        "X_FORWARDED_PORT",
        "X_FORWARDED_PROTO",
        "FORWARDED",
        "VIA",
    ]
)


class TrustedProxies:
    """Trusts the forwarding headers of peers in ``networks``, and removes those of all other peers."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks
        self._is_trusted = lru_cache(1024)(self._is_in_networks)

    def apply(self, environ: dict[str, Any]) -> None:
        """Sets the client's address and scheme, and removes forwarding headers that cannot be trusted.

        The address is the last one in X-Forwarded-For, because the proxy itself saw it. The scheme is the
        first one in X-Forwarded-Proto, with which the client came.
        """
        if self._networks and self._is_trusted(environ.get("REMOTE_ADDR", "")):
            if addresses := environ.get("HTTP_X_FORWARDED_FOR"):
                environ["REMOTE_ADDR"] = addresses.rpartition(",")[2].strip()
            scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").partition(",")[0].strip()
            if scheme in ("http", "https"):
                environ["wsgi.url_scheme"] = scheme
        else:
            for name in environ.keys() & _HEADERS:
                del environ[name]

    def _is_in_networks(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)


class TimedBody:
    """A request's body, whose read errors are errors of the queue.

    If gunicorn's worker raises TimeoutError, a read raises ServiceUnavailable. For any other error, such as
    malformed chunks or a closed connection, it raises MalformedPayload. gunicorn then closes the connection.
    """

    def __init__(self, body: Any) -> None:
        self._body = body

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._body.read(size))
        except TimeoutError:
            raise ServiceUnavailable("the body arrived too slowly: send it again") from None
        except Exception as error:  # noqa: BLE001  gunicorn has many
            raise MalformedPayload(f"the body cannot be read ({type(error).__name__})") from None


def disconnected(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Returns a function that says whether the client has closed the connection, or it is broken.

    You can call the function at any time. It makes one system call and reads nothing. Only the server of
    ``legacy-queue serve`` passes the connection on: with any other server the client counts as connected.
    """
    client: Any = environ.get("gunicorn.socket")

    def is_disconnected() -> bool:
        try:
            state: int = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:  # the server has closed it
            return True
        return state != _ESTABLISHED

    return is_disconnected if client else lambda: False
