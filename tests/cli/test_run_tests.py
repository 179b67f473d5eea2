"""``legacy-queue test`` runs a command with a new queue."""

import re
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from legacy_queue.local_processes.azurite import Azurite
from tests.system.processes import COMMAND, Running, run

pytestmark = pytest.mark.processes

POOL = "suite/worker"
SIGNALS = """
import os, signal, sys
numbers = (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM)
for number in numbers:
    signal.signal(number, lambda number, _: print(number, flush=True))
print(os.environ["TASKCLUSTER_ROOT_URL"], flush=True)
for _ in numbers:
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def suite(folder: Path, *words: str, **env: str) -> Iterator[Running]:
    with run(folder, "test", *words, env={"TMPDIR": str(folder), **env}) as running:
        yield running
    assert [path for path in folder.iterdir() if path.is_dir()] == [], "the files of the queue are removed"


def test_if_the_command_fails_its_exit_code_is_kept_and_standard_error_says_what_the_queue_saw(
    tmp_path: Path,
) -> None:
    script = f"""
        {COMMAND} create-task {POOL} -- true
        echo $TASKCLUSTER_ROOT_URL $LEGACY_QUEUE_ROOT_URL $LEGACY_QUEUE_BASE_URL
        echo ${{TASKCLUSTER_CERTIFICATE-none}} $TASKCLUSTER_CLIENT_ID $TASKCLUSTER_ACCESS_TOKEN
        exit 3"""
    other = {"TASKCLUSTER_CERTIFICATE": "{}", "LEGACY_QUEUE_BASE_URL": "http://127.0.0.1:1/v1"}
    with suite(tmp_path, "--claim-timeout", "30s", "--", "sh", "-c", script, **other) as running:
        assert running.wait() == 3
    task_id, root_url, *urls, certificate, client_id, token = running.output.split()
    assert (urls, certificate) == ([root_url, f"{root_url}/v1"], "none")
    assert running.errors.startswith("\nsh ended with exit code 3. This is what the queue saw:\n\n")
    assert re.search(rf"createTask +200 .*{task_id} by {client_id}\n", running.errors)
    assert re.search(rf"{task_id} suite/worker pending: run 0 pending\n", running.errors)
    assert re.search(rf"suite/worker {task_id}/0 lowest", running.errors)
    assert token not in running.errors
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{root_url}/ready", timeout=10)


def test_the_queue_can_use_an_azure_account_whose_connection_string_is_in_the_variable(
    tmp_path: Path, azurite: Azurite
) -> None:
    own = f"t{secrets.token_hex(4)}"
    azure = ("--storage", "azure", "--queue-prefix", own, "--project", own)
    create = (str(COMMAND), "create-task", POOL, "--", "true")
    variable = {"LEGACY_QUEUE_CONNECTION_STRING": azurite.connection_string}
    with suite(tmp_path, *azure, "--", *create, **variable) as running:
        assert running.wait() == 0, running.errors


def test_the_command_trusts_the_queues_certificate_and_a_warning_names_faults_that_never_fired(
    tmp_path: Path,
) -> None:
    add = f"{COMMAND} fault add claimTask --status 503 && cat >&2"
    with suite(tmp_path, "--tls", "auto", "sh", "-c", add) as running:
        assert running.wait() == 0, running.errors
    assert re.fullmatch(r"[0-9a-f]+\n", running.output)
    assert running.errors == "Warning: a fault never fired: claimTask status=503, fired: 0\n"


def test_signals_are_passed_on_and_the_exit_code_after_a_signal_is_a_shells(
    tmp_path: Path,
) -> None:
    with suite(tmp_path, "--", sys.executable, "-c", SIGNALS) as running:
        running.lines(1)
        for count, number in enumerate((signal.SIGINT, signal.SIGUSR1, signal.SIGTERM), 2):
            running.send(number)
            assert running.lines(count)[-1] == str(int(number))
        assert running.wait() == 128 + signal.SIGKILL
    assert "ended with exit code 137" in running.errors


@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["no-such-program", "-q"], 127, "Error: there is no command 'no-such-program'"),
        (["/tmp"], 126, "Error: '/tmp' cannot be run: it is a directory, or it is not executable"),
        (
            ["--claim-timeout", "soon", "true"],
            1,
            "Error: --claim-timeout is 'soon': expected a duration in whole seconds",
        ),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(
    words: list[str], exit_code: int, said: str
) -> None:
    refused = CliRunner().invoke(commands, ["test", *words])
    assert refused.exit_code == exit_code
    assert said in refused.output
