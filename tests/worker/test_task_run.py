"""A claimed run: real commands, and a queue that answers as a test scripts it."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Step
from legacy_queue.worker.command import Payload, PayloadError
from legacy_queue.worker.held_claim import reclaim_delay
from tests.system.processes import LONG, wait_until

from .conftest import FakeClock, Prepare
from .scripted_queue import ScriptedQueue

LONG_COMMAND = f"sleep {2 * LONG}"
FILE = {"type": "file", "path": "x"}
SHUTDOWN = [("reportException", "worker-shutdown")]


def written(file: Path) -> list[int]:
    """The numbers of the file, when a command has written a whole line to it."""
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return [int(word) for word in file.read_text().split()]


def has_ended(pid: int) -> bool:
    """Whether the process is no more, or an orphan that was killed and which its new parent has to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_command_gets_its_env_its_task_and_run_id_and_no_secret_of_the_worker(
    queue: ScriptedQueue, work: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKCLUSTER_ACCESS_TOKEN", "the-workers-own-token")
    env = {"GREETING": "h\u00e9llo", "HOME": "/nowhere"}
    task_id = queue.task({"command": ["env"], "env": env})
    work()
    lines = queue.log(task_id).splitlines()
    for line in ("GREETING=h\u00e9llo", "HOME=/nowhere", f"TASK_ID={task_id}", "RUN_ID=0"):
        assert line in lines
    assert not [line for line in lines if "TASKCLUSTER" in line]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        {"command": ""},
        {"command": []},
        {"command": ["echo", 1]},
        {"command": "x", "env": None},
        {"command": "x", "env": {"TOKEN": "s3cret", "A": 1}},
        {"command": "x", "maxRunTime": None},
        {"command": "x", "maxRunTime": True},
        {"command": "x", "maxRunTime": 0},
        {"command": "x", "maxRunTime": float("nan")},
        {"command": "x", "artifacts": [FILE]},
        {"command": "x", "artifacts": {"public/x": None}},
        {"command": "x", "artifacts": {"public/x": {"type": "directory", "path": "x"}}},
        {"command": "x", "artifacts": {"public/x": {"type": "file", "path": ""}}},
        {"command": "x", "artifacts": {"public/logs/live.log": FILE}},
    ],
)
def test_a_malformed_payload_raises_payload_error_which_shows_no_value_of_env(payload: Any) -> None:
    with pytest.raises(PayloadError) as malformed:
        Payload.from_wire(payload)
    assert "s3cret" not in str(malformed.value)


def test_a_command_beyond_max_run_time_is_killed_with_its_children_and_reported_as_failed(
    queue: ScriptedQueue, work: Prepare, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    command = f"({LONG_COMMAND}) & echo $! $$ > {pids}; {LONG_COMMAND}"
    queue.task({"command": command, "maxRunTime": 1})
    session = work()
    assert queue.reports() == [("reportFailed", None)]
    assert session.failures() == ["maxRunTime is over, 1 seconds: the task is stopped"]
    wait_until(lambda: all(map(has_ended, written(pids))))


def test_processes_that_a_command_leaves_behind_are_killed_when_it_ends(
    queue: ScriptedQueue, work: Prepare
) -> None:
    task_id = queue.task({"command": f"({LONG_COMMAND}) & echo $!"})
    work()
    wait_until(lambda: has_ended(int(queue.log(task_id))))
    assert queue.reports() == [("reportCompleted", None)]


@pytest.mark.parametrize(
    ("left", "delay"), [(1200, 1020), (540, 360), (180, 120), (6, 4), (1, 1), (0, 1), (-1200, 1)]
)
def test_a_claim_is_reclaimed_three_minutes_before_its_end_or_after_two_thirds(left: int, delay: int) -> None:
    assert reclaim_delay(timedelta(seconds=left)) == timedelta(seconds=delay)


def test_a_claim_is_reclaimed_before_it_ends_and_its_newest_credentials_are_used(
    queue: ScriptedQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    queue.task({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    session = prepare()

    def reclaimed() -> None:
        if len(session.fields(Step.RECLAIM)) == 2:
            done.touch()
        else:
            clock.advance(minutes=18, seconds=40)  # of 20, so the next reclaim is due in less than a minute

    session.on(Step.RUN, lambda: clock.advance(minutes=17, seconds=1))
    session.on(Step.RECLAIM, reclaimed)
    session.run()
    sent = queue.requests[3:]
    reclaims = ["reclaimTask", "reclaimTask"]
    assert [request.operation for request in sent] == [
        *reclaims,
        "createArtifact",
        "upload",
        "reportCompleted",
    ]
    first, second, newest, _, also_newest = [request.client_id for request in sent]
    assert first < second < newest == also_newest  # they end with the time until which they are valid


@pytest.mark.parametrize(("answers", "failures"), [([409], 0), ([b"{}", *[503] * 18], 2)])
def test_a_refused_reclaim_or_one_that_fails_until_the_claim_expires_stops_the_task_without_a_report(
    queue: ScriptedQueue,
    prepare: Prepare,
    clock: FakeClock,
    tmp_path: Path,
    answers: list[int | bytes],
    failures: int,
) -> None:
    pid = tmp_path / "pid"
    queue.task({"command": f"echo $$ > {pid}; {LONG_COMMAND}"})
    queue.script("reclaimTask", *answers)
    session = prepare()
    session.on(Step.RUN, lambda: written(pid), lambda: clock.advance(minutes=17, seconds=1))
    session.on(Step.FAILURE, lambda: clock.advance(minutes=2))
    session.run()
    assert has_ended(*written(pid))
    assert queue.reports() == []
    assert len(session.fields(Step.CLAIM_LOST)) == 1
    assert bool(failures) is (len(queue.requests_for("reclaimTask")) > 1)


def test_a_worker_that_stops_kills_the_task_and_reports_worker_shutdown(
    queue: ScriptedQueue, prepare: Prepare, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    queue.task({"command": f"trap '' TERM; echo $$ > {pid}; {LONG_COMMAND}"})
    session = prepare()
    session.on(Step.RUN, lambda: written(pid), session.worker.stop)
    session.run()
    assert queue.reports() == SHUTDOWN
    assert has_ended(*written(pid))
