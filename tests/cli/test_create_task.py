"""``legacy-queue create-task``: real processes against a real server, and the sample worker."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from legacy_queue.cli.commands import commands
from tests.cli.fake_server import answering
from tests.system.http_queue import Queue
from tests.system.processes import LONG, Running, Server, client_env, run, serve, wait_until, work


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), "--storage", "memory") as server:
        yield server


def creating(
    folder: Path, server: Server, worker_type: str, *options: str, command: tuple[str, ...] = ("true",)
) -> AbstractContextManager[Running]:
    env = client_env(server.root_url, server.credentials)
    pool = (f"system/{worker_type}",)
    return run(folder, "create-task", *pool, *options, "--", *command, env=env)


def created(*arguments: Any, **more: Any) -> str:
    with creating(*arguments, **more) as running:
        assert running.wait() == 0, running.errors
    return running.output.strip()


def asked(server: Server, path: str) -> Any:
    return requests.get(f"{server.base_url}/task/{path}", timeout=LONG).json()


def test_each_option_is_a_property_of_the_definition(tmp_path: Path, server: Server) -> None:
    required = created(tmp_path, server, "properties")
    options = (
        *("--env", "A=1", "--env", "B=x=y", "--priority", "high", "--deadline", "2d"),
        *("--artifact", "public/a.txt=out/a.txt", "--depends-on", required),
    )
    task_id = created(tmp_path, server, "properties", *options)
    task = asked(server, task_id)
    assert task["payload"]["env"] == {"A": "1", "B": "x=y"}
    assert task["payload"]["artifacts"] == {"public/a.txt": {"type": "file", "path": "out/a.txt"}}
    assert (task["priority"], task["dependencies"]) == ("high", [required])
    duration = datetime.fromisoformat(task["deadline"]) - datetime.fromisoformat(task["created"])
    assert duration == timedelta(days=2)
    assert asked(server, f"{task_id}/status")["status"]["state"] == "unscheduled"


@pytest.mark.parametrize(
    ("options", "payload"),
    [
        (("scriptworker",), {"command": ["sh", "-c", "echo done"]}),
        (("generic-worker", "--", "a", "b"), {"command": [["a", "b"]], "maxRunTime": 600}),
        (
            ("docker-worker", "--env", "A=1", "--", "a"),
            {"command": ["a"], "maxRunTime": 600, "image": "debian:bookworm-slim", "env": {"A": "1"}},
        ),
        (("{folder}/one.json",), {"script": "x"}),
        (("{folder}/one.json", "--", "a"), {"script": "x", "command": ["a"]}),
        (("{folder}/conform.json",), {"of": "conform"}),
    ],
    ids=" ".join,
)
def test_the_payload_is_that_of_another_worker_or_of_a_file(
    tmp_path: Path, server: Server, options: tuple[str, ...], payload: dict[str, Any]
) -> None:
    (tmp_path / "one.json").write_text('{"script": "x"}')
    (tmp_path / "conform.json").write_text('{"completes": {"of": "conform"}, "fails": {}}')
    words = [word.format(folder=tmp_path) for word in options]
    env = client_env(server.root_url, server.credentials)
    made = CliRunner().invoke(commands, ["create-task", "system/payload", "--payload", *words], env=env)
    assert made.exit_code == 0, made.output
    assert asked(server, made.output.strip())["payload"] == payload


@pytest.mark.parametrize(
    ("worker_type", "end"), [("failing", "failed"), ("canceled", "exception (canceled)")]
)
def test_waiting_ends_with_exit_code_1_for_a_task_that_is_not_completed(
    tmp_path: Path, server: Server, worker_type: str, end: str
) -> None:
    with creating(tmp_path / "create", server, worker_type, "--wait", command=("false",)) as running:
        wait_until(lambda: "pending" in running.output)
        if worker_type == "failing":
            with work(tmp_path / "work", server, worker_type, "--max-tasks", "1") as worker:
                assert worker.wait() == 0
        else:
            Queue(server).ask("POST", f"/task/{running.output.split()[0]}/cancel")
        assert running.wait() == 1
    assert running.output.splitlines()[-1] == end
    assert running.errors == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--env", "NOTHING"), "'--env': 'NOTHING' is not NAME=VALUE"),
        (("--env", "A=1", "--env", "A=2"), "'--env': 'A' is given twice: once is accepted"),
        (
            ("--artifact", "a="),
            "the sample worker would refuse this task: payload.artifacts must be an object of",
        ),
        (("--deadline", "soon"), "'soon': a duration of whole seconds is accepted, like 20m, 3m31s"),
        (("--depends-on", "x"), "'x' is not a taskId: 22 characters as create-task prints them"),
    ],
)
def test_a_wrong_option_is_a_sentence_that_says_what_is_accepted(options: tuple[str, ...], said: str) -> None:
    pool = ("p/w", "--root-url", "http://127.0.0.1:1")
    who = ("--client-id", "c", "--access-token", "t")
    refused = CliRunner().invoke(commands, ["create-task", *pool, *who, *options, "--", "true"])
    assert refused.exit_code == 2
    assert said in refused.output


def test_waiting_survives_an_unavailable_queue_and_ends_when_the_task_is_unknown(tmp_path: Path) -> None:
    with answering((200, ""), (0, ""), (503, ""), (404, "")) as url:
        who = ("--root-url", url, "--client-id", "c", "--access-token", "t")
        pool = ("p/w",)
        with run(tmp_path, "create-task", *who, *pool, "--wait", "--", "true") as running:
            assert running.wait() == 1
    assert running.errors == "Error: status was refused with 404: \n"
