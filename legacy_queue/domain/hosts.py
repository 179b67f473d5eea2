"""Names and addresses of hosts."""

import ipaddress
from contextlib import suppress

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_address(host: str) -> bool:
    """Whether the host is an IP address or localhost."""
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return host == "localhost"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host. Of all names, only localhost counts."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False
