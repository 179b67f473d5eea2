"""The socket on which a server listens."""

import errno
import os
import socket

from legacy_queue.config import SettingsError

_OF_THE_PORT = (errno.EADDRINUSE, errno.EACCES)


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Raises SettingsError, which names the option to change."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        if error.errno in _OF_THE_PORT:
            raise SettingsError(
                f"cannot listen on {host} port {port}: {os.strerror(error.errno)}; "
                "choose another port with --port; with 0 the system chooses one"
            ) from None
    except UnicodeError:  # not a valid host name
        pass
    raise SettingsError(
        f"cannot listen on {host!r}: expected an address of this machine; choose another with --host"
    )
