"""The sample worker as a process of its own, in both protocols, against the server as one of its own."""

import os
import signal
from pathlib import Path

import pytest

from .plain import Queue, definition
from .processes import HASTY_CLAIM, LONG, wait_until, work

PROTOCOLS = ["draft", "deployed"]
# Up to 30 s for the other task to be up as well; bounded, whatever happens to the test
MEET = """
touch "$MEETING/$TASK_ID"
for _ in $(seq 300); do
  test $(ls "$MEETING" | wc -l) = 2 && exit 0
  sleep 0.1
done
exit 1
"""
SHELL = "sh", "-c"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_takes_the_steps_of_the_seeds_chart(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    payload = {"command": [*SHELL, 'echo "$TASK_ID $RUN_ID $GREETING"'], "env": {"GREETING": "hello"}}
    task_id = queue.create(definition(worker_type, payload=payload))
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "1", "--protocol", protocol) as worker:
        assert worker.wait() == 0
    assert worker.output == f"{task_id} 0 hello\n"
    message_is = {"draft": "held", "deployed": "deleted"}[protocol]
    assert worker.told == ["poll-urls", "claim", message_is, "run", "exited", "report"]
    sent = next(step["sent"] for step in worker.steps if step["event"] == "claim")
    of_the_message = ["messageId", "receipt", "signature"] if protocol == "draft" else []
    assert sent == sorted([*of_the_message, "workerGroup", "workerId"])
    assert queue.runs(task_id) == [("completed", "completed")]
    assert queue.pending(worker_type) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_end_of_a_task_is_reported_as_the_seeds_say(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    payloads = [
        {"command": [*SHELL, "exit 3"]},
        {"command": ["sleep", "30"], "maxRunTime": 0.2},
        {"command": "not a list, and a command that the shell does not find"},
        {"command": []},
        {"image": "of another kind of worker"},
        {"command": ["/nowhere/to/be/found"]},
        {"command": ["true"], "maxRunTime": "long"},
    ]
    tasks = [queue.create(definition(worker_type, payload=payload)) for payload in payloads]
    options = ("--max-tasks", str(len(tasks)), "--capacity", "2", "--protocol", protocol)
    with work(tmp_path, queue.server, worker_type, *options) as worker:
        assert worker.wait() == 0
    assert [queue.runs(task_id) for task_id in tasks] == [
        *[[("failed", "failed")]] * 3,
        *[[("exception", "malformed-payload")]] * 4,
    ]
    assert worker.told.count("time-over") == 1
    assert queue.pending(worker_type) == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_with_a_capacity_of_two_it_runs_two_tasks_at_once(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    payload = {"command": [*SHELL, MEET], "env": {"MEETING": str(meeting)}}
    tasks = [queue.create(definition(worker_type, payload=payload)) for _ in range(2)]
    options = ("--max-tasks", "2", "--capacity", "2", "--protocol", protocol)
    with work(tmp_path / "worker", queue.server, worker_type, *options) as worker:
        assert worker.wait() == 0
    assert [queue.runs(task_id) for task_id in tasks] == [[("completed", "completed")]] * 2


def test_it_takes_the_highest_priority_first(queue: Queue, worker_type: str, tmp_path: Path) -> None:
    priorities = ["lowest", "high", "very-low", "highest"]
    for priority in priorities:
        payload = {"command": ["echo", priority]}
        queue.create(definition(worker_type, payload=payload, priority=priority))
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "4") as worker:
        assert worker.wait() == 0
    assert worker.output.split() == ["highest", "high", "very-low", "lowest"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_told_to_end_it_reports_worker_shutdown_and_the_task_is_retried_at_once(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    command = [*SHELL, "test $RUN_ID != 0 || exec sleep 60"]
    task_id = queue.create(definition(worker_type, payload={"command": command}))
    with work(tmp_path / "first", queue.server, worker_type, "--protocol", protocol) as first:
        first.wait_for("run")
        assert first.end(signal.SIGTERM) == 0
    assert queue.runs(task_id) == [("exception", "worker-shutdown"), ("pending", None)]
    with work(
        tmp_path / "second", queue.server, worker_type, "--max-tasks", "1", "--protocol", protocol
    ) as second:
        assert second.wait() == 0
    assert queue.runs(task_id) == [("exception", "worker-shutdown"), ("completed", "completed")]
    assert queue.status(task_id)["retriesLeft"] == 4


def test_a_task_may_run_for_longer_than_one_claim(hasty: Queue, worker_type: str, tmp_path: Path) -> None:
    command = ["sleep", str(HASTY_CLAIM + 1)]
    task_id = hasty.create(definition(worker_type, payload={"command": command}))
    with work(tmp_path, hasty.server, worker_type, "--max-tasks", "1") as worker:
        assert worker.wait() == 0
    assert "reclaim" in worker.told
    assert hasty.runs(task_id) == [("completed", "completed")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_task_of_a_worker_that_was_killed_is_run_again_by_the_next(
    hasty: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    command = [*SHELL, "echo $$; test $RUN_ID != 0 || exec sleep 60"]
    task_id = hasty.create(definition(worker_type, payload={"command": command}))
    with work(tmp_path / "killed", hasty.server, worker_type, "--protocol", protocol) as killed:
        wait_until(lambda: killed.output.endswith("\n"))
        orphan = int(killed.output)
        killed.end(signal.SIGKILL)
        os.kill(orphan, signal.SIGKILL)
    assert hasty.runs(task_id) == [("running", None)]
    with work(
        tmp_path / "next", hasty.server, worker_type, "--max-tasks", "1", "--protocol", protocol
    ) as following:
        assert following.wait() == 0
    claimed = [step["run_id"] for step in following.steps if step["event"] == "claim"]
    assert claimed == [1]
    status = hasty.status(task_id)
    assert hasty.runs(task_id) == [("exception", "claim-expired"), ("completed", "completed")]
    assert status["retriesLeft"] == 4
    assert status["runs"][1]["reasonCreated"] == "retry"
    assert hasty.on_run((task_id, 0), "reclaim").status_code == 409
    assert hasty.on_run((task_id, 0), "completed").status_code == 409
    assert hasty.pending(worker_type) == 0


def test_a_canceled_task_is_stopped_at_the_next_reclaim(
    hasty: Queue, worker_type: str, tmp_path: Path
) -> None:
    task_id = hasty.create(definition(worker_type, payload={"command": ["sleep", str(LONG)]}))
    with work(tmp_path, hasty.server, worker_type, "--max-tasks", "1") as worker:
        worker.wait_for("run")
        hasty.ask("POST", f"/task/{task_id}/cancel")
        assert worker.wait() == 0
    assert worker.told[-1] == "claim-lost"
    assert hasty.runs(task_id) == [("exception", "canceled")]
