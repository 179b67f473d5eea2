"""The sample worker as a process of its own, in each protocol, against the server as one of its own."""

import os
import signal
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from .http_queue import Queue, definition
from .processes import HASTY_CLAIM, LONG, wait_until, work

PROTOCOLS = ["draft", "deployed", "claimwork"]
LIVE, BACKING = "public/logs/live.log", "public/logs/live_backing.log"
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
# what the worker does whatever the storage is: the chart, lost claims and artifacts are shown on each
in_memory = pytest.mark.parametrize("server", ["memory"], indirect=True)
hasty_in_memory = pytest.mark.parametrize("hasty_server", ["memory"], indirect=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_takes_the_steps_of_the_protocols_chart(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    payload = {"command": [*SHELL, 'echo "$TASK_ID $RUN_ID $GREETING"'], "env": {"GREETING": "hello"}}
    task_id = queue.create(definition(worker_type, payload=payload))
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "1", "--protocol", protocol) as worker:
        assert worker.wait() == 0
    assert worker.output == f"{task_id} 0 hello\n"
    finding = {
        "draft": ["poll-urls", "claim", "held"],
        "deployed": ["poll-urls", "claim", "deleted"],
        "claimwork": ["claim"],
    }[protocol]
    running = ["artifact", "run", "exited", "artifact", "artifact", "report"]
    assert worker.told == [*finding, *running]
    sent = next(step["sent"] for step in worker.steps if step["event"] == "claim")
    more = {"draft": ["messageId", "receipt", "signature"], "deployed": [], "claimwork": ["tasks"]}[protocol]
    assert sent == sorted([*more, "workerGroup", "workerId"])
    assert queue.runs(task_id) == [("completed", "completed")]
    assert queue.pending(worker_type) == 0


@in_memory
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_end_of_a_task_is_reported_as_the_protocol_says(
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


@in_memory
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


@in_memory
def test_it_takes_the_highest_priority_first(queue: Queue, worker_type: str, tmp_path: Path) -> None:
    priorities = ["lowest", "high", "very-low", "highest"]
    for priority in priorities:
        payload = {"command": ["echo", priority]}
        queue.create(definition(worker_type, payload=payload, priority=priority))
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "4") as worker:
        assert worker.wait() == 0
    assert worker.output.split() == ["highest", "high", "very-low", "lowest"]


@in_memory
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


@hasty_in_memory
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


@hasty_in_memory
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


def artifact(queue: Queue, task_id: str, name: str, run_id: int = 0) -> requests.Response:
    """What a browser gets, which follows redirects."""
    url = f"{queue.server.base_url}/task/{task_id}/runs/{run_id}/artifacts/{quote(name, safe='')}"
    return requests.get(url, timeout=LONG)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_it_leaves_behind_can_be_had_once_the_task_is_reported(
    queue: Queue, worker_type: str, tmp_path: Path, protocol: str
) -> None:
    made = "mkdir -p site/a; echo '<p>' > site/index.html; echo a > site/a/b; echo said; echo x > 'x%2F y'"
    artifacts = {
        "public/site": {"type": "directory", "path": "site"},
        "public/x%2F y": {"type": "file", "path": "x%2F y"},
        "public/nothing": {"type": "file", "path": "nothing"},
    }
    payload = {"command": [*SHELL, made], "artifacts": artifacts}
    task_id = queue.create(definition(worker_type, payload=payload))
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "1", "--protocol", protocol) as worker:
        assert worker.wait() == 0
    assert queue.runs(task_id) == [("failed", "failed")], "for what is not there"
    listed = queue.ask("GET", f"/task/{task_id}/runs/0/artifacts")["artifacts"]
    kinds = {one["name"]: (one["storageType"], one["contentType"]) for one in listed}
    assert kinds.pop("public/nothing")[0] == "error"
    text = "text/plain; charset=utf-8"
    assert kinds == {
        "public/site/index.html": ("s3", "text/html"),
        "public/site/a/b": ("s3", "application/octet-stream"),
        "public/x%2F y": ("s3", "application/octet-stream"),
        LIVE: ("reference", text),
        BACKING: ("s3", text),
    }
    assert artifact(queue, task_id, "public/site/index.html").text == "<p>\n"
    assert artifact(queue, task_id, "public/site/a/b").text == "a\n"
    assert artifact(queue, task_id, "public/x%2F y").text == "x\n"
    for name in (LIVE, BACKING):
        log = artifact(queue, task_id, name)
        assert log.text == "said\n[worker] artifact public/nothing: There is no file nothing\n"
        assert log.headers["Content-Type"] == text
    missing = artifact(queue, task_id, "public/nothing")
    assert (missing.status_code, missing.json()["reason"]) == (424, "file-missing-on-worker")
    assert worker.told[-1] == "report"


