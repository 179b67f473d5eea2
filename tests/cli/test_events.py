"""``legacy-queue events``: a real process that follows a server."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from legacy_queue.domain.ids import slugid
from tests.cli.command_runner import TIME, env_for, served
from tests.docs.terminal import free_port
from tests.http.calls import QueueCalls
from tests.rabbitmq import RabbitMQ
from tests.system.http_queue import Queue
from tests.system.processes import Running, environment, run, serve, wait_until

MEMORY = ("--storage", "memory")


@contextmanager
def following(folder: Path, root_url: str, *options: str, **env: str) -> Iterator[Running]:
    """Run the command. The block begins when it follows the events."""
    with run(folder / "events", "events", "--root-url", f"{root_url}/", *options, env=env) as running:
        wait_until(lambda: "Following the queue" in running.errors or running.process.poll() is not None)
        yield running
        assert running.end(signal.SIGINT) == 0, running.errors
        assert "Traceback" not in running.errors


def failed(queue: QueueCalls, task_id: str) -> None:
    """Create a task whose first run is retried and whose second run fails."""
    queue.create(task_id, workerType="followed", routes=["index.a.b"])
    assert queue.claim(task_id, 0).status_code == 200
    queue.ask("reportException", {"reason": "worker-shutdown"}, taskId=task_id, runId=0)
    assert queue.claim(task_id, 1, workerId="two").status_code == 200
    queue.ask("reportFailed", taskId=task_id, runId=1)


@pytest.mark.processes
def test_a_line_names_the_event_its_task_and_its_run(tmp_path: Path) -> None:
    """Here anonymous clients cannot read events, so the command must use its credentials."""
    task_id = slugid()
    words = "--routing-key", f"primary.*.*.*.*.*.*.*.{task_id}.#"
    with (
        served(anonymous_scopes=()) as queue,
        following(tmp_path, queue.root_url, *words, **env_for(queue.root_url)) as running,
    ):
        failed(queue, task_id)
        printed = [re.sub(" +", " ", line) for line in running.lines(6)]
    expected = [
        f"task-defined {task_id} pending",
        f"task-pending {task_id} run 0 pending",
        f"task-running {task_id} run 0 running group/alice",
        f"task-pending {task_id} run 1 pending",
        f"task-running {task_id} run 1 running group/two",
        f"task-failed {task_id} run 1 failed group/two",
    ]
    for line, wanted in zip(printed, expected, strict=True):
        assert re.fullmatch(f"{TIME} {wanted}", line)
    assert len(running.errors.splitlines()) == 1


def test_with_a_broker_the_command_prints_a_line_of_python_that_shows_the_events(
    tmp_path: Path, rabbitmq: RabbitMQ
) -> None:
    project, printed = f"events-{slugid()}", tmp_path / "printed"
    broker = {"LEGACY_QUEUE_AMQP_URL": rabbitmq.url, "LEGACY_QUEUE_PROJECT": project}
    with serve(tmp_path, *MEMORY, env=broker) as server:
        with run(tmp_path / "events", "events", "--root-url", server.root_url) as refused:
            assert refused.wait() == 1
        [line] = re.findall(r"^import .*", refused.errors, re.MULTILINE)
        command = [sys.executable, "-u", "-c", line]
        with (
            printed.open("wb") as output,
            subprocess.Popen(command, stdout=output, env=environment(**broker)) as consumer,
        ):
            queue = Queue(server)
            try:  # repeat until it has begun to consume
                wait_until(lambda: queue.create(workerType="consumed") and "pending" in printed.read_text())
            finally:
                consumer.kill()


@pytest.mark.processes
def test_after_a_restart_events_are_printed_again_with_a_warning_that_some_are_lost(tmp_path: Path) -> None:
    """The server stops normally while the command follows it. Then the command finds the next server."""
    port, before, after = str(free_port()), slugid(), slugid()
    with_password = f"http://me:secret@127.0.0.1:{port}"
    with (
        serve(tmp_path / "one", *MEMORY, "--port", port) as first,
        following(tmp_path, with_password, "--json", "--exchange", "task-defined") as running,
    ):
        Queue(first).create(before, workerType="followed")
        running.lines(1)
        assert first.end(signal.SIGTERM) == 0
        assert "graceful timeout" not in first.errors
        wait_until(lambda: "Lost the connection" in running.errors)
        with serve(tmp_path / "two", *MEMORY, "--port", port) as second:
            Queue(second).create(after, workerType="followed")
            printed = [json.loads(line)["payload"]["status"]["taskId"] for line in running.lines(2)]
            assert printed == [before, after]
            said = re.findall(r"^(Following|Lost|Reconnected)", running.errors, re.MULTILINE)
            assert said == ["Following", "Lost", "Reconnected"]
            assert "secret" not in running.errors
            # the first server may have had more events
            assert running.errors.count("Some events are lost") == 1
