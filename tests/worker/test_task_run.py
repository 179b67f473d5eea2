"""A claimed run: real commands, and a queue that answers as a test scripts it."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Step

from .conftest import LONG, FakeClock, Prepare, wait_until
from .fake_queue import FakeQueue

LONG_COMMAND = f"sleep {2 * LONG}"


def reports(fake_queue: FakeQueue) -> list[tuple[str, Any]]:
    sent = [request for request in fake_queue.requests if request.operation.startswith("report")]
    return [(request.operation, request.body["reason"] if request.raw_body else None) for request in sent]


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_exit_code_0_is_reported_as_completed(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": ["true"]})
    work()
    assert reports(fake_queue) == [("reportCompleted", None)]


@pytest.mark.parametrize("command", [["false"], "exit 3", "no-such-command-anywhere", "kill -9 $$"])
def test_any_other_exit_code_is_reported_as_failed(
    fake_queue: FakeQueue, work: Prepare, command: Any
) -> None:
    fake_queue.task({"command": command})
    work()
    assert reports(fake_queue) == [("reportFailed", None)]


def test_the_exited_step_has_the_exit_code(fake_queue: FakeQueue, work: Prepare) -> None:
    task_id = fake_queue.task({"command": "kill -9 $$"})
    assert work().fields(Step.EXITED) == [{"task_id": task_id, "run_id": 0, "exit_code": -9}]


def test_a_command_gets_its_env_its_task_and_run_id_and_no_secret_of_the_worker(
    fake_queue: FakeQueue, work: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKCLUSTER_ACCESS_TOKEN", "the-workers-own-token")
    task_id = fake_queue.task(
        {"command": ["env"], "env": {"GREETING": "h\u00e9llo", "HOME": "/nowhere"}}, run_id=3
    )
    lines = work().output.read_text().splitlines()
    for line in ("GREETING=h\u00e9llo", "HOME=/nowhere", f"TASK_ID={task_id}", "RUN_ID=3"):
        assert line in lines
    assert f"PATH={os.environ['PATH']}" in lines
    assert not [line for line in lines if "TASKCLUSTER" in line]


def test_a_command_runs_in_an_empty_directory_that_is_removed(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task({"command": "ls -A; touch left-behind; pwd"})
    [directory] = work().output.read_text().splitlines()
    assert not Path(directory).exists()


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"command": "true", "env": {"A": 1}},
        {"command": "true", "maxRunTime": "long"},
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
    assert session.fields(Step.PAYLOAD_MALFORMED)[0]["detail"].startswith("payload.")


def test_a_failure_of_the_worker_itself_is_reported_as_internal_error(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    fake_queue.task({"command": ["true"]})
    session = prepare(max_tasks=1)
    session.file.close()  # where the command's output was to go
    session.start().end()
    assert reports(fake_queue) == [("reportException", "internal-error")]
    assert session.fields(Step.INTERNAL_ERROR)[0]["detail"].startswith("ValueError")


def test_a_command_beyond_max_run_time_is_killed_with_its_children_and_reported_as_failed(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock
) -> None:
    fake_queue.task({"command": f"({LONG_COMMAND}) & echo $! $$; {LONG_COMMAND}", "maxRunTime": 900})
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, lambda: move(clock, minutes=16))
    session.start().end()
    assert reports(fake_queue) == [("reportFailed", None)]
    assert session.fields(Step.TIME_OVER)[0]["max_run_time"] == 900
    child, leader = session.output.read_text().split()[:2]
    assert has_ended(int(leader))
    assert ends_soon(int(child))


def test_processes_that_a_command_leaves_behind_are_killed_when_it_ends(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    fake_queue.task({"command": f"({LONG_COMMAND}) & echo $!"})
    assert ends_soon(int(work().output.read_text()))
    assert reports(fake_queue) == [("reportCompleted", None)]


def test_a_claim_is_reclaimed_before_it_ends_and_the_task_goes_on(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    fake_queue.task({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    session = prepare(max_tasks=1)
    session.on(Step.RUN, lambda: move(clock, minutes=17, seconds=1))

    def reclaimed() -> None:
        if len(session.fields(Step.RECLAIM)) == 3:
            done.touch()
        else:
            move(clock, minutes=17, seconds=1)

    session.on(Step.RECLAIM, reclaimed)
    session.start().end()
    assert session.names() == [
        Step.POLL_URLS, Step.CLAIM, Step.HELD, Step.RUN,
        Step.RECLAIM, Step.RECLAIM, Step.RECLAIM, Step.EXITED, Step.REPORT,
    ]  # fmt: skip
    sent = [
        request for request in fake_queue.requests if request.operation in ("reclaimTask", "reportCompleted")
    ]
    assert [request.client_id for request in sent] == [f"task-client/{number}" for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("status", [401, 404, 409])
def test_a_refused_reclaim_stops_the_task_and_nothing_is_reported(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, status: int
) -> None:
    task_id = fake_queue.task({"command": f"echo $$; {LONG_COMMAND}"})
    fake_queue.script("reclaimTask", status)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, lambda: move(clock, minutes=18))
    session.start().end()
    assert has_ended(int(session.output.read_text()))
    assert reports(fake_queue) == []
    assert session.fields(Step.CLAIM_LOST)[0]["task_id"] == task_id


def test_a_failed_reclaim_is_repeated_until_the_claim_expires(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock
) -> None:
    fake_queue.task({"command": f"echo $$; {LONG_COMMAND}"})
    fake_queue.script("reclaimTask", *[503] * 18)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, lambda: move(clock, minutes=17, seconds=1))
    session.on(Step.RECLAIM_FAILED, lambda: move(clock, minutes=2))
    session.start().end()
    assert len(session.fields(Step.RECLAIM_FAILED)) == 2
    assert session.names()[-1] is Step.CLAIM_LOST
    assert has_ended(int(session.output.read_text()))
    assert reports(fake_queue) == []


def test_a_task_completes_although_one_reclaim_failed(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    fake_queue.task({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    fake_queue.script("reclaimTask", *[503] * 6)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, lambda: move(clock, minutes=17, seconds=1))
    session.on(Step.RECLAIM_FAILED, lambda: move(clock, minutes=2))
    session.on(Step.RECLAIM, done.touch)
    session.start().end()
    assert reports(fake_queue) == [("reportCompleted", None)]


def test_a_report_is_repeated_after_503_and_not_after_409(fake_queue: FakeQueue, prepare: Prepare) -> None:
    fake_queue.task({"command": "true"})
    fake_queue.script("reportCompleted", 503, 409)
    session = prepare(max_tasks=1).start()
    session.end()
    assert len(fake_queue.requests_for("reportCompleted")) == 2
    [failed] = session.fields(Step.REPORT_FAILED)
    assert failed["result"] == "completed"
    assert "409" in failed["detail"]


def test_a_worker_that_stops_kills_the_task_and_reports_worker_shutdown(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    fake_queue.task({"command": f"trap '' TERM; echo $$; {LONG_COMMAND}"})
    session = prepare()
    session.on(Step.RUN, session.wait_for_output, session.worker.stop)
    session.start().end()
    assert reports(fake_queue) == [("reportException", "worker-shutdown")]
    assert has_ended(int(session.output.read_text().split()[0]))


def test_a_task_claimed_while_the_worker_stops_is_reported_worker_shutdown_and_not_run(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    fake_queue.task({"command": "true"})
    session = prepare()
    fake_queue.script("claimTask", session.worker.stop)
    session.start().end()
    assert reports(fake_queue) == [("reportException", "worker-shutdown")]
    assert not session.fields(Step.RUN)


def test_kill_ends_the_command_of_a_task(fake_queue: FakeQueue, prepare: Prepare) -> None:
    fake_queue.task({"command": f"echo $$; {LONG_COMMAND}"})
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, session.worker.kill)
    session.start().end()
    assert session.fields(Step.EXITED)[0]["exit_code"] == -signal.SIGKILL


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