@in_memory
def test_the_log_of_a_running_task_can_be_followed(queue: Queue, worker_type: str, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    command = [*SHELL, f"echo first; until [ -e {go_on} ]; do sleep 0.1; done; echo second"]
    task_id = queue.create(definition(worker_type, payload={"command": command}))
    url = f"{queue.server.base_url}/task/{task_id}/artifacts/{LIVE}"
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "1", "--protocol", "claimwork") as worker:
        worker.wait_for("run")
        with requests.get(url, stream=True, timeout=LONG) as growing:
            lines = growing.iter_lines(chunk_size=1)
            assert next(lines) == b"first"
            go_on.touch()
            assert list(lines) == [b"second"]
        assert worker.wait() == 0
    assert requests.get(url, timeout=LONG).text == "first\nsecond\n"


@in_memory
@pytest.mark.parametrize(
    ("payload", "signalled", "log"),
    [
        ({"command": ["sleep", "60"]}, True, "[worker] the worker is shutting down: the task is stopped\n"),
        ({}, False, "[worker] malformed payload: payload.command must be"),
    ],
)
def test_the_log_of_an_exception_is_uploaded_after_that_is_reported(
    queue: Queue, worker_type: str, tmp_path: Path, payload: dict[str, object], signalled: bool, log: str
) -> None:
    task_id = queue.create(definition(worker_type, payload=payload))
    with work(tmp_path, queue.server, worker_type, "--max-tasks", "1", "--protocol", "claimwork") as worker:
        if signalled:
            worker.wait_for("run")
            worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert worker.told[-3:] == ["report", "artifact", "artifact"]
    assert artifact(queue, task_id, LIVE).text.startswith(log)


@in_memory
def test_an_idle_claimwork_worker_that_is_told_to_end_hangs_up_and_the_next_task_is_anothers(
    queue: Queue, worker_type: str, tmp_path: Path
) -> None:
    options = ("--protocol", "claimwork", "--poll-interval", "1h")
    with work(tmp_path / "first", queue.server, worker_type, "--max-tasks", "1", *options) as first:
        done = queue.create(definition(worker_type))
        assert first.wait() == 0
    assert queue.runs(done) == [("completed", "completed")]
    with work(tmp_path / "ended", queue.server, worker_type, *options) as ended:
        begun = queue.create(definition(worker_type))
        ended.wait_for("report")
        assert ended.end(signal.SIGTERM) == 0
    assert queue.runs(begun) == [("completed", "completed")]
    task_id = queue.create(definition(worker_type))
    with work(tmp_path / "next", queue.server, worker_type, "--max-tasks", "1", *options) as following:
        assert following.wait() == 0
    assert ended.told.count("claim") == 1
    assert queue.runs(task_id) == [("completed", "completed")]


@in_memory
def test_an_artifact_of_200_mib_costs_the_worker_no_memory(
    queue: Queue, worker_type: str, tmp_path: Path
) -> None:
    size = 200 * 1024 * 1024
    payload = {
        "command": [*SHELL, f"truncate -s {size} large"],
        "artifacts": {"public/large": {"type": "file", "path": "large"}},
    }
    task_id = queue.create(definition(worker_type, payload=payload))
    idle = queue.create(definition(worker_type, payload={"command": ["sleep", "60"]}, priority="lowest"))
    with work(tmp_path, queue.server, worker_type, "--protocol", "claimwork") as worker:
        worker.wait_for("report")
        worker.wait_for("run", times=2)
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
        worker.end(signal.SIGTERM)
    assert queue.runs(task_id) == [("completed", "completed")]
    assert queue.runs(idle)[0] == ("exception", "worker-shutdown")
    with requests.get(
        f"{queue.server.base_url}/task/{task_id}/artifacts/public/large", stream=True, timeout=LONG
    ) as got:
        assert int(got.headers["Content-Length"]) == size
    assert peak < size
