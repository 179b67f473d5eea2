"""A backup is a data directory. It is private, and it is never incomplete."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile, back_up
from legacy_queue.adapters.embedded.sqlite_connection import connect
from legacy_queue.adapters.embedded.storage_file import NEEDS_WAL
from legacy_queue.ports.account import UnusableStorage

from .conftest import content, disk_full_after, opened

LARGE = b"." * 100_000
MIB = 1024 * 1024


def keys(account: EmbeddedAccount) -> list[str]:
    return [row.key for row in account.table("t").page([], "", 99).rows]


@pytest.fixture
def monday(account: EmbeddedAccount, file: StorageFile, tmp_path: Path) -> StorageFile:
    """A backup with a row and an artifact. The process went on working and stored more afterwards."""
    account.table("t").insert("p", "k", {"text": "value"})
    account.container.put("large", LARGE, "text/plain", None)
    back_up(file, tmp_path / "monday")
    account.table("t").insert("p", "later", {})
    account.container.put("later", b"," * 100_000, "text/plain", None)
    return StorageFile(tmp_path / "monday")


def test_a_server_that_starts_from_a_backup_has_its_rows_artifacts_and_key(
    monday: StorageFile, file: StorageFile
) -> None:
    assert {path.name for path in monday.folder.iterdir()} == {"artifacts", "storage.lock", "storage.sqlite"}
    for path in (monday.folder, *monday.folder.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert monday.signing_key() == file.signing_key()
    monday.lock()
    account = opened(monday)
    assert keys(account) == ["k"]
    assert content(account, "large") == LARGE
    assert account.container.read("later") is None
    assert len([*monday.artifacts.iterdir()]) == 1
    with pytest.raises(UnusableStorage, match="in use by process"):
        StorageFile(monday.folder).lock()
    account.close()


@pytest.mark.parametrize("name", ["with space", "a#b?c", "%41", "ü", "file:x?mode=memory", ":memory:"])
def test_the_folders_of_storage_and_backup_can_have_any_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    file = StorageFile(Path(name))
    file.prepare()
    back_up(file, Path(f"{name} of monday"))
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name} of monday"}
    assert StorageFile(Path(f"{name} of monday")).signing_key() == file.signing_key()


def test_a_backup_shows_its_progress_and_has_the_state_of_the_time_at_which_it_began(
    account: EmbeddedAccount, file: StorageFile, tmp_path: Path
) -> None:
    for number in range(100):
        account.table("t").insert("p", f"large-{number}", {"text": "." * 30_000})
    for name in ("one", "two"):
        account.container.put(name, LARGE, "text/plain", None)
    seen: list[tuple[int, int, str]] = []

    def show(done: int, total: int, what: str) -> None:
        seen.append((done, total, what))
        assert len(seen) < 100, "the copy must not start again for each change"
        account.table("t").insert("p", f"later-{len(seen)}", {})

    back_up(file, tmp_path / "copy", show=show)
    assert seen == sorted(seen, key=lambda shown: (shown[2] != "pages", shown[0]))
    assert seen[-3][:2] == (seen[0][1], seen[0][1]), "all pages are copied"
    assert seen[-2:] == [(0, 2, "artifacts"), (1, 2, "artifacts")]
    with closing(sqlite3.connect(tmp_path / "copy" / "storage.sqlite")) as copy:
        assert copy.execute("SELECT count(*) FROM rows WHERE key LIKE 'l%'").fetchone() == (100,)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_backup_never_replaces_anything(
    file: StorageFile, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    with pytest.raises(UnusableStorage, match="does not exist"):
        back_up(file, tmp_path / "copy")
    file.prepare()
    make(tmp_path / "copy")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnusableStorage, match=f"^{tmp_path / 'copy'} exists: expected the name of a new"):
        back_up(file, tmp_path / "copy")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("size", [0, MIB, 2 * MIB])
def test_a_backup_that_does_not_fit_on_the_disk_leaves_nothing(
    account: EmbeddedAccount, file: StorageFile, tmp_path: Path, size: int
) -> None:
    """No lock, no copy of the file and no artifact is left."""
    for number in range(40):
        account.table("t").insert("p", str(number), {"text": "." * 30_000})
    account.container.put("large", bytes(3 * MIB), "text/plain", None)
    account.close()
    with (
        disk_full_after(size),
        pytest.raises(UnusableStorage, match=f"could not be copied to {tmp_path / 'copy'}: "),
    ):
        back_up(file, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.processes
def test_a_server_does_not_start_from_an_unfinished_backup(
    account: EmbeddedAccount, file: StorageFile, tmp_path: Path
) -> None:
    account.container.put("large", LARGE, "text/plain", None)
    account.close()
    copy = StorageFile(tmp_path / "copy")
    states: list[bool] = []

    def show(*_: object) -> None:
        with pytest.raises(UnusableStorage, match=f"{copy.folder} is in use by process {os.getpid()}"):
            StorageFile(copy.folder).lock()
        left = StorageFile(tmp_path / f"left-{len(states)}")
        shutil.copytree(copy.folder, left.folder)
        states.append(left.is_missing and left.lock_path.name in left.lock())

    back_up(file, copy.folder, show=show)
    assert len(states) >= 2
    assert all(states)
    assert copy.lock()
    assert not copy.is_missing


def test_a_backup_made_while_the_storage_begins_a_new_wal_needs_no_wal(
    file: StorageFile, tmp_path: Path
) -> None:
    file.prepare()
    with closing(connect(file.path)) as upkeep:
        upkeep.execute("INSERT INTO meta VALUES (?, 1)", [NEEDS_WAL])
        back_up(file, tmp_path / "copy")
    StorageFile(tmp_path / "copy").prepare()


def test_a_backup_copied_over_a_killed_storage_is_refused_until_the_old_wal_is_removed(
    monday: StorageFile, account: EmbeddedAccount, file: StorageFile, tmp_path: Path
) -> None:
    with closing(connect(file.path)) as reader:  # so that no checkpoint empties the WAL before it is copied
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM rows").fetchall()
        account.table("t").insert("p", "latest", {})
        left = StorageFile(tmp_path / "left")
        shutil.copytree(file.folder, left.folder, ignore=shutil.ignore_patterns("monday"))
    assert left.wal.stat().st_size
    shutil.copytree(monday.folder, left.folder, dirs_exist_ok=True)
    with pytest.raises(UnusableStorage, match=f"{left.wal} does not belong to the backup .* remove it"):
        left.prepare()
    left.wal.unlink()
    again = opened(left)
    assert keys(again) == ["k"]
    assert content(again, "large") == LARGE
    again.close()


def test_a_server_can_start_from_a_backup_of_version_0_1_0(
    account: EmbeddedAccount, file: StorageFile, tmp_path: Path
) -> None:
    """In 0.1.0, a backup was a single file with a mark, which the command restore removed."""
    account.table("t").insert("p", "k", {})
    account.close()
    (tmp_path / "data").mkdir()
    shutil.copy(file.path, tmp_path / "data")
    with closing(sqlite3.connect(tmp_path / "data" / "storage.sqlite")) as old, old:
        old.execute("INSERT INTO meta VALUES ('backup', 1)")
    for _ in range(2):
        again = opened(StorageFile(tmp_path / "data"))
        assert keys(again) == ["k"]
        again.close()
