"""What proxies say of the requests that they forward: believed of configured proxies, removed otherwise."""

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from legacy_queue.domain.hosts import Network
from legacy_queue.http.request_log import Environ

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
    """Peers in ``networks`` are proxies, which replace these headers of their clients."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks
        self._is_trusted = lru_cache(1024)(self._is_in_networks)

    def apply(self, environ: Environ) -> None:
        """After this, address and scheme are the client's, and the other headers those of a trusted proxy.

        The client's address is the last of X-Forwarded-For, which the proxy saw itself; the scheme is the
        first of X-Forwarded-Proto, by which the client came.
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
