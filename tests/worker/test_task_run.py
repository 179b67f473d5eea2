"""A claimed run: real commands, and a queue that answers as a test scripts it."""

import os
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Step
from legacy_queue.worker.queue_client import QueueClient
from legacy_queue.worker.task_run import TaskRun
from legacy_queue.worker.worker_settings import Context

from .conftest import LONG, FakeClock, Prepare, wait_until
from .fake_queue import FakeQueue

LONG_COMMAND = f"sleep {2 * LONG}"


def reports(fake_queue: FakeQueue) -> list[tuple[str, Any]]:
    sent = [request for request in fake_queue.requests if request.operation.startswith("report")]
    return [(request.operation, request.body["reason"] if request.raw_body else None) for request in sent]


def written(file: Path) -> list[int]:
    """The numbers of the file, when a command has written a whole line to it."""
    assert wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return [int(word) for word in file.read_text().split()]


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("command", [["false"], "exit 3", "no-such-command-anywhere", "kill -9 $$"])
def test_any_other_exit_code_is_reported_as_failed(
    fake_queue: FakeQueue, work: Prepare, command: Any
) -> None:
    fake_queue.task({"command": command})
    work()
    assert reports(fake_queue) == [("reportFailed", None)]


def test_the_log_and_a_failure_step_say_the_exit_code(fake_queue: FakeQueue, work: Prepare) -> None:
    task_id = fake_queue.task({"command": "echo x; kill -9 $$"})
    said = "the command ended with exit code -9"
    assert work().fields(Step.FAILURE) == [{"task_id": task_id, "run_id": 0, "detail": said}]
    assert fake_queue.log == f"x\n[worker] {said}\n"


