"""What is Azurite's own of its life as a managed process, with a real one; see test_managed_process.py."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueClient

from legacy_queue.adapters.azure.rest import QUEUE
from legacy_queue.local_processes.azurite import DEFAULT_KEY, Azurite, AzuriteUnavailable, find_running
from tests.local_processes.test_managed_process import open_to_others
from tests.system.processes import wait_until

API_VERSION = QUEUE.version
OWNER = """
import signal, sys
from pathlib import Path
from legacy_queue.local_processes.azurite import Azurite

print(Azurite(Path(sys.argv[1])).start().pid, flush=True)
signal.pause()
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Azurite]]:
    """Makes Azurites on one folder that are stopped when the test ends."""
    with ExitStack() as stack:

        def make(azurite_dir: Path | None = None, **more: Any) -> Azurite:
            azurite = Azurite(tmp_path / "data", azurite_dir, **more)
            stack.callback(azurite.stop)
            return azurite

        yield make


def queue(azurite: Azurite) -> QueueClient:
    return QueueClient.from_connection_string(
        azurite.connection_string, "a-queue", api_version=API_VERSION, retry_total=0
    )


def key_of(azurite: Azurite) -> str:
    return azurite.connection_string.partition("AccountKey=")[2].partition(";")[0]


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=10).status_code >= 400  # not signed
    except requests.ConnectionError:
        return False


def a_broken_azurite(folder: Path, script: str) -> Path:
    """An installation whose Azurite is this script for node."""
    program = folder / "node_modules/.bin/azurite"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/usr/bin/env node\n{script}\n")
    program.chmod(0o755)
    return folder


def test_all_three_services_answer_once_it_has_started(azurite: Azurite) -> None:
    assert azurite.alive()
    for url in (azurite.queue_url, azurite.table_url, azurite.blob_url):
        assert answers(url)


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
    azurite.stop()
    with queue(made().start()) as client:
        assert [message.content for message in client.receive_messages()] == ["kept"]


def test_an_azurite_that_was_never_started_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(AzuriteUnavailable, match="start `legacy-queue serve` first"):
        find_running(tmp_path)


def test_a_machine_without_azurite_is_told_how_to_get_one(
    made: Callable[..., Azurite], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AzuriteUnavailable) as refused:
        made().start()
    assert str(refused.value) == (
        "There is no azurite on PATH: `npm install -g azurite` installs it, or run it in a container, and "
        "use --storage azure with its connection string. --azurite-dir names a folder whose node_modules "
        "has it, and --storage embedded needs none."
    )


def test_a_folder_without_azurite_is_refused(made: Callable[..., Azurite], tmp_path: Path) -> None:
    with pytest.raises(AzuriteUnavailable, match=f"There is no {tmp_path}/\\S+/azurite: run `npm"):
        made(tmp_path).start()


def test_a_version_gets_only_the_options_that_it_declares(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    """3.31 has no keep-alive timeouts and no telemetry, and ends at an unknown option."""
    main = tmp_path / "old/node_modules/azurite/dist/src/azurite.js"
    (main.parent / "common").mkdir(parents=True)
    (main.parent / "common/Environment.js").write_text('.option(["s", "silent"]).option(["", "blobHost"])')
    main.write_text("#!/usr/bin/env node\nconsole.error('Error:', ...process.argv.slice(2, 4))")
    main.chmod(0o755)
    (tmp_path / "old/node_modules/.bin").mkdir()
    (tmp_path / "old/node_modules/.bin/azurite").symlink_to("../azurite/dist/src/azurite.js")
    with pytest.raises(AzuriteUnavailable, match="it said 'Error: --silent --location="):
        made(tmp_path / "old").start()


def test_a_broken_azurite_is_reported_with_its_last_words(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    broken = a_broken_azurite(tmp_path / "broken", "require('nothing-of-the-sort')")
    with pytest.raises(AzuriteUnavailable) as refused:
        made(broken).start()
    sentence = str(refused.value)
    assert sentence.startswith("Azurite ended while it started; it said ")
    assert "Cannot find module 'nothing-of-the-sort'" in sentence
    assert sentence.endswith(f"see {tmp_path / 'data' / 'azurite.log'}.")
    assert "\n" not in sentence


def test_the_account_has_a_key_of_its_own_that_only_its_owner_reads(
    made: Callable[..., Azurite], azurite: Azurite, tmp_path: Path
) -> None:
    first = made().start()
    assert "/devstoreaccount1" in first.queue_url
    assert find_running(tmp_path / "data") == first.connection_string
    assert open_to_others(tmp_path / "data") == []
    command = Path(f"/proc/{first.pid}/cmdline").read_text()
    others = [key_of(azurite), DEFAULT_KEY]
    assert key_of(first) not in (command, *others)
    for other in others:
        wrong = first.connection_string.replace(key_of(first), other)
        client = QueueClient.from_connection_string(wrong, "a-queue", api_version=API_VERSION)
        with pytest.raises(HttpResponseError, match="AuthenticationFailed"):
            client.create_queue()
    first.stop()
    assert made().start().connection_string == first.connection_string, "outstanding signed URLs are good"


def test_the_documented_key_is_used_only_where_it_is_asked_for(made: Callable[..., Azurite]) -> None:
    azurite = made(has_default_key=True).start()
    assert key_of(azurite) == DEFAULT_KEY
    queue(azurite).create_queue()
    azurite.stop()
    assert key_of(made()) != DEFAULT_KEY


def test_a_save_that_fails_is_tried_again_and_nothing_is_acknowledged_meanwhile(
    made: Callable[..., Azurite], tmp_path: Path
) -> None:
    azurite, unwritable = made().start(), tmp_path / "data/__azurite_db_queue__.json~"
    unwritable.mkdir()  # as if the disk were full
    queue(azurite).create_queue()
    wait_until(lambda: requests.get(azurite.table_url, timeout=10).status_code == 503)
    unwritable.rmdir()
    wait_until(lambda: requests.get(azurite.table_url, timeout=10).status_code != 503)
    assert azurite.stop()
    assert b"a-queue" in (tmp_path / "data/__azurite_db_queue__.json").read_bytes()


def test_stop_says_that_the_last_save_failed(made: Callable[..., Azurite], tmp_path: Path) -> None:
    azurite = made().start()
    queue(azurite).create_queue()
    (tmp_path / "data/__azurite_db_queue__.json~").mkdir()
    assert not azurite.stop()
