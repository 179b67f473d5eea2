"""A command that cannot do its work prints a sentence, never a traceback."""

import os
import sys
from collections.abc import Iterator
from subprocess import PIPE, run

import pytest
import structlog
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from tests.cli.command_runner import answering, env_for
from tests.other_user import as_other_user


@pytest.fixture(autouse=True)
def log_settings() -> Iterator[None]:
    """Commands configure the log of this process.

    If that stayed, later tests would miss log entries at debug.
    """
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("up", "{data} cannot be used: Permission denied"),
        ("ca", "{data} cannot be used: Permission denied"),
        ("env", "Ignoring {data}: Permission denied"),
    ],
)
def test_if_the_data_directory_cannot_be_read_each_command_ends_with_a_sentence(
    command: str, why: str
) -> None:
    with as_other_user() as folder:
        data = folder / "private" / "data"
        data.parent.mkdir(0o000)
        done = CliRunner().invoke(commands, [command], env={"LEGACY_QUEUE_DATA_DIR": str(data)})
    assert why.format(data=data) in done.output
    assert (done.exit_code in (1, 2), isinstance(done.exception, SystemExit)) == (True, True)


def test_a_removed_command_says_what_to_do_instead() -> None:
    for words, instead in (
        (["resolve", "--storage", "azure"], "run another `legacy-queue serve`"),
        (["restore", "monday"], "a backup is a data directory: start from it with `legacy-queue serve"),
    ):
        done = CliRunner().invoke(commands, words)
        assert f"Error: `legacy-queue {words[0]}` was removed: {instead}" in done.output
        assert done.exit_code == 2


def test_if_the_certificate_bundle_is_missing_a_command_ends_with_a_sentence() -> None:
    env = {"LEGACY_QUEUE_ROOT_URL": "https://127.0.0.1:9", "REQUESTS_CA_BUNDLE": "/nonexistent"}
    done = CliRunner().invoke(commands, ["events"], env=env)
    said = "Could not find a suitable TLS CA certificate bundle, invalid path: /nonexistent"
    assert (done.exit_code, done.output) == (1, f"Error: {said}\n")


@pytest.mark.processes
def test_a_worker_that_is_refused_names_the_server() -> None:
    with answering((403, '{"message": "it lacks a scope"}')) as url:
        command = [sys.executable, "-m", "legacy_queue", "worker", "provisioner/pool"]
        ended = run(command, env={**os.environ, **env_for(url)}, stderr=PIPE, text=True, check=False)
    why = "/poll-task-url/provisioner/pool: 403 it lacks a scope"
    said = f"Error: the server at {url} refused this worker: {why}"
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, said)
