"""One claimed run: real commands, and a queue that says what a test needs."""

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Step

from .conftest import LONG, FakeClock, Prepare, wait_until
from .stand_in import StandIn

LONG_COMMAND = f"sleep {2 * LONG}"


def reports(stand_in: StandIn) -> list[tuple[str, Any]]:
    asked = [request for request in stand_in.requests if request.operation.startswith("report")]
    return [(request.operation, request.body["reason"] if request.raw_body else None) for request in asked]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_exit_code_0_is_completed(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task({"command": ["true"]})
    work()
    assert reports(stand_in) == [("reportCompleted", None)]


@pytest.mark.parametrize("command", [["false"], "exit 3", "no-such-command-anywhere", "kill -9 $$"])
def test_code_that_ran_and_did_not_exit_0_is_failed(stand_in: StandIn, work: Prepare, command: Any) -> None:
    stand_in.task({"command": command})
    work()
    assert reports(stand_in) == [("reportFailed", None)]


def test_the_exit_code_is_told(stand_in: StandIn, work: Prepare) -> None:
    task_id = stand_in.task({"command": "kill -9 $$"})
    assert work().fields(Step.EXITED) == [{"task_id": task_id, "run_id": 0, "exit_code": -9}]


def test_a_command_has_its_env_its_name_and_none_of_the_workers_secrets(
    stand_in: StandIn, work: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKCLUSTER_ACCESS_TOKEN", "the-workers-own-token")
    task_id = stand_in.task(
        {"command": ["env"], "env": {"GREETING": "h\u00e9llo", "HOME": "/nowhere"}}, run_id=3
    )
    lines = work().output.read_text().splitlines()
    for line in ("GREETING=h\u00e9llo", "HOME=/nowhere", f"TASK_ID={task_id}", "RUN_ID=3"):
        assert line in lines
    assert f"PATH={os.environ['PATH']}" in lines
    assert not [line for line in lines if "TASKCLUSTER" in line]


def test_a_command_runs_in_an_empty_directory_that_is_removed(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task({"command": "ls -A; touch left-behind; pwd"})
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
def test_a_payload_that_no_run_could_execute_is_malformed_before_anything_runs(
    stand_in: StandIn, work: Prepare, payload: Any
) -> None:
    stand_in.task(payload)
    session = work()
    assert reports(stand_in) == [("reportException", "malformed-payload")]
    assert not session.fields(Step.RUN)
    assert session.fields(Step.PAYLOAD_MALFORMED)[0]["detail"].startswith("payload.")


def test_a_worker_that_cannot_start_a_command_for_its_own_reasons_reports_internal_error(
    stand_in: StandIn, prepare: Prepare
) -> None:
    stand_in.task({"command": ["true"]})
    session = prepare(max_tasks=1)
    session.file.close()  # where the command's output was to go
    session.start().end()
    assert reports(stand_in) == [("reportException", "internal-error")]
    assert session.fields(Step.INTERNAL_ERROR)[0]["detail"].startswith("ValueError")


def test_a_command_beyond_max_run_time_is_killed_with_its_children_and_failed(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock
) -> None:
    stand_in.task({"command": f"({LONG_COMMAND}) & echo $! $$; {LONG_COMMAND}", "maxRunTime": 900})
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, lambda: move(clock, minutes=16))
    session.start().end()
    assert reports(stand_in) == [("reportFailed", None)]
    assert session.fields(Step.TIME_OVER)[0]["max_run_time"] == 900
    child, leader = session.output.read_text().split()[:2]
    assert is_gone(int(leader))
    assert stops_soon(int(child))


def test_what_a_command_leaves_behind_is_killed_when_it_ends(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task({"command": f"({LONG_COMMAND}) & echo $!"})
    assert stops_soon(int(work().output.read_text()))
    assert reports(stand_in) == [("reportCompleted", None)]


def test_a_claim_is_reclaimed_before_it_ends_and_the_task_goes_on(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    stand_in.task({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
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
    asked = [
        request for request in stand_in.requests if request.operation in ("reclaimTask", "reportCompleted")
    ]
    assert [request.client_id for request in asked] == [f"task-client/{number}" for number in (1, 2, 3, 4)]


@pytest.mark.parametrize("status", [401, 404, 409])
def test_a_refused_reclaim_stops_the_task_and_nothing_is_reported(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock, status: int
) -> None:
    task_id = stand_in.task({"command": f"echo $$; {LONG_COMMAND}"})
    stand_in.script("reclaimTask", status)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, lambda: move(clock, minutes=18))
    session.start().end()
    assert is_gone(int(session.output.read_text()))
    assert reports(stand_in) == []
    assert session.fields(Step.CLAIM_LOST)[0]["task_id"] == task_id


def test_a_reclaim_that_fails_is_tried_again_until_the_claim_is_over(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock
) -> None:
    stand_in.task({"command": f"echo $$; {LONG_COMMAND}"})
    stand_in.script("reclaimTask", *[503] * 18)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, lambda: move(clock, minutes=17, seconds=1))
    session.on(Step.RECLAIM_FAILED, lambda: move(clock, minutes=2))
    session.start().end()
    assert len(session.fields(Step.RECLAIM_FAILED)) == 2
    assert session.names()[-1] is Step.CLAIM_LOST
    assert is_gone(int(session.output.read_text()))
    assert reports(stand_in) == []


def test_a_reclaim_that_fails_once_costs_nothing(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    stand_in.task({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    stand_in.script("reclaimTask", *[503] * 6)
    session = prepare(max_tasks=1)
    session.on(Step.RUN, lambda: move(clock, minutes=17, seconds=1))
    session.on(Step.RECLAIM_FAILED, lambda: move(clock, minutes=2))
    session.on(Step.RECLAIM, done.touch)
    session.start().end()
    assert reports(stand_in) == [("reportCompleted", None)]


def test_a_report_is_repeated_on_503_and_given_up_on_409(stand_in: StandIn, prepare: Prepare) -> None:
    stand_in.task({"command": "true"})
    stand_in.script("reportCompleted", 503, 409)
    session = prepare(max_tasks=1).start()
    session.end()
    assert len(stand_in.asked("reportCompleted")) == 2
    [failed] = session.fields(Step.REPORT_FAILED)
    assert failed["result"] == "completed"
    assert "409" in failed["detail"]


def test_a_worker_that_is_told_to_stop_kills_the_task_and_reports_worker_shutdown(
    stand_in: StandIn, prepare: Prepare
) -> None:
    stand_in.task({"command": f"trap '' TERM; echo $$; {LONG_COMMAND}"})
    session = prepare()
    session.on(Step.RUN, session.wait_for_output, session.worker.stop)
    session.start().end()
    assert reports(stand_in) == [("reportException", "worker-shutdown")]
    assert is_gone(int(session.output.read_text().split()[0]))


def test_a_task_that_is_claimed_while_the_worker_stops_is_given_back_without_being_run(
    stand_in: StandIn, prepare: Prepare
) -> None:
    stand_in.task({"command": "true"})
    session = prepare()
    stand_in.script("claimTask", session.worker.stop)
    session.start().end()
    assert reports(stand_in) == [("reportException", "worker-shutdown")]
    assert not session.fields(Step.RUN)


def test_kill_leaves_no_command_running(stand_in: StandIn, prepare: Prepare) -> None:
    stand_in.task({"command": f"echo $$; {LONG_COMMAND}"})
    session = prepare(max_tasks=1)
    session.on(Step.RUN, session.wait_for_output, session.worker.kill)
    session.start().end()
    assert session.fields(Step.EXITED)[0]["exit_code"] == -signal.SIGKILL


def move(clock: FakeClock, **forward: float) -> None:
    clock.ahead += timedelta(**forward)


def stops_soon(pid: int) -> bool:
    """Whether an orphan ends: it is killed at once, but its new parent has to notice."""
    return wait_until(lambda: is_gone(pid) or is_zombie(pid))


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
