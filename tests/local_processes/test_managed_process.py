"""The life of a managed process: its folder, its ports, its end."""

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from tests.local_processes.small_server import SERVER, SmallServer, SmallServerUnavailable
from tests.system.processes import wait_until

ROOT = Path(__file__).parents[2]

# An owner with a fork, as a gunicorn arbiter has its workers.
FORKED_OWNER = """
import os, signal, sys
from pathlib import Path
from tests.local_processes.small_server import SmallServer

server = SmallServer(Path(sys.argv[1])).start()
fork = os.fork()
if fork:
    print(server.pid, fork, flush=True)
signal.pause()
"""

# A gunicorn arbiter reaps every child that has ended, before the managed process can ask for it.
REAPING_OWNER = """
import os, signal, sys
from pathlib import Path
from tests.local_processes.small_server import SmallServer

def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, reap)
server = SmallServer(Path(sys.argv[1])).start()
for end in (signal.SIGKILL, signal.SIGTERM):
    pid, ports = server.pid, server.ports
    assert server.alive()
    os.kill(pid, end)
    while server.alive():
        pass
    server.stop()
    server.start()
    assert server.pid != pid
    assert server.ports == ports
os.kill(server.pid, signal.SIGKILL)
while os.path.exists(f"/proc/{server.pid}"):
    reap()  # before gevent has looked
assert not server.alive()
server.stop()
print("restarted twice")
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., SmallServer]]:
    """Makes servers on one folder that are stopped when the test ends."""
    with ExitStack() as stack:

        def make(script: str = SERVER, start_timeout: timedelta = timedelta(seconds=60)) -> SmallServer:
            server = SmallServer(tmp_path / "data", script, start_timeout)
            stack.callback(server.stop)
            return server

        yield make


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def open_to_others(folder: Path) -> list[Path]:
    """The folder, and what is in it, as far as others than its owner may read or change it."""
    return [
        path
        for path in [folder, *folder.rglob("*")]
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def test_a_server_listens_from_start_to_stop_and_keeps_its_ports(made: Callable[..., SmallServer]) -> None:
    first = made().start()
    assert first.alive()
    assert all(map(answers, first.ports.values()))
    first.stop()
    first.stop()
    assert (first.alive(), first.pid) == (False, None)
    assert not any(map(answers, first.ports.values()))
    second = made().start()
    assert second.ports == first.ports, "outstanding signed URLs are good for these"


def test_the_folder_becomes_private(made: Callable[..., SmallServer], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    with made():
        assert open_to_others(tmp_path / "data") == []
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"lock", "ports.json", "small.log"}


@pytest.mark.parametrize("first", ["", "import gevent.monkey; gevent.monkey.patch_all()"])
def test_an_owner_that_reaps_all_children_notices_the_end_of_its_server(first: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", first + REAPING_OWNER, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("restarted twice\n", "")


def test_a_new_owner_takes_other_ports_where_the_old_ones_are_busy(made: Callable[..., SmallServer]) -> None:
    first = made().start()
    first.stop()
    with socket.create_server(("127.0.0.1", first.ports["first"])):
        second = made().start()
        assert answers(second.ports["second"])
        assert second.ports["first"] != first.ports["first"]


def test_ports_that_cannot_be_read_are_chosen_anew(made: Callable[..., SmallServer], tmp_path: Path) -> None:
    made().start().stop()
    for text in ("", "[]", '{"other": 1}'):
        (tmp_path / "data/ports.json").write_text(text)
        with made() as server:
            assert all(map(answers, server.ports.values()))


def test_a_second_server_on_the_same_folder_is_refused(
    made: Callable[..., SmallServer], tmp_path: Path
) -> None:
    first = made().start()
    with pytest.raises(SmallServerUnavailable) as refused:
        made().start()
    assert str(refused.value) == (
        f"The data folder {tmp_path / 'data'} is in use by process {os.getpid()}: "
        "stop it or choose another folder."
    )
    assert first.alive()


def test_a_folder_that_cannot_be_made_is_named(made: Callable[..., SmallServer], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(
        SmallServerUnavailable, match=r"^The data folder \S+/data cannot be used: File exists\.$"
    ):
        made().start()


def test_a_server_ends_and_frees_the_folder_when_its_owner_is_killed(
    made: Callable[..., SmallServer], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", FORKED_OWNER, str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, fork = map(int, owner.stdout.readline().split())
        owner.kill()
        try:
            wait_until(lambda: not Path(f"/proc/{pid}").exists())
            assert made().start().alive()
            assert Path(f"/proc/{fork}").exists(), "the owner's fork has outlived both"
        finally:
            os.kill(fork, signal.SIGKILL)


def test_a_server_that_ends_while_it_starts_is_reported_with_its_last_words(
    made: Callable[..., SmallServer], tmp_path: Path
) -> None:
    with pytest.raises(SmallServerUnavailable) as refused:
        made("print('first'); print(); raise ValueError('nothing of the sort')").start()
    assert str(refused.value) == (
        "Small ended while it started; it said 'ValueError: nothing of the sort', "
        f"see {tmp_path / 'data' / 'small.log'}."
    )
    with pytest.raises(SmallServerUnavailable, match="it said 'last words', see "):
        made("print('last words')").start()
    with pytest.raises(SmallServerUnavailable, match="it said nothing, see "):
        made("").start()
    assert made().start().alive(), "a failed start leaves the folder free"


def test_a_server_that_never_listens_is_ended_after_its_timeout(made: Callable[..., SmallServer]) -> None:
    server = made("input()", start_timeout=timedelta(seconds=0.1))
    with pytest.raises(SmallServerUnavailable, match=r"^Small did not begin to listen within 0\.1 s; see "):
        server.start()
    assert server.pid is None
