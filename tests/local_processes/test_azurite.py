"""How a real Azurite is started, saved and stopped, with its folder, its ports and its key."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueClient

from legacy_queue.local_processes.azurite import DEFAULT_KEY, Azurite
from legacy_queue.ports.account import UnusableStorage
from tests.other_user import give_away
from tests.system.processes import wait_until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]

# A process that starts Azurite and then forks, like a gunicorn arbiter.
FORKED_OWNER = """
import os, signal, sys
from pathlib import Path
from legacy_queue.local_processes.azurite import Azurite

azurite = Azurite(Path(sys.argv[1])).start()
fork = os.fork()
if fork:
    print(azurite.pid, fork, flush=True)
signal.pause()
"""

# A gunicorn arbiter reaps every child process that has ended, before the Azurite class can ask for it.
REAPING_OWNER = """
import gevent.monkey; gevent.monkey.patch_all()
import os, signal, sys
from pathlib import Path
from legacy_queue.local_processes.azurite import Azurite

def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, reap)
azurite = Azurite(Path(sys.argv[1])).start()
os.kill(azurite.pid, signal.SIGKILL)
while os.path.exists(f"/proc/{azurite.pid}"):
    reap()  # reap before gevent does
assert not azurite.alive()
azurite.stop()
print("stopped")
"""


@pytest.fixture
def make_azurite(tmp_path: Path) -> Iterator[Callable[..., Azurite]]:
    """A function that makes Azurites on one folder. When the test ends, they are stopped."""
    with ExitStack() as stack:

        def make() -> Azurite:
            azurite = Azurite(tmp_path / "data")
            stack.callback(azurite.stop)
            return azurite

        yield make


def queue(connection: str) -> QueueClient:
    return QueueClient.from_connection_string(connection, "a-queue", api_version="2021-12-02", retry_total=0)


def key_of(azurite: Azurite) -> str:
    return azurite.connection_string.partition("AccountKey=")[2].partition(";")[0]


def open_to_others(folder: Path) -> list[Path]:
    """The paths in the folder, and the folder itself, that other users can read or change."""
    paths = [path for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    return [path for path in paths if path.stat().st_mode & 0o077]


def test_a_stopped_azurite_has_saved_everything_and_only_its_owner_can_read_it(
    make_azurite: Callable[..., Azurite], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the user's own variable for another Azurite
    monkeypatch.setenv("AZURITE_ACCOUNTS", "somebody:c29tZWJvZHk=")
    azurite = make_azurite().start()
    with queue(azurite.connection_string) as client:
        client.create_queue()
        client.send_message("kept")
    while azurite.alive():
        os.kill(azurite.pid or 0, signal.SIGTERM)  # repeatedly, while it saves
        time.sleep(0.001)
    assert open_to_others(tmp_path / "data") == []
    azurite.stop()
    with queue(make_azurite().start().connection_string) as client:
        assert [message.content for message in client.receive_messages()] == ["kept"]


def test_a_process_that_reaps_all_its_children_notices_that_its_azurite_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", REAPING_OWNER, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("stopped\n", "")


def test_when_the_process_that_started_it_is_killed_an_azurite_ends_and_frees_its_folder(
    make_azurite: Callable[..., Azurite], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", FORKED_OWNER, str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, fork = map(int, owner.stdout.readline().split())
        owner.kill()
        try:
            wait_until(lambda: not Path(f"/proc/{pid}").exists())
            assert make_azurite().start().alive()
            assert Path(f"/proc/{fork}").exists(), "the fork of the killed process still runs"
        finally:
            os.kill(fork, signal.SIGKILL)


def test_an_azurite_takes_other_ports_if_its_own_are_busy_but_never_the_folder_of_another(
    make_azurite: Callable[..., Azurite],
) -> None:
    first = make_azurite().start()
    queue_port = first.ports.queue
    with pytest.raises(UnusableStorage, match=f"is in use by process {os.getpid()}: stop that process"):
        make_azurite().start()
    assert first.alive()
    first.stop()
    with socket.create_server(("127.0.0.1", queue_port)):
        second = make_azurite().start()
        assert requests.get(second.queue_url, timeout=10).status_code == 400
        assert second.ports.queue != queue_port


def test_a_folder_or_key_of_another_user_is_refused(
    make_azurite: Callable[..., Azurite], tmp_path: Path
) -> None:
    planted = tmp_path / "data" / "connection-string"
    planted.parent.mkdir()
    planted.write_text("AccountName=theirs")
    give_away(planted, planted.parent)
    with pytest.raises(UnusableStorage, match="it belongs to another user"):
        make_azurite().start()
    assert planted.read_text() == "AccountName=theirs"


def test_each_azurite_has_an_account_key_of_its_own_that_only_its_owner_can_read(
    make_azurite: Callable[..., Azurite], azurite: Azurite, tmp_path: Path
) -> None:
    own = make_azurite().start()
    assert open_to_others(tmp_path / "data") == []
    others = [key_of(azurite), DEFAULT_KEY]
    assert key_of(own) not in (Path(f"/proc/{own.pid}/cmdline").read_text(), *others)
    for other in others:
        with pytest.raises(HttpResponseError, match="AuthenticationFailed"):
            queue(own.connection_string.replace(key_of(own), other)).create_queue()
    own.stop()
    assert make_azurite().start().connection_string == own.connection_string, (
        "signed URLs from before are still valid"
    )


def test_if_a_save_fails_it_is_retried_and_until_then_azurite_answers_503(
    make_azurite: Callable[..., Azurite], tmp_path: Path
) -> None:
    azurite, unwritable = make_azurite().start(), tmp_path / "data/__azurite_db_queue__.json~"
    unwritable.mkdir()  # saving fails now, as if the disk were full
    queue(azurite.connection_string).create_queue()
    wait_until(lambda: requests.get(azurite.table_url, timeout=10).status_code == 503)
    unwritable.rmdir()
    wait_until(lambda: requests.get(azurite.table_url, timeout=10).status_code != 503)
    assert azurite.stop()
    assert b"a-queue" in (tmp_path / "data/__azurite_db_queue__.json").read_bytes()
    azurite.start()
    queue(azurite.connection_string).delete_queue()
    unwritable.mkdir()
    assert not azurite.stop(), "stop says that the last save has failed"


def test_an_azurite_next_to_this_python_is_found_even_if_it_is_not_on_the_path(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    fake = tmp_path / "azurite"
    fake.write_text("#!/bin/sh\necho 'an error of the one beside Python'\nexit 1\n")
    fake.chmod(0o700)
    program = "from pathlib import Path; from legacy_queue.local_processes.azurite import Azurite; "
    program += f"Azurite(Path({str(tmp_path / 'data')!r})).start()"
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.run([python, "-c", program], env=env, capture_output=True, text=True).stderr
    assert "Azurite ended during its start. It said 'an error of the one beside Python'" in said
