"""Processes on one file: killed under load they lose nothing that they acknowledged, and they share it."""

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.adapters.clock import SystemClock
from legacy_queue.adapters.embedded import EmbeddedAccount, StorageFile
from legacy_queue.ports import Changed

from .conftest import content

pytestmark = pytest.mark.processes

KILLS = 20
# each process is forked from one that has imported this module
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload([__name__])


def connected(folder: Path) -> EmbeddedAccount:
    return EmbeddedAccount(StorageFile(folder), SystemClock(), "http://127.0.0.1:1", "q")


def write(folder: Path, number: int, acknowledged: Connection) -> None:
    """Send each key after the storage has acknowledged all that is about it."""
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


def increment_and_receive(folder: Path, _: int, received: Connection) -> None:
    account = connected(folder)
    table, queue = account.table("t"), account.queue("q")
    for _ in range(300):
        while True:
            row: Any = table.get("p", "counter")
            counted = row.values["count"]
            with suppress(Changed):
                table.merge("p", "counter", {"count": counted + 1}, row.etag)
                break
    while messages := queue.receive(32, timedelta(hours=1)):
        for message in messages:
            received.send(message.text)


def start(
    target: Callable[[Path, int, Connection], None], folder: Path, numbers: Sequence[int]
) -> list[tuple[ForkServerProcess, Connection]]:
    """The processes, and what each sends."""
    started = []
    for number in numbers:
        here, there = FORKING.Pipe(duplex=False)
        process = FORKING.Process(target=target, args=(folder, number, there))
        process.start()
        there.close()
        started.append((process, here))
    return started


def rest(process: ForkServerProcess, sent: Connection) -> list[str]:
    """What the process has sent until its end; so short a message is sent whole or not at all."""
    received = []
    with suppress(EOFError), sent:
        while True:
            received.append(sent.recv())
    process.join()
    process.close()
    return received


def with_queue(folder: Path) -> EmbeddedAccount:
    StorageFile(folder).prepare()
    account = connected(folder)
    account.queue("q").create({})
    return account


def test_twenty_kills_of_two_processes_under_load_lose_nothing_acknowledged(tmp_path: Path) -> None:
    account = with_queue(tmp_path)
    acknowledged: list[str] = []
    for number in range(0, KILLS, 2):
        writers = start(write, tmp_path, range(number, number + 2))
        for _, sent in writers:
            acknowledged += [sent.recv() for _ in range(20)]
        for process, sent in writers:
            process.kill()
            acknowledged += rest(process, sent)
    account.close()
    account = with_queue(tmp_path)  # which checks the file
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


def test_four_processes_lose_no_increment_and_receive_each_message_once(tmp_path: Path) -> None:
    account = with_queue(tmp_path)
    account.table("t").insert("p", "counter", {"count": 0})
    texts = [str(number) for number in range(800)]
    for text in texts:
        account.queue("q").put(text, timedelta(0))
    counters = start(increment_and_receive, tmp_path, range(4))
    received = [text for counter in counters for text in rest(*counter)]
    assert (row := account.table("t").get("p", "counter"))
    assert row.values["count"] == 1200
    assert sorted(received) == sorted(texts)
    account.close()
