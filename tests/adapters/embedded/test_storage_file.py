"""The file of embedded storage: which files a start accepts, and the errors for all others."""

import os
import secrets
import shutil
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile, back_up
from legacy_queue.adapters.embedded.maintenance import LAST_TIME, remove_expired
from legacy_queue.adapters.embedded.schema import FIRST_VERSION, STEPS
from legacy_queue.adapters.embedded.sqlite_connection import VERSION, connect, create_tables, version_of
from legacy_queue.adapters.embedded.storage_file import NEEDS_WAL
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.account import UnusableStorage
from tests.other_user import give_away
from tests.system.processes import wait_until

from .conftest import content, opened

LARGE = b"." * 100_000


def refusal(file: StorageFile) -> str:
    with pytest.raises(UnusableStorage) as refused:
        file.prepare()
    return str(refused.value)


def dump(file: StorageFile) -> list[object]:
    with closing(sqlite3.connect(file.path)) as connection:
        return [*connection.iterdump(), connection.execute("PRAGMA user_version").fetchone()]


def test_a_new_file_and_the_files_next_to_it_are_private_and_its_random_key_stays(
    account: EmbeddedAccount, file: StorageFile, tmp_path: Path
) -> None:
    account.container.put("name", LARGE, "text/plain", None)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert len(modes) == 5
    assert all(not mode & 0o077 for mode in modes.values()), modes
    account.close()
    key = file.signing_key()
    file.prepare()
    assert file.signing_key() == key
    file.path.unlink()
    file.prepare()
    assert file.signing_key() != key


def test_all_tables_and_the_key_are_created_in_one_transaction() -> None:
    statements: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.set_trace_callback(lambda each: statements.append(each.strip()))
        create_tables(memory)
    _, begin, *others, commit = statements  # the first statement reads the version
    assert (begin, commit) == ("BEGIN IMMEDIATE;", "COMMIT")
    assert any("signing key" in each for each in others)
    assert not any(each.startswith(("BEGIN", "COMMIT")) for each in others)


