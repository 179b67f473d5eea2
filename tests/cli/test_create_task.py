"""``legacy-queue create-task``: payloads for each kind of worker, and waiting for the task."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Asking, ServedQueue, answering, ask_at, printed
from tests.system.processes import wait_until


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
def test_the_payload_can_be_for_another_worker_or_come_from_a_file(
    tmp_path: Path, queue: ServedQueue, ask: Asking, options: tuple[str, ...], payload: dict[str, Any]
) -> None:
    (tmp_path / "one.json").write_text('{"script": "x"}')
    (tmp_path / "conform.json").write_text('{"completes": {"of": "conform"}, "fails": {}}')
    words = [word.format(folder=tmp_path) for word in options]
    task_id = printed(ask("create-task", "system/payload", "--payload", *words)).strip()
    assert queue.ask("task", taskId=task_id)["payload"] == payload


@pytest.mark.parametrize(
    ("call", "end"), [("reportFailed", "failed"), ("cancelTask", "exception (canceled)")]
)
def test_if_the_task_is_not_completed_waiting_ends_with_exit_code_1(
    queue: ServedQueue, ask: Asking, call: str, end: str
) -> None:
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(ask, "create-task", "system/waited-for", "--wait", "--", "false")
        [message] = wait_until(lambda: queue.messages(workerType="waited-for"))
        queue.claim(message.task_id)
        queue.ask(call, taskId=message.task_id, runId=0)
        done = waiting.result()
    assert done.exit_code == 1
    assert done.stdout.splitlines()[0] == message.task_id
    assert done.stdout.splitlines()[-1] == end
    assert done.stderr == ""


def test_waiting_goes_on_while_the_queue_is_unavailable_and_ends_if_the_task_is_unknown() -> None:
    with answering((200, "{}"), (0, ""), (503, ""), (404, '{"message": "no task"}')) as url:
        done = ask_at(url, "create-task", "p/w", "--wait", "--", "true")
    assert (done.exit_code, done.stderr) == (1, f"Error: the server at {url} answered 404: no task\n")
