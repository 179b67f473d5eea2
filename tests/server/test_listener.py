"""The socket of a server, and the errors if it cannot listen."""

import re
import socket

import pytest

from legacy_queue.config import SettingsError
from legacy_queue.server.listener import listen


@pytest.mark.parametrize("host", ["no..name", "192.0.2.1", "::1%no-zone", "2001:db8::1"])
def test_the_error_for_a_host_that_is_not_this_machines_names_it(host: str) -> None:
    said = f"cannot listen on {host!r}: expected an address of this machine; choose another with --host"
    with pytest.raises(SettingsError, match=re.escape(said)):
        listen(host, 0)


def test_the_error_for_a_port_in_use_names_it_and_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = f"port {port}: Address already in use; choose another port with --port"
        with pytest.raises(SettingsError, match=said):
            listen("127.0.0.1", port)
