"""Names and addresses of hosts."""

import pytest

from legacy_queue.domain.hosts import is_address, is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_only_this_machine_reaches_a_loopback_host(host: str) -> None:
    assert is_loopback(host)
    assert is_address(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::2"])
def test_other_machines_reach_other_addresses(host: str) -> None:
    assert not is_loopback(host)
    assert is_address(host)


@pytest.mark.parametrize("host", ["queue.example.com", "localhost.example.com", "127.0.0.1.example.com", ""])
def test_a_name_is_no_address(host: str) -> None:
    assert not is_loopback(host)
    assert not is_address(host)
