"""``server.json`` leads commands to the server of this data directory, but never to another user's server."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.cli.queue_options import local_server
from legacy_queue.config import SERVER_FILE
from tests.other_user import OTHER, give_away

READY = {"rootUrl": "http://127.0.0.1:1", "pid": os.getpid()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEGACY_QUEUE_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "data").mkdir(0o700)
    return tmp_path / "data"


def planted(folder: Path, **changed: Any) -> Path:
    path = folder / SERVER_FILE
    path.write_text(json.dumps(READY | changed))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("root_url", ["http://127.0.0.1:1", "https://localhost:1", "http://[::1]:1"])
def test_commands_follow_server_json_to_this_users_running_server_on_loopback(
    folder: Path, root_url: str
) -> None:
    planted(folder, rootUrl=root_url)
    assert local_server()["rootUrl"] == root_url


@pytest.mark.parametrize(
    "changed",
    [
        *({"credentials": json.loads(text)} for text in ("5", "{}", '{"clientId": "a"}', "[]")),
        *({"pid": pid} for pid in (0, -1, 2**22 + 1, 2**40, True, "1", None)),
        # other programs read a different host from these URLs
        {"rootUrl": "http://evil.example\\@127.0.0.1:9"},
        {"rootUrl": "http://127.0.0.1:9#@evil.example"},
        *("", "[]", "{}", '{"pid": 1}'),
    ],
)
def test_a_damaged_server_json_or_one_without_a_running_process_is_ignored(
    folder: Path, changed: dict[str, Any] | str
) -> None:
    if isinstance(changed, str):
        planted(folder).write_text(changed)
    else:
        planted(folder, **changed)
    assert local_server() == {}


@pytest.mark.processes
def test_a_server_json_that_names_another_users_process_is_ignored(folder: Path) -> None:
    with subprocess.Popen(["sleep", "1000"], user=OTHER) as other:
        planted(folder, pid=other.pid)
        try:
            assert local_server() == {}
        finally:
            other.kill()


@pytest.mark.processes
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: give_away(path),
        lambda path: give_away(path.parent),
        lambda path: path.chmod(0o620),
        lambda path: path.write_text(json.dumps(READY | {"rootUrl": "http://queue.example.com"})),
    ],
    ids=["file", "folder", "mode", "root URL"],
)
def test_a_server_json_that_another_user_may_have_written_is_ignored(
    folder: Path, spoil: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(planted(folder))
    assert local_server() == {}
    assert "Ignoring " in capsys.readouterr().err
