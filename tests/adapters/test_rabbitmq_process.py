"""The life of the RabbitMQ process, with a real one. What it shares with Azurite's is tested there."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

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


connect: Any = Connection  # which has no types


@pytest.fixture
def made(tmp_path: Path, rabbitmq_home: Path) -> Iterator[Callable[..., RabbitMQ]]:
    """Makes RabbitMQs on one folder that are stopped when the test ends."""
    with ExitStack() as stack:

        def make(folder: Path = tmp_path / "data", home: Path = rabbitmq_home, **more: Any) -> RabbitMQ:
            rabbitmq = RabbitMQ(folder, home, **more)
            stack.callback(rabbitmq.stop)
            return rabbitmq

        yield make


def put(url: str, text: str) -> None:
    with connect(url) as connection:
        queue = connection.SimpleQueue("durable")
        queue.put(text)
        queue.close()


def taken(url: str) -> str:
    with connect(url) as connection:
        queue = connection.SimpleQueue("durable")
        message = queue.get(timeout=10)
        message.ack()
        queue.close()
        return str(message.payload)


def sockets_of(pid: int) -> set[str]:
    """The inodes of the process's sockets."""
    found = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if (link := os.readlink(one)).startswith("socket:["):
                found.add(link[len("socket:[") : -1])
    return found


def listening(pid: int) -> list[tuple[str, int]]:
    """Where a process takes TCP connections: the address as the kernel writes it, and the port."""
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


def test_what_is_durable_survives_a_stop_and_it_comes_back_on_its_port(
    made: Callable[..., RabbitMQ], tmp_path: Path
) -> None:
    first = made().start()
    put(first.url, "kept")
    first.stop()
    assert not first.alive()
    assert open_to_others(tmp_path / "data") == []
    second = made().start()
    assert second.url == first.url
    assert taken(second.url) == "kept"

    pid = second.pid or 0
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not second.alive())
    with (
        socket.create_server(("127.0.0.1", connect(second.url).port)),
        pytest.raises(RabbitMQUnavailable, match=r"^RabbitMQ cannot listen on 127\.0\.0\.1:\d+: another"),
    ):
        second.restart()
    second.restart()
    assert second.url == first.url
    put(second.url, "again")


def test_its_amqp_port_on_loopback_is_all_that_listens(
    made: Callable[..., RabbitMQ], rabbitmq: RabbitMQ
) -> None:
    before = epmds()
    one = made().start()
    assert one.url != rabbitmq.url, "two of them run side by side"
    port = connect(one.url).port
    assert listening(one.pid or 0) == [("0100007F", port)]
    assert epmds() == before


def test_another_port_is_taken_when_somebody_has_the_old_one(made: Callable[..., RabbitMQ]) -> None:
    first = made().start()
    put(first.url, "kept")
    first.stop()
    with socket.create_server(("127.0.0.1", connect(first.url).port)):
        second = made().start()
        assert second.url != first.url
        assert taken(second.url) == "kept"


def test_it_ends_and_frees_the_folder_when_its_owner_is_killed(
    made: Callable[..., RabbitMQ], tmp_path: Path, rabbitmq_home: Path
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


def test_the_settings_of_another_rabbitmq_do_not_reach_it(
    made: Callable[..., RabbitMQ], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RABBITMQ_NODENAME", "somebody@elsewhere")
    monkeypatch.setenv("RABBITMQ_MNESIA_BASE", "/nowhere")
    monkeypatch.setenv("ERL_FLAGS", "-nonsense +nonsense")
    assert made().start().alive()


def test_a_rabbitmq_that_is_not_there_is_told_with_what_cures_it(
    made: Callable[..., RabbitMQ], tmp_path: Path
) -> None:
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


def test_a_rabbitmq_that_cannot_start_is_told_with_its_last_words(
    made: Callable[..., RabbitMQ], tmp_path: Path
) -> None:
    with pytest.raises(RabbitMQUnavailable) as refused:
        made(settings={"no.such.setting": "1"}).start()
    said, where = str(refused.value).split(", see ")
    assert re.match(
        r"RabbitMQ ended while it started; it said .\d\S+ \S+ \[error\] .*no\.such\.setting", said
    )
    assert where == f"{tmp_path}/data/rabbitmq.log."


def test_a_rabbitmq_that_takes_too_long_is_given_up_and_ended(made: Callable[..., RabbitMQ]) -> None:
    rabbitmq = made(timeout=timedelta(seconds=0.1))
    with pytest.raises(RabbitMQUnavailable, match=r"^RabbitMQ did not begin to listen within 0\.1 s; see "):
        rabbitmq.start()
    assert rabbitmq.pid is None
