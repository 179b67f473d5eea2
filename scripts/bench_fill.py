"""Fills the file of the embedded storage for scripts/bench, while no server has it open.

It knows no store: a task is run through a server, and what it left is inserted again under other taskIds.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from legacy_queue.domain.ids import slugid


def fill_tasks(data: Path, pilot: str, count: int) -> list[str]:
    """Copy the rows that have the pilot's taskId in their key so often; returns the taskIds."""
    task_ids = [slugid() for _ in range(count)]
    with closing(sqlite3.connect(data / "storage.sqlite")) as db, db:
        found = db.execute("SELECT * FROM rows WHERE instr(partition || ' ' || key, ?)", (pilot,)).fetchall()
        copies = (_copied(row, pilot, task_id) for task_id in task_ids for row in found)
        db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, ?)", copies)
    return task_ids


def fill_messages(data: Path, count: int) -> None:
    """Copy the message that is visible first so often: that of the pending task."""
    with closing(sqlite3.connect(data / "storage.sqlite")) as db, db:
        _, *values = db.execute("SELECT * FROM messages ORDER BY visible").fetchone()
        copies = ((slugid(), *values) for _ in range(count))
        db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", copies)


def _copied(row: tuple[Any, ...], old: str, new: str) -> list[Any]:
    return [value.replace(old, new) if isinstance(value, str) else value for value in row]