def test_a_command_gets_its_env_its_task_and_run_id_and_no_secret_of_the_worker(
    fake_queue: FakeQueue, work: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKCLUSTER_ACCESS_TOKEN", "the-workers-own-token")
    task_id = fake_queue.task(
        {"command": ["env"], "env": {"GREETING": "h\u00e9llo", "HOME": "/nowhere"}}, run_id=3
    )
    work()
    lines = fake_queue.log.splitlines()
    for line in ("GREETING=h\u00e9llo", "HOME=/nowhere", f"TASK_ID={task_id}", "RUN_ID=3"):
        assert line in lines
    assert f"PATH={os.environ['PATH']}" in lines
    assert not [line for line in lines if "TASKCLUSTER" in line]


def test_a_command_runs_in_an_empty_directory_that_is_removed(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": "ls -A; touch left-behind; pwd"})
    work()
    [directory] = fake_queue.log.splitlines()
    assert not Path(directory).exists()


def test_a_task_that_removes_its_working_directory_is_reported_with_its_log(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    fake_queue.task({"command": 'echo x; rm -r "$PWD"'})
    work()
    assert reports(fake_queue) == [("reportCompleted", None)]
    assert fake_queue.log == "x\n"


def test_a_command_that_truncates_its_output_loses_only_what_was_before(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    fake_queue.task({"command": "echo x; echo y > /dev/stdout; echo z"})
    work()
    assert fake_queue.log == "y\nz\n"


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"command": "true", "env": {"A": 1}},
        {"command": "true", "env": {"A=B": "c"}},
        {"command": ["true", "\0"]},
        {"command": ["true", "\ud800"]},
        {"command": ["/no/such/command"]},
        {"command": ["no-such-command-anywhere"]},
        {"command": ["/etc/passwd"]},
        {"command": ["/"]},
        {"command": ["true", "x" * 3_000_000]},
    ],
)
def test_a_payload_that_cannot_be_run_is_reported_as_malformed_and_nothing_runs(
    fake_queue: FakeQueue, work: Prepare, payload: Any
) -> None:
    fake_queue.task(payload)
    session = work()
    assert reports(fake_queue) == [("reportException", "malformed-payload")]
    assert not session.fields(Step.RUN)
    assert session.failures()[0].startswith("malformed payload: payload.")


def test_a_failure_of_the_worker_itself_is_reported_as_internal_error_and_stops_the_task(
    fake_queue: FakeQueue, prepare: Prepare, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    fake_queue.task({"command": f"echo $$ > {pid}; {LONG_COMMAND}"})
    session = prepare(max_tasks=1)

    def fail() -> None:
        written(pid)
        raise LookupError("for a test")

    session.on(Step.RUN, fail)
    session.start().end()
    assert reports(fake_queue) == [("reportException", "internal-error")]
    assert session.failures() == ["LookupError: for a test"]
    assert has_ended(*written(pid))


def test_a_command_beyond_max_run_time_is_killed_with_its_children_and_reported_as_failed(
    fake_queue: FakeQueue, work: Prepare, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    command = f"({LONG_COMMAND}) & echo $! $$ > {pids}; {LONG_COMMAND}"
    fake_queue.task({"command": command, "maxRunTime": 2})
    session = work()
    assert reports(fake_queue) == [("reportFailed", None)]
    assert session.failures() == ["maxRunTime is over, 2 seconds: the task is stopped"]
    child, leader = written(pids)
    assert has_ended(leader)
    assert ends_soon(child)


def test_processes_that_a_command_leaves_behind_are_killed_when_it_ends(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    fake_queue.task({"command": f"({LONG_COMMAND}) & echo $!"})
    work()
    assert ends_soon(int(fake_queue.log))
    assert reports(fake_queue) == [("reportCompleted", None)]


def test_a_claim_is_reclaimed_before_it_ends_and_its_newest_credentials_are_used(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    fake_queue.task({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    session = prepare(max_tasks=1)

    def reclaimed() -> None:
        if len(session.fields(Step.RECLAIM)) == 3:
            done.touch()
        else:
            move(clock, minutes=18, seconds=40)  # of 20, so the next reclaim is due in less than a minute

    session.on(Step.RUN, lambda: move(clock, minutes=17, seconds=1))
    session.on(Step.RECLAIM, reclaimed)
    session.start().end()
    assert session.names() == [
        Step.POLL_URLS, Step.CLAIM, Step.RUN, Step.RECLAIM, Step.RECLAIM, Step.RECLAIM, Step.REPORT
    ]  # fmt: skip
    sent = [(request.operation, request.client_id) for request in fake_queue.requests[3:]]
    assert sent == [
        *[("reclaimTask", f"task-client/{number}") for number in (1, 2, 3)],
        ("createArtifact", "task-client/4"),
        ("upload", None),
        ("reportCompleted", "task-client/4"),
    ]


@pytest.mark.parametrize("answer", [401, 404, 409])
def test_a_refused_reclaim_stops_the_task_and_nothing_is_reported(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path, answer: int
) -> None:
    pid = tmp_path / "pid"
    task_id = fake_queue.task({"command": f"echo $$ > {pid}; {LONG_COMMAND}"})
    fake_queue.script("reclaimTask", answer)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, lambda: written(pid), lambda: move(clock, minutes=18))
    session.start().end()
    assert has_ended(*written(pid))
    assert reports(fake_queue) == []
    assert session.fields(Step.CLAIM_LOST)[0]["task_id"] == task_id


def test_a_failed_reclaim_is_repeated_until_the_claim_expires(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    fake_queue.task({"command": f"echo $$ > {pid}; {LONG_COMMAND}"})
    fake_queue.script("reclaimTask", b"{}", *[503] * 18)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, lambda: written(pid), lambda: move(clock, minutes=17, seconds=1))
    session.on(Step.FAILURE, lambda: move(clock, minutes=2))
    session.start().end()
    said = ["reclaimTask: the answer is not as documented", "reclaimTask: answered 503"]
    assert session.failures()[:2] == said
    assert len(session.fields(Step.CLAIM_LOST)) == 1
    assert has_ended(*written(pid))
    assert reports(fake_queue) == []


def test_a_report_does_not_wait_for_a_reclaim_under_way(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done, reported = tmp_path / "done", threading.Event()
    fake_queue.task({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    waited = []

    def reclaim_until_the_report() -> None:
        done.touch()
        waited.append(reported.wait(LONG))

    fake_queue.script("reclaimTask", reclaim_until_the_report)
    fake_queue.script("reportCompleted", reported.set)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, lambda: move(clock, minutes=18))
    session.start().end()
    assert reports(fake_queue) == [("reportCompleted", None)]
    assert wait_until(lambda: waited == [True])


def test_a_report_is_repeated_after_503_and_not_after_409(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": "true"})
    fake_queue.script("reportCompleted", 503, 409)
    session = work()
    assert len(fake_queue.requests_for("reportCompleted")) == 2
    [failed] = session.fields(Step.FAILURE)
    assert failed["result"] == "completed"
    assert "409" in failed["detail"]


def test_a_worker_that_stops_kills_the_task_and_reports_worker_shutdown(
    fake_queue: FakeQueue, prepare: Prepare, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    fake_queue.task({"command": f"trap '' TERM; echo $$ > {pid}; {LONG_COMMAND}"})
    session = prepare()
    session.on(Step.RUN, lambda: written(pid), session.worker.stop)
    session.start().end()
    assert reports(fake_queue) == [("reportException", "worker-shutdown")]
    assert has_ended(*written(pid))


def test_a_task_claimed_while_the_worker_stops_is_reported_worker_shutdown_and_not_run(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    fake_queue.task({"command": "true"})
    session = prepare()
    fake_queue.script("claimTask", session.worker.stop)
    session.start().end()
    assert reports(fake_queue) == [("reportException", "worker-shutdown")]
    assert not session.fields(Step.RUN)


def run_task(context: Context, read: Callable[[threading.Event], object]) -> None:
    """Run a long command in a worker that calls ``read`` with its ``stopping`` while it reads the payload."""

    class Payload(dict[str, Any]):
        def get(self, *names: Any) -> Any:
            read(context.stopping)
            return super().get(*names)

    with closing(QueueClient(context)) as client:
        claim = client.claim_task("fN1SbArXTPSVFNUvaOlinQ", 0, {})
    TaskRun(context, replace(claim, payload=Payload(command=LONG_COMMAND))).run()


def test_a_command_that_starts_while_the_worker_stops_is_killed(
    fake_queue: FakeQueue, context: Context
) -> None:
    run_task(context, threading.Event.set)
    assert reports(fake_queue) == [("reportException", "worker-shutdown")]


def test_a_failure_before_the_command_starts_is_reported_as_internal_error(
    fake_queue: FakeQueue, context: Context
) -> None:
    run_task(context, lambda _: dict[str, int]()["for a test"])
    assert reports(fake_queue) == [("reportException", "internal-error")]
    assert fake_queue.log == "[worker] KeyError: 'for a test'\n"


def move(clock: FakeClock, **forward: float) -> None:
    clock.ahead += timedelta(**forward)


def ends_soon(pid: int) -> bool:
    """Whether an orphan ends: it is killed at once, but its new parent has to notice."""
    return wait_until(lambda: has_ended(pid) or is_zombie(pid))


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
