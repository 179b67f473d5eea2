"""How the commands end that run until they are told to: at every moment, whatever they were started with."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest
import requests

from .processes import LONG, Running, importing, processes_of, run, wait_until

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# as in the background of a script, and worse
UNHEARD = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
os.execv(sys.argv[1], sys.argv[1:])
"""
BEFORE = (sys.executable, "-c", UNHEARD)
NOWHERE = "http://127.0.0.1:1"
POOL = ("--provisioner", "p", "--worker-type", "w", "--client-id", "c", "--access-token", "t")
# each with a module that is slow to import, or has something slow imported
COMMANDS = {
    "serve": ("gevent", "serve", "--port", "0"),
    "up": ("requests", "up", "--port", "0"),
    "demo": ("requests", "up", "--demo"),
    "resolve": ("legacy_queue.wiring", "resolve"),
    "worker": ("requests", "worker", "--root-url", NOWHERE, *POOL),
    "events": ("requests", "events", "--root-url", NOWHERE),
}
# an Azurite that never listens
STARTING = """
process.on("SIGTERM", () => process.exit(0));
setInterval(() => {}, 1000);
require("node:fs").writeFileSync(process.env.TEST_STARTING, "");
"""


def ended_in_order(process: Running, data_dir: Path, code: int = 0) -> None:
    assert process.wait() == code, process.errors
    assert "Traceback" not in process.errors
    assert wait_until(lambda: not processes_of(data_dir))


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_still_importing_ends_at_once_though_it_was_started_with_its_signals_ignored(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    module, *words = COMMANDS[command]
    with importing(module, 10 * LONG, tmp_path, *words, under=BEFORE) as process:
        process.send(number)
        ended_in_order(process, tmp_path, 130 if command == "demo" else 0)
    assert process.output == ""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_command_whose_azurite_is_still_starting_ends_it_and_itself(
    tmp_path: Path, command: str, number: signal.Signals
) -> None:
    main = tmp_path / "azurite-dir/node_modules/azurite/dist/src/azurite.js"
    main.parent.mkdir(parents=True)
    main.write_text(STARTING)
    options = (
        "--port",
        "0",
        "--azurite-dir",
        str(tmp_path / "azurite-dir"),
        "--azurite-patches",
        "none",
        "--data-dir",
        str(tmp_path / "data"),
    )
    with run(tmp_path, command, *options, env={"TEST_STARTING": str(tmp_path / "starting")}) as process:
        wait_until((tmp_path / "starting").exists)
        process.send(number)
        ended_in_order(process, tmp_path)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_server_ends_in_order_though_it_is_told_to_while_it_forks(
    tmp_path: Path, azurite_dir: Path, number: signal.Signals
) -> None:
    """Its first fork is for its Azurite; ``up`` hears no signal there."""
    options = ("--port", "0", "--azurite-dir", str(azurite_dir), "--data-dir", str(tmp_path / "data"))
    with run(tmp_path, "serve", *options, env={"TEST_SIGNAL_AT_FORK": f"{number:d}"}) as server:
        ended_in_order(server, tmp_path)
    assert server.output == ""


@pytest.mark.parametrize("storage", ["memory", "azurite"])
@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_command_ends_in_order_at_whatever_moment_of_its_start(
    tmp_path: Path, command: str, storage: str
) -> None:
    """Which moments these are is up to the machine: there is none that is not served."""
    options = (command, "--port", "0", "--storage", storage, "--data-dir", str(tmp_path / "data"))
    for number, after in enumerate((0.4, 1.6)):
        with importing("legacy_queue.cli.commands", 0, tmp_path / str(number), *options) as process:
            time.sleep(after)
            process.send(SIGNALS[number])
            ended_in_order(process, tmp_path)


def test_up_that_was_started_with_its_signals_ignored_ends_on_ctrl_c(tmp_path: Path) -> None:
    options = ("--port", "0", "--storage", "memory", "--data-dir", str(tmp_path / "data"))
    with run(tmp_path, "up", *options, under=BEFORE) as up:
        wait_until(lambda: "Ctrl-C stops" in up.output)
        up.send(signal.SIGINT)
        ended_in_order(up, tmp_path)


def test_the_server_and_its_azurite_end_when_up_is_killed(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with run(tmp_path, "up", "--port", "0", "--data-dir", str(data_dir)) as up:
        wait_until(lambda: "Ctrl-C stops" in up.output)
        assert len(processes_of(data_dir)) >= 4, "up, the server and its process, Azurite"
        assert up.end(signal.SIGKILL) == -signal.SIGKILL
        assert wait_until(lambda: not processes_of(data_dir))
    assert "Traceback" not in up.errors


@pytest.mark.parametrize("command", ["serve", "resolve"])
def test_with_stop_with_stdin_the_end_of_standard_input_ends_the_command(
    tmp_path: Path, command: str
) -> None:
    """Standard input is at its end from the beginning here; that of ``up``'s server, above, is not."""
    nowhere = ";".join(f"{name}Endpoint={NOWHERE}/a" for name in ("Queue", "Table", "Blob"))
    env = {"LEGACY_QUEUE_CONNECTION_STRING": f"AccountName=a;AccountKey=a2V5;{nowhere}"}
    options = ("--storage", "azure", "--port", "0", "--data-dir", str(tmp_path), "--stop-with-stdin")
    with run(tmp_path, command, *options, env=env) as process:
        ended_in_order(process, tmp_path)


@pytest.mark.parametrize("command", ["serve", "resolve"])
def test_stop_with_stdin_is_refused_where_standard_input_is_closed(tmp_path: Path, command: str) -> None:
    closed = ("sh", "-c", 'exec "$@" <&-', "sh")
    with run(tmp_path, command, "--stop-with-stdin", "--data-dir", str(tmp_path), under=closed) as process:
        assert process.wait() == 2
        assert "standard input" in process.errors


def test_a_server_ends_with_its_terminal_and_is_not_changed_by_other_signals_of_it(tmp_path: Path) -> None:
    options = ("--port", "0", "--storage", "memory", "--data-dir", str(tmp_path / "data"))
    with run(tmp_path, "serve", *options) as server:
        wait_until(lambda: "\n" in server.output)
        before = processes_of(tmp_path / "data")
        for number in (signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR2, signal.SIGWINCH):
            server.send(number)
        assert (
            requests.get(f"{json.loads(server.output)['rootUrl']}/v1/ping", timeout=LONG).status_code == 200
        )
        assert processes_of(tmp_path / "data") == before
        server.send(signal.SIGHUP)
        ended_in_order(server, tmp_path / "data")


def test_ctrl_c_ends_a_demonstration_and_the_command_that_it_runs(tmp_path: Path) -> None:
    with run(tmp_path, "up", "--demo", "--storage", "memory", "--data-dir", str(tmp_path / "data")) as demo:
        wait_until(lambda: "executing run 0" in demo.output)
        demo.send(signal.SIGINT)
        ended_in_order(demo, tmp_path, 130)
    assert "is completed" not in demo.output
