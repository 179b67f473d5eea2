"""A real RabbitMQ as a managed process; tests/adapters/test_managed_process.py tests what all share."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kombu.connection import Connection

from tests.adapters.test_managed_process import open_to_others
from tests.rabbitmq import RabbitMQ, RabbitMQUnavailable
from tests.system.processes import wait_until

OWNER = """
import signal, sys
from pathlib import Path
from tests.rabbitmq import RabbitMQ

rabbitmq = RabbitMQ(Path(sys.argv[1]), Path(sys.argv[2])).start()
print(rabbitmq.pid, flush=True)
signal.pause()
"""


MakeRabbitMQ = Callable[..., RabbitMQ]


@pytest.fixture
def made(tmp_path: Path, rabbitmq_home: Path) -> Iterator[MakeRabbitMQ]:
    """Makes RabbitMQs on one folder. The end of the test stops them."""
    with ExitStack() as stack:

        def make(home: Path = rabbitmq_home) -> RabbitMQ:
            rabbitmq = RabbitMQ(tmp_path / "data", home)
            stack.callback(rabbitmq.stop)
            return rabbitmq

        yield make


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def connected(url: str) -> Any:
    connect: Any = Connection  # kombu has no types
    return connect(url)


def put(url: str, text: str) -> None:
    with connected(url) as connection:
        queue = connection.SimpleQueue("durable")
        queue.put(text)
        queue.close()


def taken(url: str) -> str:
    with connected(url) as connection:
        queue = connection.SimpleQueue("durable")
        message = queue.get(timeout=10)
        message.ack()
        queue.close()
        return str(message.payload)


def sockets_of(pid: int) -> set[str]:
    """The inodes of the sockets of the process."""
    found = set()
    for link_path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if (link := os.readlink(link_path)).startswith("socket:["):
                found.add(link[len("socket:[") : -1])
    return found


def listening(pid: int) -> list[tuple[str, int]]:
    """The address, as the kernel writes it, and the port of each listening TCP socket of the process."""
    ours, found = sockets_of(pid), []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in ours:
                address, port = local.split(":")
                found.append((address, int(port, 16)))
    return found


def epmds() -> set[str]:
    """The processes on this machine that are Erlang's port mapper."""
    found = set()
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # ended meanwhile
            if name.read_text() == "epmd\n":
                found.add(str(name))
    return found


def test_durable_messages_survive_a_restart_on_another_port(made: MakeRabbitMQ, tmp_path: Path) -> None:
    first = made().start()
    put(first.url, "kept")
    first.stop()
    assert not first.alive()
    assert open_to_others(tmp_path / "data") == []
    with socket.create_server(("127.0.0.1", port_of(first.url))):
        second = made().start()
        assert second.url != first.url
        assert taken(second.url) == "kept"


def test_rabbitmq_listens_only_on_loopback_and_ignores_variables_of_another_rabbitmq(
    made: MakeRabbitMQ, rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITMQ_NODENAME", "another@elsewhere")
    monkeypatch.setenv("RABBITMQ_MNESIA_BASE", "/nowhere")
    monkeypatch.setenv("ERL_FLAGS", "-nonsense +nonsense")
    before = epmds()
    running = made().start()
    assert running.url != rabbitmq.url, "two of them run side by side"
    port = port_of(running.url)
    assert listening(running.pid or 0) == [("0100007F", port)]
    assert epmds() == before


def test_rabbitmq_ends_and_frees_the_folder_when_its_owner_is_killed(
    made: MakeRabbitMQ, tmp_path: Path, rabbitmq_home: Path
) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "data"), str(rabbitmq_home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        with pytest.raises(RabbitMQUnavailable, match=rf"data is in use by process {owner.pid}: stop it or "):
            made().start()
        owner.kill()
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
    made().start()


def test_a_missing_rabbitmq_is_refused_with_how_to_get_it(made: MakeRabbitMQ, tmp_path: Path) -> None:
    rabbitmq = made(home=tmp_path / "nowhere")
    if Path("/usr/lib/rabbitmq").exists():  # the machine's own is found
        rabbitmq.start()
        return
    with pytest.raises(RabbitMQUnavailable) as refused:
        rabbitmq.start()
    assert str(refused.value) == (
        "RabbitMQ is neither installed in /usr/lib/rabbitmq, with Erlang in /usr/lib/erlang, "
        f"nor in {tmp_path}/nowhere: scripts/up --rabbitmq fetches it, and so does "
        "`apt-get install rabbitmq-server`."
    )
