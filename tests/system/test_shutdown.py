"""Commands that run until a signal comes stop cleanly, even if the signal comes while they start."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import requests

from legacy_queue.testing import LegacyQueue

from .processes import LONG, Running, importing, processes_of, run, wait_until

pytestmark = pytest.mark.processes

# ignores and blocks the signals, like a shell does for a script's background processes
IGNORING = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
os.execv(sys.argv[1], sys.argv[1:])
"""
SIGNALS_IGNORED = (sys.executable, "-c", IGNORING)
NOWHERE = "http://127.0.0.1:1"
# an Azurite that never listens
STARTING = """#!/usr/bin/env node
process.on("SIGTERM", () => process.exit(0));
setInterval(() => {}, 1000);
require("node:fs").writeFileSync(process.env.TEST_STARTING, "");
"""


def assert_stops_cleanly(process: Running, data_dir: Path, code: int = 0) -> None:
    assert process.wait() == code, process.errors
    assert "Traceback" not in process.errors
    assert wait_until(lambda: not processes_of(data_dir))


@pytest.mark.parametrize(
    ("module", "words", "number"),  # the module is one that the command imports early
    [
        ("gevent", ("serve", "--port", "0"), signal.SIGTERM),
        ("requests", ("up", "--demo"), signal.SIGTERM),
        ("requests", ("events", "--root-url", NOWHERE), signal.SIGINT),
    ],
)
def test_a_signal_stops_a_command_during_its_imports_even_if_its_parent_ignores_the_signal(
    tmp_path: Path, module: str, words: tuple[str, ...], number: signal.Signals
) -> None:
    with importing(module, 10 * LONG, tmp_path, *words, under=SIGNALS_IGNORED) as process:
        process.send(number)
        assert_stops_cleanly(process, tmp_path, 130 if "--demo" in words else 0)
    assert process.output == ""


def test_a_signal_stops_up_its_server_and_an_azurite_that_is_starting(tmp_path: Path) -> None:
    program = tmp_path / "azurite-dir/node_modules/.bin/azurite"
    program.parent.mkdir(parents=True)
    program.write_text(STARTING)
    program.chmod(0o755)
    azurite = ("--storage", "azurite", "--azurite-dir", str(tmp_path / "azurite-dir"))
    options = ("--port", "0", "--data-dir", str(tmp_path / "data"), *azurite)
    with run(tmp_path, "up", *options, env={"TEST_STARTING": str(tmp_path / "starting")}) as process:
        wait_until((tmp_path / "starting").exists)
        process.send(signal.SIGINT)
        assert_stops_cleanly(process, tmp_path)


def test_a_signal_during_a_fork_stops_the_server_cleanly(tmp_path: Path) -> None:
    """The server's first fork is for its Azurite. No signal handler may run in the new process."""
    options = ("--port", "0", "--storage", "azurite", "--data-dir", str(tmp_path / "data"))
    with run(tmp_path, "serve", *options, env={"TEST_SIGNAL_AT_FORK": f"{signal.SIGTERM:d}"}) as server:
        assert_stops_cleanly(server, tmp_path)
    assert server.output == ""


def test_when_up_is_killed_its_server_and_azurite_stop(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with run(tmp_path, "up", "--azurite", "--port", "0", "--data-dir", str(data_dir)) as up:
        wait_until(lambda: "Ctrl-C stops" in up.output)
        assert len(processes_of(data_dir)) >= 4, "up, the server and its process, Azurite"
        assert up.end(signal.SIGKILL) == -signal.SIGKILL
        assert wait_until(lambda: not processes_of(data_dir))
    assert "Traceback" not in up.errors


def test_if_the_process_with_the_memory_storage_dies_up_ends_with_an_error(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with run(tmp_path, "up", "--port", "0", "--storage", "memory", "--data-dir", str(data_dir)) as running:
        wait_until(lambda: "Ctrl-C stops" in running.output)
        os.kill(max(processes_of(data_dir)), signal.SIGKILL)
        assert_stops_cleanly(running, data_dir, 1)
    assert "all tasks were in its memory and are lost" in running.errors


def test_with_stop_with_stdin_a_server_stops_when_standard_input_ends(tmp_path: Path) -> None:
    """Here the input ends immediately.

    The server of ``up`` in the test above has an input that stays open.
    """
    nowhere = ";".join(f"{name}Endpoint={NOWHERE}/a" for name in ("Queue", "Table", "Blob"))
    env = {"LEGACY_QUEUE_CONNECTION_STRING": f"AccountName=a;AccountKey=a2V5;{nowhere}"}
    options = ("--storage", "azure", "--port", "0", "--data-dir", str(tmp_path), "--stop-with-stdin")
    with run(tmp_path, "serve", *options, env=env) as process:
        assert_stops_cleanly(process, tmp_path)


def test_sighup_stops_a_server_but_other_signals_of_a_terminal_do_not(tmp_path: Path) -> None:
    options = ("--port", "0", "--storage", "memory", "--data-dir", str(tmp_path / "data"))
    with run(tmp_path, "serve", *options) as server:
        url = f"{json.loads(server.lines(1)[0])['rootUrl']}/v1/ping"
        before = processes_of(tmp_path / "data")
        for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2, signal.SIGWINCH):
            server.send(number)
        assert requests.get(url, timeout=LONG).status_code == 200
        assert processes_of(tmp_path / "data") == before
        server.send(signal.SIGHUP)
        assert_stops_cleanly(server, tmp_path / "data")


def test_a_second_signal_stops_the_worker_immediately(legacy_queue: LegacyQueue, tmp_path: Path) -> None:
    up = tmp_path / "up"
    legacy_queue.create_task(worker_type="w", payload={"command": f"touch {up}; sleep {2 * LONG}"})
    slow = legacy_queue.fault("reportException", delay=2 * LONG)
    with run(tmp_path, "worker", "test-provisioner/w", env=legacy_queue.env) as worker:
        wait_until(up.exists)
        worker.send(signal.SIGTERM)
        wait_until(lambda: slow.fired)
        assert worker.end() == 128 + signal.SIGTERM
