"""A managed process that starts in a few milliseconds: what holds for it holds for Azurite and RabbitMQ."""

import sys
from datetime import timedelta
from pathlib import Path

from legacy_queue.local_processes.managed_process import Busy, Command, ManagedProcess, Ports

# Listens, and ends as Azurite does: at SIGTERM, or at the end of its standard input.
SERVER = """
import os, signal, socket, sys
listening = []
for port in map(int, sys.argv[1:]):
    try:
        listening.append(socket.create_server(("127.0.0.1", port)))
    except OSError:
        sys.exit(f"busy {port}")
print("listening", *(one.getsockname()[1] for one in listening), flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
os.read(0, 1)
"""


class SmallServerUnavailable(Exception):
    """The small server cannot serve."""


class SmallServer(ManagedProcess):
    """Listens on two ports; ``script`` is run instead of SERVER."""

    NAME = "Small"
    UNAVAILABLE = SmallServerUnavailable

    def __init__(
        self, folder: Path, script: str = SERVER, start_timeout: timedelta = timedelta(seconds=60)
    ) -> None:
        super().__init__(folder, start_timeout)
        self._script = script

    @property
    def ports(self) -> Ports:
        return self._ports

    def _command(self, ports: Ports) -> Command:
        return [sys.executable, "-ISc", self._script, *map(str, ports.values())], {}

    def _free_ports(self) -> Ports:
        return {"first": 0, "second": 0}

    def _listening(self, output: str, ports: Ports) -> Ports | None:
        words = output.split()
        if words[:1] == ["busy"]:
            raise Busy(f"127.0.0.1:{words[1]}")
        if words[:1] != ["listening"] or not output.endswith("\n"):
            return None
        return dict(zip(ports, map(int, words[1:]), strict=True))
