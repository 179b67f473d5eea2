"""The file of embedded storage: what a start accepts, and the sentence for what it does not."""

import os
import sqlite3
import stat
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.adapters.embedded.schema import VERSION
from legacy_queue.adapters.embedded.storage_file import network_file_system
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.account import UnusableStorage
from tests.memory_server import FakeClock
from tests.system.processes import wait_until

MOUNTS = """21 28 0:20 / /proc rw,nosuid shared:5 - proc proc rw
28 0 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 28 0:40 / /mnt/far\\040away rw,relatime shared:9 - nfs4 server:/x rw,vers=4.2
41 40 8:1 / /mnt/far\\040away/disk rw - xfs /dev/sda1 rw
"""


@pytest.fixture
def file(tmp_path: Path) -> StorageFile:
    return StorageFile(tmp_path)


def account(file: StorageFile) -> EmbeddedAccount:
    return EmbeddedAccount(file, FakeClock(), "http://127.0.0.1:1/azure", "q")


def refusal(file: StorageFile) -> str:
    with pytest.raises(UnusableStorage) as refused:
        file.prepare()
    return str(refused.value)


def test_a_new_file_is_private_with_all_beside_it_and_keeps_its_random_key(
    file: StorageFile, tmp_path: Path
) -> None:
    file.prepare()
    opened = account(file)
    opened.container.put("name", b"." * 70_000, "text/plain", None)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert len(modes) == 5
    assert all(not mode & 0o077 for mode in modes.values()), modes
    opened.close()
    key = file.signing_key()
    file.prepare()
    assert file.signing_key() == key
    (tmp_path / "other").mkdir()
    other = StorageFile(tmp_path / "other")
    other.prepare()
    assert other.signing_key() != key


def test_a_file_of_another_program_is_refused(file: StorageFile) -> None:
    with closing(sqlite3.connect(file.path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert "another program" in refusal(file)
    with closing(sqlite3.connect(file.path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]


def test_a_file_of_another_version_is_refused(file: StorageFile) -> None:
    file.prepare()
    with closing(sqlite3.connect(file.path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    assert "another version" in refusal(file)


def test_what_is_no_sqlite_file_is_refused(file: StorageFile) -> None:
    file.path.write_bytes(b"something else, and longer than a header of SQLite" * 100)
    assert "no SQLite file" in refusal(file)


def test_a_damaged_file_is_refused(file: StorageFile) -> None:
    file.prepare()
    opened = account(file)
    for number in range(200):
        opened.table("t").insert("p", f"k{number}", {"text": "x" * 500})
    opened.close()
    content = bytearray(file.path.read_bytes())
    content[2048 * 40 : 2048 * 60] = b"\xa5" * (2048 * 20)
    file.path.write_bytes(content)
    assert "damaged" in refusal(file)
    file.path.write_bytes(content[: 2048 * 30])
    assert "damaged" in refusal(file)


def test_a_folder_in_the_place_of_the_file_is_refused(file: StorageFile) -> None:
    file.path.mkdir()
    assert "cannot be written" in refusal(file)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/mnt/far away/x", "nfs4"),
        ("/mnt/far away", "nfs4"),
        ("/mnt/far away/disk/x", None),
        ("/mnt/far awayx", None),
        ("/home", None),
    ],
)
def test_a_folder_on_a_network_file_system_is_noticed(folder: str, kind: str | None) -> None:
    assert network_file_system(Path(folder), MOUNTS) == kind


def test_two_servers_of_one_file_are_refused(file: StorageFile, tmp_path: Path) -> None:
    file.lock()
    with pytest.raises(UnusableStorage, match=f"in use by process {os.getpid()}"):
        StorageFile(tmp_path).lock()


def test_a_missing_file_has_no_key_and_is_not_made(file: StorageFile) -> None:
    with pytest.raises(UnusableStorage, match="start `legacy-queue serve`"):
        file.signing_key()
    assert file.is_missing


@pytest.mark.parametrize("name", ["storage.sqlite", "storage.sqlite-wal"])
def test_a_file_or_wal_removed_while_it_is_served_is_noticed(file: StorageFile, name: str) -> None:
    file.prepare()
    opened = account(file)
    opened.check()
    file.path.with_name(name).unlink()
    with pytest.raises(ServiceUnavailable, match="removed"):
        opened.check()
    with pytest.raises(ServiceUnavailable, match="removed"):
        opened.table("t").insert("p", "k", {})
    opened.close()


def test_a_file_that_was_removed_is_not_made_again_at_the_end(file: StorageFile) -> None:
    file.prepare()
    file.path.unlink()
    with pytest.raises(UnusableStorage, match="removed"):
        file.finish()
    assert file.is_missing


@pytest.mark.parametrize("name", ["with space", "a#b?c", "%41", "ü", "file:x?mode=memory", ":memory:"])
def test_a_backup_of_a_file_in_use_has_its_rows_and_artifacts_whatever_its_name(
    tmp_path: Path, name: str
) -> None:
    folder, copy = tmp_path / name, tmp_path / f"copy of {name}"
    (folder / "other").mkdir(parents=True)
    file = StorageFile(folder)
    file.prepare()
    opened = account(file)
    opened.table("t").insert("p", "k", {"text": "value"})
    opened.container.put("large", b"." * 100_000, "text/plain", None)
    file.back_up(copy)
    opened.table("t").insert("p", "later", {})
    opened.close()
    restored = StorageFile(folder / "other")
    os.rename(copy, restored.path)
    os.rename(f"{copy}-artifacts", restored.artifacts)
    restored.prepare()
    again = account(restored)
    row, blob = again.table("t").get("p", "k"), again.container.read("large")
    assert row
    assert blob
    assert (row.values, b"".join(blob[1])) == ({"text": "value"}, b"." * 100_000)
    assert again.table("t").get("p", "later") is None
    assert restored.signing_key() == file.signing_key()
    again.close()


def test_the_file_may_be_a_link_to_another_disk(file: StorageFile, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    file.path.symlink_to(tmp_path / "disk" / "real.sqlite")
    linked = StorageFile(tmp_path)
    linked.prepare()
    opened = account(linked)
    opened.table("t").insert("p", "k", {})
    opened.check()
    assert (tmp_path / "disk" / "real.sqlite-wal").exists()
    opened.close()


def test_a_queue_time_ahead_of_the_real_time_is_logged(
    file: StorageFile,
) -> None:
    file.prepare()
    clock = FakeClock()
    clock.advance(timedelta(days=20))
    opened = EmbeddedAccount(file, clock, "http://127.0.0.1:1/azure", "q")
    opened.table("t").insert("p", "k", {})
    wait_until(lambda: "last time" in names(file))
    opened.close()
    with capture_logs() as logged:
        file.prepare()
    assert [line["event"] for line in logged] == ["storage-is-ahead"]


def names(file: StorageFile) -> set[str]:
    with closing(sqlite3.connect(file.path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM meta")}


def test_a_backup_replaces_nothing(file: StorageFile, tmp_path: Path) -> None:
    with pytest.raises(UnusableStorage, match="there is no"):
        file.back_up(tmp_path / "copy")
    file.prepare()
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(UnusableStorage, match="File exists"):
        file.back_up(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"
