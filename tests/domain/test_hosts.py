import pytest

from legacy_queue.domain.hosts import is_address, is_loopback


@pytest.mark.parametrize(
    ("hosts", "loopback", "address"),
    [
        (["localhost", "127.0.0.1", "127.9.9.9", "::1"], True, True),
        (["10.0.0.1", "0.0.0.0", "::2"], False, True),
        (["queue.example.com", "localhost.example.com", "127.0.0.1.example.com", ""], False, False),
    ],
)
def test_a_host_is_on_loopback_an_address_or_a_name(hosts: list[str], loopback: bool, address: bool) -> None:
    assert {(is_loopback(host), is_address(host)) for host in hosts} == {(loopback, address)}
