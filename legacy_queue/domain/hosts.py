"""Names and addresses of hosts."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host. No name but localhost counts."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
