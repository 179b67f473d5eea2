"""``legacy-queue status, group, log, cancel, rerun``, against a real server, and how commands find it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from legacy_queue.domain.ids import slugid
from tests.cli.asking import Asking, asking, from_json, printed
from tests.cli.fake_server import answering
from tests.system.http_queue import Queue
from tests.system.processes import Server, client_env, serve


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), "--control") as server:
        yield server


@pytest.fixture(scope="module")
def ask(server: Server) -> Asking:
    return asking(server)


@pytest.mark.processes
def test_status_says_what_a_task_waits_for_and_what_happened_to_it(server: Server, ask: Asking) -> None:
    Queue(server).poll_urls(workerType="status-worker")
    task_id = Queue(server).create(workerType="status-wroker")
    first, why, *more = printed(ask("status", task_id)).splitlines()
    assert first == f"{task_id} system/status-wroker pending: run 0 pending"
    asked = "No worker has asked for system/status-wroker in the last 10 days."
    said = f"{asked} Workers ask for system/status-worker."
    assert why == f"  {said}"
    assert re.fullmatch(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} .*", more[-1])
    assert from_json(ask("status", task_id, "--json"))["waitsFor"][0]["sentence"] == said


def test_a_log_that_breaks_off_ends_the_command_with_a_sentence() -> None:
    with answering((200, "half", {"Content-Length": "8"})) as url:
        env = client_env(url, {"clientId": "c", "accessToken": "t"})
        done = CliRunner().invoke(commands, ["log", slugid(), "--artifact", "public/log"], env=env)
    assert done.output == f"Error: the answer of {url} broke off (ChunkedEncodingError)\n"


def test_a_pool_without_workers_is_named_with_the_pool_that_is_meant(ask: Asking) -> None:
    printed(ask("create-task", "system/workers", "--", "true"))
    said = "No worker has called for system/workers in the last ten days.\n"
    assert printed(ask("workers", "--pool", "system/workers")) == said
    said = "No worker has called for system/wrokers in the last ten days. Did you mean system/workers?\n"
    assert printed(ask("workers", "--pool", "system/wrokers")) == said


@pytest.mark.processes
def test_status_is_printed_again_until_the_task_is_resolved(server: Server, ask: Asking) -> None:
    task_id = Queue(server).create(workerType="watched")
    command = [sys.executable, "-m", "legacy_queue", "status", "--watch", task_id]
    env = client_env(server.root_url, server.credentials)
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout
        assert watching.stdout.readline() == f"{task_id} system/watched pending: run 0 pending\n"
        ask("cancel", task_id)
        assert "exception: run 0 exception (canceled)" in watching.stdout.read()
    assert watching.returncode == 0


def test_what_a_list_leaves_out_is_said_on_standard_error(server: Server, ask: Asking) -> None:
    for _ in range(2):
        Queue(server).create(workerType="listed")
    cut = ask("tasks", "--limit", "1", "--pool", "system/listed")
    said = "The first 1; more may follow. --limit 0 shows all.\n"  # to count them, all would be read
    assert (len(cut.stdout.splitlines()), cut.stderr) == (2, said)
    whole = ask("tasks", "--limit", "0", "--pool", "system/listed")
    assert (len(whole.stdout.splitlines()), whole.stderr) == (3, "")


@pytest.mark.parametrize("command", ["pools", "workers"])
def test_how_many_pools_there_are_is_said_where_some_are_left_out(
    server: Server, ask: Asking, command: str
) -> None:
    for worker_type in ("counted", "counted-too"):
        Queue(server).create(workerType=worker_type)
    total = len(from_json(ask("pools", "--limit", "0", "--json"))["pools"])
    cut = ask(command, "--limit", "1", "--json")
    assert cut.stderr == f"1 of {total} pools; --limit 0 shows all.\n"
    assert json.loads(cut.stdout)
    assert ask(command, "--limit", "0").stderr == ""


def test_an_unknown_task_and_a_word_that_is_none_are_refused(ask: Asking) -> None:
    assert "404: there is no task" in ask("status", slugid()).output
    assert "'nothing' is not a taskId" in ask("status", "nothing").output


def test_a_task_is_canceled_and_run_again(server: Server, ask: Asking) -> None:
    task_id = Queue(server).create(workerType="changed")
    pool = f"{task_id} system/changed"
    assert printed(ask("cancel", task_id)) == f"{pool} exception: run 0 exception (canceled)\n"
    assert printed(ask("rerun", task_id)) == f"{pool} pending: run 0 exception (canceled), run 1 pending\n"


@pytest.mark.parametrize("start", ["-", "--"])
def test_an_id_that_begins_with_a_dash_is_no_option(server: Server, ask: Asking, start: str) -> None:
    task_id = f"{start}{slugid()[len(start) :]}"
    Queue(server).create(task_id, workerType="dashed", taskGroupId=task_id)
    assert from_json(ask("status", task_id, "--json"))["status"]["taskId"] == task_id
    assert printed(ask("group", "--limit", "1", task_id)).splitlines()[1].split()[0] == task_id
    assert "run 0 exception (canceled)" in printed(ask("cancel", task_id))


@pytest.mark.processes
def test_the_log_of_a_task_is_printed(server: Server, ask: Asking) -> None:
    without = Queue(server).create(workerType="logged")
    assert f"task {without} has no log: it has no artifacts" in ask("log", without).output
    task_id = printed(ask("create-task", "system/logs", "--", "echo", "hello")).strip()
    # in a process of its own: it configures the log of its process
    command = [sys.executable, "-m", "legacy_queue", "worker", "system/logs", "--max-tasks", "1"]
    env = client_env(server.root_url, server.credentials)
    subprocess.run(command, env=os.environ | env, check=True, capture_output=True)
    assert printed(ask("log", task_id)) == "hello\n"
    assert printed(ask("log", task_id, "--artifact", "public/logs/live.log")) == "hello\n"
    assert "404" in ask("log", task_id, "--artifact", "public/none").output


# --- finding the server


def without_variables(folder: Path, **env: str) -> dict[str, str | None]:
    """The environment of a user who has given nothing but the folder."""
    given = ("LEGACY_QUEUE_", "TASKCLUSTER_")
    cleared: dict[str, str | None] = {name: None for name in os.environ if name.startswith(given)}
    return {**cleared, "LEGACY_QUEUE_DATA_DIR": str(folder), **env}


def test_commands_find_the_server_of_the_data_directory(server: Server) -> None:
    folder = server.data_dir
    found = CliRunner().invoke(commands, ["pools"], env=without_variables(folder))
    assert found.exit_code == 0, found.output
    file = folder / "server.json"
    assert (json.loads(file.read_text())["rootUrl"], file.stat().st_mode & 0o777) == (server.root_url, 0o600)
    other = without_variables(folder, TASKCLUSTER_ROOT_URL="http://127.0.0.1:1")
    refused = CliRunner().invoke(commands, ["pools"], env=other)
    assert "Give credentials: TASKCLUSTER_CLIENT_ID" in refused.output


@pytest.mark.processes
def test_after_the_end_of_the_server_its_file_is_gone(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        file = server.data_dir / "server.json"
        assert file.exists()
    assert not file.exists()
    refused = CliRunner().invoke(commands, ["pools"], env=without_variables(file.parent))
    assert "Give the queue's URL" in refused.output
    assert "run legacy-queue up or serve" in refused.output


def test_no_password_of_a_url_is_in_an_error() -> None:
    env = {
        "LEGACY_QUEUE_ROOT_URL": "http://user:S3CRET@127.0.0.1:1",
        "TASKCLUSTER_CLIENT_ID": "a",
        "TASKCLUSTER_ACCESS_TOKEN": "b",
    }
    refused = CliRunner().invoke(commands, ["pools"], env=env)
    assert "does not answer" in refused.output
    assert "S3CRET" not in refused.output
