"""Processes on one file are killed under load. They lose nothing that they acknowledged."""

import multiprocessing
from contextlib import suppress
from datetime import timedelta
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from legacy_queue.adapters.clock import SystemClock
from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile

from .conftest import content

pytestmark = pytest.mark.processes

KILLS = 20
# processes are forked from a server that has already imported this module
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload([__name__])


def connected(folder: Path) -> EmbeddedAccount:
    return EmbeddedAccount(StorageFile(folder), SystemClock(), "http://127.0.0.1:1", "q")


def write(folder: Path, number: int, acknowledged: Connection) -> None:
    """Send each key when the storage has acknowledged everything about it."""
    account = connected(folder)
    table, queue = account.table("t"), account.queue("q")
    for at in count():
        key = f"{number}-{at}"
        etag = table.insert("p", key, {"state": "pending", "text": "x" * 500})
        lease = queue.put(key, timedelta(hours=1))
        table.merge("p", key, {"state": "running"}, etag)
        lease = queue.update(lease, key + "+", timedelta(hours=1))
        if at % 3 == 0:
            queue.delete(lease)
        if at % 50 == 0:
            account.container.put(key, key.encode() * 10_000, "text/plain", None)
        acknowledged.send(key)


def start(folder: Path, number: int) -> tuple[ForkServerProcess, Connection]:
    """Start a process that writes. Returns it and the connection on which it sends its keys."""
    here, there = FORKING.Pipe(duplex=False)
    process = FORKING.Process(target=write, args=(folder, number, there))
    process.start()
    there.close()
    return process, here


def rest(process: ForkServerProcess, sent: Connection) -> list[str]:
    """What the process sent before it ended. Messages this short are sent completely or not at all."""
    received = []
    with suppress(EOFError), sent:
        while True:
            received.append(sent.recv())
    process.join()
    process.close()
    return received


def prepared(folder: Path) -> EmbeddedAccount:
    StorageFile(folder).prepare()
    account = connected(folder)
    account.queue("q").create({})
    return account


def test_twenty_kills_of_two_processes_under_load_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    account = prepared(tmp_path)
    acknowledged: list[str] = []
    for number in range(0, KILLS, 2):
        writers = [start(tmp_path, number + each) for each in range(2)]
        for _, sent in writers:
            acknowledged += [sent.recv() for _ in range(20)]
        for process, sent in writers:
            process.kill()
            acknowledged += rest(process, sent)
    account.close()
    account = prepared(tmp_path)  # this also checks the file
    table, messages = account.table("t"), {message.text for message in account.queue("q").messages()}
    for key in acknowledged:
        assert (row := table.get("p", key))
        assert row.values["state"] == "running", key
        at = int(key.partition("-")[2])
        assert len(messages) == 5000 or (f"{key}+" in messages) == (at % 3 > 0), key
        if at % 50 == 0:
            assert content(account, key) == key.encode() * 10_000
    assert len(acknowledged) >= KILLS * 20
    account.close()
