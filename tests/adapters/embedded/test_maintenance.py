"""The upkeep of embedded storage: expired rows, messages, blocks and files leave the disk."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.adapters.embedded.maintenance import LAST_TIME
from legacy_queue.domain.errors import ServiceUnavailable
from legacy_queue.ports.account import UnusableStorage
from legacy_queue.ports.blob import BlobAlreadyExists, WriteOptions
from legacy_queue.ports.table import Change
from tests.domain.sample_tasks import DAY, HOUR, MINUTE, MS, SECOND
from tests.memory_server import FakeClock
from tests.system.processes import wait_until

from .conftest import content, disk_full_after, opened

WEEK = 7 * DAY
LARGE = b"." * 70_000
MIB = 1024 * 1024


def stored(file: StorageFile) -> list[bytes]:
    contents = []
    for path in file.artifacts.glob("*"):
        with suppress(FileNotFoundError):  # the file was removed meanwhile
            contents.append(path.read_bytes())
    return contents


def size(file: StorageFile) -> int:
    return sum(path.stat().st_size for path in file.path.parent.glob("storage.sqlite*"))


def test_the_space_of_removed_rows_and_expired_messages_is_freed(
    account: EmbeddedAccount, file: StorageFile, clock: FakeClock
) -> None:
    table, queue = account.table("t"), account.queue("q")
    queue.create({})
    empty = size(file)
    for partition in range(50):
        table.batch(str(partition), [Change("insert", str(key), {"text": "x" * 1000}) for key in range(100)])
        queue.put("x" * 1000, HOUR, 2 * HOUR)
    assert size(file) > empty + 5_000_000
    for partition in range(50):
        table.batch(str(partition), [Change("delete", str(key), {}) for key in range(100)])
    clock.advance(2 * HOUR)
    # the rest is space for the next rows, and a WAL that is too short for a checkpoint
    wait_until(lambda: size(file) < empty + 3_000_000)
    assert queue.messages() == []


def test_only_the_file_of_a_deleted_or_replaced_blob_is_removed_after_ten_minutes(
    account: EmbeddedAccount, file: StorageFile, clock: FakeClock
) -> None:
    container = account.container
    for name in ("deleted", "replaced", "whole"):
        container.put(name, LARGE, "text/plain", None)
    with pytest.raises(BlobAlreadyExists):  # now a file belongs to no block, like after a crash
        container.put("whole", LARGE, "text/plain", None, WriteOptions(is_new=True))
    container.put_block("listed", "one", LARGE)
    container.put_block_list("listed", [("Latest", "one"), ("Latest", "one")], "text/plain", None)
    read = [found for name in ("deleted", "replaced") if (found := container.read(name))]
    container.delete("deleted")
    container.put("replaced", b"small", "text/plain", None)
    assert [b"".join(parts) for _, parts in read] == [LARGE] * 2, (
        "a blob that is being read can be read to its end"
    )
    assert stored(file) == [LARGE] * 5
    clock.advance(10 * MINUTE)
    wait_until(lambda: len(stored(file)) == 2)
    container.put("later", LARGE, "text/plain", None)
    container.delete("later")
    clock.advance(WEEK + HOUR)
    wait_until(lambda: len(stored(file)) <= 2)
    assert (content(account, "listed"), content(account, "whole")) == (LARGE * 2, LARGE)


def test_the_file_of_an_unused_block_is_removed_after_a_week(
    account: EmbeddedAccount, file: StorageFile, clock: FakeClock
) -> None:
    account.container.put_block("name", "one", LARGE)
    clock.advance(WEEK + MS)
    assert account.container.block_list("name") is None

    def is_removed() -> bool:
        clock.advance(10 * MINUTE)
        return not stored(file)

    wait_until(is_removed)


def test_another_program_that_reads_for_a_long_time_does_not_delay_writes(
    account: EmbeddedAccount, file: StorageFile
) -> None:
    """The WAL grows meanwhile, but no write waits for a checkpoint, and afterwards the WAL is short again."""
    table = account.table("t")
    table.put("p", "k", {"text": "x" * 1000})
    with closing(sqlite3.connect(file.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rows").fetchall()
        for number in range(3000):
            table.put("p", str(number), {"text": "x" * 1000})
        assert file.wal.stat().st_size > 2 * MIB
    wait_until(lambda: file.wal.stat().st_size < MIB)


def test_an_artifact_that_does_not_fit_on_the_disk_leaves_no_file(
    account: EmbeddedAccount, file: StorageFile
) -> None:
    with disk_full_after(10 * MIB), pytest.raises(ServiceUnavailable):
        account.container.put("name", bytes(20 * MIB), "text/plain", None)
    assert stored(file) == []


def test_while_a_full_disk_prevents_checkpoints_changes_are_refused_and_reads_work(
    account: EmbeddedAccount, file: StorageFile
) -> None:
    """The WAL would still accept changes.

    But it could not be synced, so a power failure would lose them all.
    """
    table = account.table("t")
    for number in range(4 * 1024):
        table.put("p", f"{number:05}", {"text": "x" * 1000})
    wait_until(lambda: file.path.stat().st_size > 4 * MIB and file.wal.stat().st_size < MIB)

    def is_ready() -> bool:
        with suppress(ServiceUnavailable):
            account.check()
            return True
        return False

    with disk_full_after(3 * MIB), capture_logs() as logged:
        table.put("p", "04000", {"text": "acknowledged"})  # near the end of the file
        wait_until(lambda: "storage-upkeep-failed" in [line["event"] for line in logged])
        assert not is_ready()
        with pytest.raises(ServiceUnavailable):
            table.put("p", "00000", {})
        assert (row := table.get("p", "04000"))
        assert row.values == {"text": "acknowledged"}
    wait_until(is_ready)
    table.put("p", "00000", {})


class _Wal(type(Path())):  # type: ignore[misc]
    """The path of a WAL.

    When the WAL is found to be shorter than before, it first calls ``meanwhile``, once.
    """

    meanwhile: Callable[[], object] | None = None
    length = 0

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        length = super().stat(follow_symlinks=follow_symlinks).st_size
        if self.meanwhile and length < self.length:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        self.length = length
        found: os.stat_result = super().stat(follow_symlinks=follow_symlinks)
        return found


def test_a_change_made_while_a_new_wal_begins_reaches_the_disk_too(
    file: StorageFile, clock: FakeClock
) -> None:
    file.wal = wal = _Wal(file.wal)

    def is_on_the_disk(key: str) -> bool:
        alone = sqlite3.connect(f"file:{file.path}?immutable=1", uri=True)
        with closing(alone), suppress(sqlite3.DatabaseError):  # the file may be written to at this moment
            return alone.execute("SELECT 1 FROM rows WHERE key = ?", [key]).fetchone() is not None
        return False

    with closing(opened(file, clock)) as account:
        table = account.table("t")
        table.put("p", "first", {})
        wait_until(lambda: is_on_the_disk("first"))
        wal.meanwhile = lambda: table.put("p", "meanwhile", {})
        table.put("p", "second", {})
        wait_until(lambda: is_on_the_disk("meanwhile"))


def test_if_artifacts_cannot_be_written_the_storage_is_not_ready_and_the_log_says_why(
    account: EmbeddedAccount, file: StorageFile
) -> None:
    file.artifacts.rmdir()
    file.artifacts.touch()
    for act in (account.check, lambda: account.container.put("name", LARGE, "text/plain", None)):
        with capture_logs() as logs, pytest.raises(ServiceUnavailable, match="artifacts cannot be written"):
            act()
        assert [(line["event"], line["error"]) for line in logs] == [("storage-failed", "ENOTDIR")]
    file.artifacts.unlink()
    account.check()
    assert stored(file) == []


def test_if_the_clock_was_set_back_the_log_says_so_once_for_each_start(
    account: EmbeddedAccount, file: StorageFile, clock: FakeClock
) -> None:
    with capture_logs() as logged:
        account.check()
        wait_until(lambda: LAST_TIME.encode() in file.wal.read_bytes())
        clock.advance(-HOUR)
        wait_until(lambda: logged)
        for number in range(3):
            clock.advance(SECOND)
            account.table("t").put("p", str(number), {})
        account.close()
    [behind] = [line["seconds"] for line in logged if line["event"] == "storage-is-ahead"]
    assert 3600 - 3 <= behind <= 3600
    clock.advance(-HOUR)
    with capture_logs() as logged:
        again = opened(file, clock)
        again.check()
        wait_until(lambda: logged)
        again.close()
    assert [line["event"] for line in logged] == ["storage-is-ahead"]


def test_if_the_last_checkpoint_fails_stopping_the_server_is_an_error(file: StorageFile) -> None:
    file.prepare()
    with disk_full_after(0), pytest.raises(UnusableStorage, match="its disk is full or fails"):
        file.finish()
