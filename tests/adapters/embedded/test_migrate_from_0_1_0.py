"""The step that migrates a file of 0.1.0, with rows that ``tests/stored/0.1.0`` does not have.

``tests/system/test_stored_files.py`` shows what a server then does with such a file.
"""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.domain.ids import slugid
from legacy_queue.stores import ActiveTask, Group, NamedTask, Storage
from tests.adapters.embedded.conftest import opened
from tests.memory_server import FakeClock

STORED = Path(__file__).parents[2] / "stored" / "0.1.0"
TASKS = json.loads((STORED / "known.json").read_text())["tasks"]
SINCE = datetime(2040, 1, 1, 0, 0, 10, 999_000, tzinfo=UTC)
EXPIRES = datetime(2041, 1, 2, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> StorageFile:
    shutil.copyfile(STORED / "data" / "storage.sqlite", tmp_path / "storage.sqlite")
    return StorageFile(tmp_path)


@pytest.fixture
def old(file: StorageFile) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file.path, isolation_level=None)) as connection:
        yield connection


# Kills its process after this many tens of SQLite steps.
KILLED = """
import os, signal, sys
from itertools import count
from pathlib import Path
from legacy_queue.adapters.embedded.sqlite_connection import connect, create_tables
connection = connect(Path(sys.argv[1]))
steps = count(1)
connection.set_progress_handler(
    lambda: next(steps) == int(sys.argv[2]) and os.kill(os.getpid(), signal.SIGKILL), 10
)
create_tables(connection)
"""


def dump(file: StorageFile) -> list[Any]:
    with closing(sqlite3.connect(file.path)) as connection:
        return [*connection.iterdump(), connection.execute("PRAGMA user_version").fetchone()]


def migrated(file: StorageFile) -> Storage:
    account: EmbeddedAccount = opened(file)
    return Storage(account, "lq", FakeClock())


def insert_timer(old: sqlite3.Connection, task_id: str, task_group_id: str = "") -> None:
    milliseconds = int(SINCE.timestamp() * 1000)
    content = {"due": "d1", "since": f"d{milliseconds}", "taskGroupId": f"s{task_group_id}"}
    values = ("lqtimers", f"{old.total_changes:010}-a", f"{task_id}.a.1", json.dumps(content))
    old.execute("INSERT INTO rows VALUES (?, ?, ?, NULL, NULL, 'e', ?)", values)


def test_timers_whose_task_has_no_mark_become_names_in_the_rows_of_ended_processes(
    file: StorageFile, old: sqlite3.Connection
) -> None:
    refused = NamedTask(TASKS["owed"], SINCE, slugid())  # from another createTask call for this task
    missing = [NamedTask(slugid(), SINCE, slugid() if number % 2 else "") for number in range(1200)]
    for name in (refused, *missing):
        insert_timer(old, name.task_id, name.task_group_id)
    old.close()
    rows = migrated(file).processes.others()
    assert [len(row.names) for row in rows] == [500, 500, 201]
    assert all(row.has_ended for row in rows)
    names = {name.task_id: name for row in rows for name in row.names}
    assert names == {name.task_id: name for name in (refused, *missing)}


def test_no_timers_and_leases_are_left(file: StorageFile, old: sqlite3.Connection) -> None:
    assert old.execute("SELECT count(*) FROM rows WHERE name IN ('lqtimers', 'lqleases')").fetchone()[0] > 9
    migrated(file)
    assert {name for (name,) in old.execute("SELECT DISTINCT name FROM rows")} == {
        f"lq{kind}" for kind in ("artifacts", "dependencies", "groups", "tasks", "workers")
    }


def test_each_task_becomes_a_member_of_its_group_and_is_active_until_it_is_resolved(
    file: StorageFile, old: sqlite3.Connection
) -> None:
    old.close()
    groups = migrated(file).groups
    for name, members, active in (
        ("completed", ["completed"], []),
        ("running", ["running", "waiting", "blocked"], ["running", "waiting", "blocked"]),
        ("sealed", ["sealed", "member"], ["sealed", "member"]),
    ):
        group = groups.load(TASKS[name])
        assert group == Group(TASKS[name], "-", EXPIRES, group.sealed if group else None)
        assert bool(group.sealed) == (name == "sealed")
        assert groups.members(TASKS[name], "", 9) == sorted(TASKS[each] for each in members)
        found = [row.task_id for row in groups.active(TASKS[name], "", 9)]
        assert found == sorted(TASKS[each] for each in active)
    everywhere = {row.task_id for row in groups.all_active("", 100)[0]}
    assert everywhere == {TASKS[name] for name in ("running", "waiting", "blocked", "sealed", "member")} | {
        TASKS[name] for name in ("rerun", "owed")
    }


def test_a_group_expires_no_earlier_than_the_task_whose_id_it_has(
    file: StorageFile, old: sqlite3.Connection
) -> None:
    shorter = EXPIRES - timedelta(days=30)
    expires = int(shorter.timestamp() * 1000)
    old.execute(
        "UPDATE rows SET expires = ?, content = json_set(content, '$.expires', ?) "
        "WHERE partition = ? AND key IN ('group', 'open')",
        [expires, f"d{expires}", TASKS["running"]],
    )
    old.close()
    groups = migrated(file).groups
    group = groups.load(TASKS["running"])
    assert group
    assert group.expires == EXPIRES
    sealed = groups.seal(TASKS["running"], SINCE)
    assert sealed
    assert sealed.sealed == SINCE


@pytest.mark.parametrize("definition", [{"text": "x" * 100_000}, {"text": "ü\U0001f600"}])
def test_a_large_definition_is_read_completely(
    file: StorageFile, old: sqlite3.Connection, definition: dict[str, Any]
) -> None:
    task_id = TASKS["failed"]
    whole = {"payload": definition, "schedulerId": "late", "taskGroupId": task_id}
    content = json.dumps(whole, ensure_ascii=False).encode().decode("latin-1")
    chunks = [content[start : start + 65536] for start in range(0, len(content), 65536)]
    for number, chunk in enumerate(chunks):
        old.execute(
            "UPDATE rows SET content = json_set(content, ?, ?) WHERE partition = ? AND key = 'task'",
            [f"$.definition{number}", f"b{chunk}", task_id],
        )
    old.close()
    group = migrated(file).groups.load(task_id)
    assert group
    assert group.scheduler_id == "late"


def test_a_corrupt_task_does_not_stop_the_migration_of_the_other_rows(
    file: StorageFile, old: sqlite3.Connection
) -> None:
    old.execute(
        "UPDATE rows SET content = json_set(content, '$.definition0', 'b{') WHERE partition = ?",
        [TASKS["failed"]],
    )
    old.close()
    groups = migrated(file).groups
    assert groups.load(TASKS["failed"]) is None
    assert groups.members(TASKS["completed"], "", 9) == [TASKS["completed"]]
    assert isinstance(groups.all_active("", 1)[0][0], ActiveTask)


@pytest.mark.processes
def test_a_kill_during_the_migration_leaves_the_old_file_unchanged(file: StorageFile) -> None:
    before = dump(file)
    for steps in (100, 500, 900):
        words = [sys.executable, "-c", KILLED, str(file.path), str(steps)]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
        assert dump(file) == before
    assert migrated(file).groups.load(TASKS["completed"])
