from legacy_queue.domain.hosts import is_address, is_loopback


def test_loopback_hosts_and_addresses_are_recognized() -> None:
    for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"):
        assert (is_loopback(host), is_address(host)) == (True, True)
    for host in ("10.0.0.1", "0.0.0.0", "::2"):
        assert (is_loopback(host), is_address(host)) == (False, True)
    for host in ("queue.example.com", "localhost.example.com", "127.0.0.1.example.com", ""):
        assert (is_loopback(host), is_address(host)) == (False, False)
