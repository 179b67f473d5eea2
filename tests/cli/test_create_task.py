"""``legacy-queue create-task``: payloads of each kind of worker, and what the command waits for."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.cli.asking import asking, printed
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
    return run(folder, "create-task", f"system/{worker_type}", *options, "--", *command, env=env)


def asked(server: Server, path: str) -> Any:
    return requests.get(f"{server.base_url}/task/{path}", timeout=LONG).json()


@pytest.mark.processes
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
    made = printed(asking(server)("create-task", "system/payload", "--payload", *words))
    assert asked(server, made.strip())["payload"] == payload


@pytest.mark.processes
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
            Queue(server).ask("cancelTask", taskId=running.output.split()[0])
        assert running.wait() == 1
    assert running.output.splitlines()[-1] == end
    assert running.errors == ""


@pytest.mark.processes
def test_waiting_survives_an_unavailable_queue_and_ends_when_the_task_is_unknown(tmp_path: Path) -> None:
    with answering((200, ""), (0, ""), (503, ""), (404, "")) as url:
        who = ("--root-url", url, "--client-id", "c", "--access-token", "t")
        with run(tmp_path, "create-task", *who, "p/w", "--wait", "--", "true") as running:
            assert running.wait() == 1
    assert running.errors == "Error: the queue refused with 404: Not Found\n"
