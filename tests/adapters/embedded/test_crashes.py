"""Processes on one file: killed under load they lose nothing that they acknowledged, and they share it."""

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from legacy_queue.adapters.clock import SystemClock
from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile

ROOT = Path(__file__).parents[3]
KILLS = 20
OPENING = """
import json, sys
from datetime import timedelta
from pathlib import Path
from legacy_queue.adapters.clock import SystemClock
from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.ports import Changed

account = EmbeddedAccount(StorageFile(Path(sys.argv[1])), SystemClock(), "http://127.0.0.1:1", "q")
table, queue, number = account.table("t"), account.queue("q"), int(sys.argv[2])
"""
# each line is printed after the storage has acknowledged it
WRITING = """
for count in range(10**9):
    key = f"{number}-{count}"
    etag = table.insert("p", key, {"state": "pending", "text": "x" * 500})
    lease = queue.put(key, timedelta(hours=1))
    table.merge("p", key, {"state": "running"}, etag)
    lease = queue.update(lease, key + "+", timedelta(hours=1))
    if count % 3 == 0:
        queue.delete(lease)
    if count % 50 == 0:
        account.container.put(key, key.encode() * 10_000, "text/plain", None)
    print(key, flush=True)
"""
COUNTING = """
for _ in range(300):
    while True:
        row = table.get("p", "counter")
        try:
            table.merge("p", "counter", {"count": row.values["count"] + 1}, row.etag)
            break
        except Changed:
            pass
received = []
while messages := queue.receive(32, timedelta(hours=1)):
    received += [message.text for message in messages]
print(json.dumps(received))
"""


def start(code: str, folder: Path, numbers: Sequence[int]) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", OPENING + code, str(folder), str(number)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number in numbers
    ]


def opened(folder: Path) -> EmbeddedAccount:
    file = StorageFile(folder)
    file.prepare()
    account = EmbeddedAccount(file, SystemClock(), "http://127.0.0.1:1", "q")
    account.queue("q").create({})
    return account


@pytest.mark.parametrize("processes", [1, 2])
def test_twenty_kills_under_load_lose_nothing_acknowledged(tmp_path: Path, processes: int) -> None:
    account = opened(tmp_path)
    acknowledged: list[str] = []
    for number in range(0, KILLS, processes):
        writers = start(WRITING, tmp_path, range(number, number + processes))
        for writer in writers:
            assert writer.stdout
            acknowledged += [writer.stdout.readline().strip() for _ in range(20)]
        for writer in writers:
            writer.kill()
            acknowledged += writer.communicate()[0].split("\n")[:-1]  # a cut line was not printed whole
    account.close()
    account = opened(tmp_path)  # which checks the file
    table, messages = account.table("t"), {message.text for message in account.queue("q").messages()}
    for key in acknowledged:
        row = table.get("p", key)
        assert row
        assert row.values["state"] == "running", key
        count = int(key.partition("-")[2])
        assert len(messages) == 5000 or (f"{key}+" in messages) == (count % 3 > 0), key
        if count % 50 == 0:
            blob = account.container.read(key)
            assert blob
            assert b"".join(blob[1]) == key.encode() * 10_000
    assert len(acknowledged) >= KILLS * 20
    account.close()


def test_four_processes_lose_no_increment_and_receive_each_message_once(tmp_path: Path) -> None:
    account = opened(tmp_path)
    account.table("t").insert("p", "counter", {"count": 0})
    texts = [str(number) for number in range(800)]
    for text in texts:
        account.queue("q").put(text, timedelta(0))
    counters = start(COUNTING, tmp_path, range(4))
    received = [text for counter in counters for text in json.loads(counter.communicate()[0])]
    row = account.table("t").get("p", "counter")
    assert row
    assert row.values["count"] == 1200
    assert sorted(received) == sorted(texts)
    account.close()