@pytest.mark.parametrize("state", ["delete", "wal", "in use"])
def test_a_file_of_another_program_is_refused_and_not_changed(file: StorageFile, state: str) -> None:
    with closing(sqlite3.connect(file.path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {'delete' if state == 'delete' else 'wal'}")
        connection.execute("CREATE TABLE theirs (x)")
        if state != "in use":
            connection.close()
        file.path.chmod(0o644)
        paths = [path for path in file.path.parent.iterdir() if not path.name.endswith("-shm")]
        before = [path.read_bytes() for path in paths]
        assert "another program" in refusal(file)
        assert [path.read_bytes() for path in paths] == before
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (VERSION + 1, f"newer version of legacy-queue: its tables have version {VERSION + 1}"),
        (FIRST_VERSION - 1, "before the first release"),
    ],
)
def test_a_file_of_an_unknown_version_is_refused(file: StorageFile, version: int, said: str) -> None:
    file.prepare()
    with closing(sqlite3.connect(file.path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    assert said in refusal(file)


NEXT_STEPS = ("ALTER TABLE queues ADD COLUMN one;", "ALTER TABLE queues ADD COLUMN two;")


def test_tables_of_an_earlier_version_are_migrated_step_by_step_or_not_at_all(
    file: StorageFile,
) -> None:
    file.prepare()
    before = dump(file)
    with closing(connect(file.path)) as connection, pytest.raises(sqlite3.Error):
        create_tables(connection, (*STEPS, *NEXT_STEPS, "DROP TABLE missing;"))
    assert dump(file) == before
    with closing(connect(file.path)) as connection:
        create_tables(connection, (*STEPS, *NEXT_STEPS[:1]))
        connection.execute("INSERT INTO queues VALUES ('q', '{}', 1)")
        create_tables(connection, (*STEPS, *NEXT_STEPS))
        assert connection.execute("SELECT * FROM queues").fetchall() == [("q", "{}", 1, None)]
        assert version_of(connection) == VERSION + 2


def test_a_process_refuses_to_write_to_a_file_that_a_newer_server_has_migrated(
    account: EmbeddedAccount, file: StorageFile
) -> None:
    account.check()
    with closing(connect(file.path, busy_timeout=5000)) as newer:  # the upkeep writes at the same time
        create_tables(newer, (*STEPS, *NEXT_STEPS))

    def is_refused() -> bool:
        try:
            account.table("t").insert("p", secrets.token_hex(8), {})
        except ServiceUnavailable as error:
            return "newer" in str(error)
        return False

    wait_until(is_refused)


def test_a_file_that_is_damaged_or_not_sqlites_is_refused(file: StorageFile) -> None:
    file.path.write_bytes(b"something else, and longer than a header of SQLite" * 100)
    assert "not a SQLite file" in refusal(file)
    file.path.unlink()
    account = opened(file)
    for number in range(200):
        account.table("t").insert("p", f"k{number}", {"text": "x" * 500})
    account.close()
    content = bytearray(file.path.read_bytes())
    content[2048 * 40 : 2048 * 60] = b"\xa5" * (2048 * 20)
    for damaged in (content, content[: 2048 * 30]):
        file.path.write_bytes(damaged)
        assert "damaged" in refusal(file)


def test_reading_the_key_of_a_missing_file_is_an_error_and_does_not_create_it(file: StorageFile) -> None:
    with pytest.raises(UnusableStorage, match="start `legacy-queue serve`"):
        file.signing_key()
    assert file.is_missing


@pytest.mark.parametrize("name", ["storage.sqlite", "storage.sqlite-wal", "storage.sqlite-shm"])
def test_if_a_file_is_removed_while_the_server_runs_it_notices_and_writes_nothing(
    account: EmbeddedAccount, file: StorageFile, name: str
) -> None:
    """Otherwise a process that starts later would not share the WAL and the memory of the others."""
    account.check()  # keeps a connection open, because closing the last one removes WAL and shared memory
    table, other_process = account.table("t"), opened(file)
    file.path.with_name(name).unlink()
    for act in (account.check, lambda: table.insert("p", "k", {}), other_process.check):
        with pytest.raises(ServiceUnavailable, match="removed"):
            act()
    assert not file.path.with_name(name).exists()
    other_process.close()


def test_a_stopping_server_does_not_write_to_a_file_that_was_removed_or_replaced(
    file: StorageFile, tmp_path: Path
) -> None:
    file.prepare()
    shutil.copy(file.path, tmp_path / "copy")
    file.path.unlink()
    with pytest.raises(UnusableStorage, match="removed"):
        file.finish()
    assert file.is_missing
    (tmp_path / "copy").replace(file.path)
    content = file.path.read_bytes()
    with pytest.raises(UnusableStorage, match="replaced"):
        file.finish()
    assert file.path.read_bytes() == content


# --- a file whose WAL is missing or damaged


@pytest.fixture
def killed(account: EmbeddedAccount, file: StorageFile, tmp_path: Path) -> StorageFile:
    """The files of a server that was killed after it had acknowledged a row."""
    account.check()
    with closing(connect(file.path)) as reader:
        marks = "SELECT name FROM meta WHERE name IN (?, ?)"
        # the upkeep makes this write last in its first round
        wait_until(lambda: reader.execute(marks, [LAST_TIME, NEEDS_WAL]).fetchall() == [(LAST_TIME,)])
        assert NEEDS_WAL.encode() in file.path.read_bytes()
        reader.execute("BEGIN")  # so that no checkpoint empties the WAL, however long copying takes
        reader.execute("SELECT * FROM rows").fetchall()
        account.table("t").insert("p", "k", {"text": "acknowledged"})
        (tmp_path / "killed").mkdir()
        for path in tmp_path.glob("storage.sqlite*"):
            shutil.copy(path, tmp_path / "killed")
    return StorageFile(tmp_path / "killed")


def has_row(file: StorageFile) -> bool:
    account = opened(file)
    row = account.table("t").get("p", "k")
    account.close()
    return row is not None


def test_a_connection_that_only_reads_does_not_write(file: StorageFile) -> None:
    """So it works on a full disk, too."""
    file.prepare()
    with closing(connect(file.path)) as connection:
        connection.execute("SELECT * FROM rows").fetchall()
        assert file.wal.stat().st_size == 0


def test_a_file_whose_wal_was_removed_is_refused(killed: StorageFile) -> None:
    killed.wal.unlink()
    assert "storage.sqlite-wal was removed with the last changes in it" in refusal(killed)
    for use in (killed.require, killed.signing_key, killed.finish):
        with pytest.raises(UnusableStorage, match="removed"):
            use()
    assert not killed.wal.exists()
    killed.wal.touch(0o600)
    assert not has_row(killed), "an empty WAL accepts the loss, as the error says"


@pytest.mark.parametrize("cut", [0, 1])
def test_a_server_that_was_killed_continues_with_its_wal(killed: StorageFile, cut: int) -> None:
    """A kill can cut off the last frame of the WAL, which was then not acknowledged."""
    os.truncate(killed.wal, killed.wal.stat().st_size - cut)
    with capture_logs() as logs:
        assert has_row(killed) == (not cut)
    assert logs == []


@pytest.mark.parametrize("at", [17, 100, -1], ids=["head", "first", "last"])
def test_the_log_says_how_many_changes_a_damaged_wal_has_lost(killed: StorageFile, at: int) -> None:
    """SQLite drops the first frame that it cannot read and everything behind it."""
    wal = bytearray(killed.wal.read_bytes())
    page_size = int.from_bytes(killed.path.read_bytes()[16:18])
    frames = range(32, len(wal), 24 + page_size)
    changes = sum(any(wal[frame + 4 : frame + 8]) for frame in frames)
    wal[at] ^= 1
    killed.wal.write_bytes(wal)
    with capture_logs() as logs:
        assert not has_row(killed)
    [line] = logs
    assert line["event"] == "storage-wal-damaged"
    assert line["lost_changes"] == (1 if at == -1 else changes)


def test_a_file_whose_wal_was_written_back_by_another_program_is_accepted(killed: StorageFile) -> None:
    dump(killed)
    assert not killed.wal.exists()
    assert has_row(killed)


# --- which files and users are trusted


def test_two_directories_that_link_to_one_file_are_refused(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("disk", "one", "two")]
    for folder in folders:
        folder.mkdir()
    StorageFile(folders[0]).prepare()
    for folder in folders[1:]:
        (folder / "storage.sqlite").symlink_to(folders[0] / "storage.sqlite")
    StorageFile(folders[1]).lock()
    with pytest.raises(UnusableStorage, match=f"in use by process {os.getpid()}"):
        StorageFile(folders[2]).lock()
    (folders[2] / "storage.sqlite").unlink()
    os.link(folders[0] / "storage.sqlite", folders[2] / "storage.sqlite")
    assert "hard link" in refusal(StorageFile(folders[2]))


OPENED = ("storage.sqlite", "storage.sqlite-wal", "storage.sqlite-journal")
LOCKED = ("artifacts", "storage.sqlite-wal", "storage.lock")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("use", "names"),
    [(StorageFile.prepare, OPENED), (StorageFile.require, OPENED), (StorageFile.lock, LOCKED)],
    ids=["prepare", "require", "lock"],
)
def test_files_of_another_user_are_refused(
    tmp_path: Path, use: Callable[[StorageFile], object], names: Sequence[str]
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        file = StorageFile(tmp_path / name)
        if use != StorageFile.lock:
            file.prepare()
        planted = file.path.with_name(name)
        planted.mkdir() if name == "artifacts" else planted.touch(0o600)
        give_away(planted)
        with pytest.raises(UnusableStorage, match=f"{planted} is not used: it belongs to another user"):
            use(file)


@pytest.mark.processes
def test_a_link_of_another_user_is_refused_and_its_target_is_not_changed(tmp_path: Path) -> None:
    data, victim = (tmp_path / name for name in ("data", "victim"))
    for folder in (data, victim):
        folder.mkdir(0o755)
    (victim / "precious").write_text("precious")
    (data / "storage.sqlite").symlink_to(victim / "precious")
    give_away(data / "storage.sqlite")
    file = StorageFile(data)
    with pytest.raises(UnusableStorage, match="it is a link of another user"):
        file.lock()
    assert [(path.name, path.read_text()) for path in victim.iterdir()] == [("precious", "precious")]
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["../secret.txt", "A" * 32, "a" * 31, b"a" * 32])
def test_a_storage_with_an_artifact_whose_file_name_is_not_32_hex_digits_is_refused(
    account: EmbeddedAccount, file: StorageFile, tmp_path: Path, name: object
) -> None:
    account.container.put("large", LARGE, "text/plain", None)
    (tmp_path / "secret.txt").write_text("secret")
    with closing(sqlite3.connect(file.path)) as planted, planted:
        planted.execute("UPDATE contents SET file = ?", (name,))
    with pytest.raises(ServiceUnavailable):
        content(account, "large")
    account.close()
    assert "do not consist of 32 hex digits" in refusal(file)
    now = datetime.now(UTC)
    with closing(connect(file.path)) as removing:
        removing.execute("UPDATE contents SET until = 0")
        remove_expired(removing, now, now, file.artifacts)
    assert (tmp_path / "secret.txt").read_text() == "secret"


def test_a_symbolic_link_in_the_folder_of_artifacts_is_not_followed(
    account: EmbeddedAccount, file: StorageFile
) -> None:
    account.container.put("large", LARGE, "text/plain", None)
    (path,) = file.artifacts.iterdir()
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(ServiceUnavailable, match="cannot be read"):
        content(account, "large")
    with pytest.raises(UnusableStorage, match="symbolic link"):
        back_up(file, file.folder / "monday")
