"""How a worker finds, claims and deletes, in each of the three protocols."""

import base64
import json
import re
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from legacy_queue.worker import Protocol, Refused, Step
from tests.system.processes import wait_until

from .conftest import FakeClock, Prepare
from .scripted_queue import ROOT, Script, ScriptedQueue

DRAFT, DEPLOYED, CLAIMWORK = Protocol.DRAFT, Protocol.DEPLOYED, Protocol.CLAIMWORK
OF_AZURE = pytest.mark.parametrize("protocol", [DRAFT, DEPLOYED])
DONE = {"command": ["true"]}
NAME = {"workerGroup": "group", "workerId": "id"}
CHARTS = {
    DRAFT: ["pollTaskUrls", "poll", "claimTask", "reportCompleted"],
    DEPLOYED: ["pollTaskUrls", "poll", "claimTask", "delete", "reportCompleted"],
    CLAIMWORK: ["claimWork", "reportCompleted"],
}


@pytest.mark.parametrize("protocol", Protocol)
def test_a_task_goes_through_the_chart_of_its_protocol(
    queue: ScriptedQueue, work: Prepare, protocol: Protocol
) -> None:
    task_id = queue.task(DONE)
    session = work(protocol=protocol)
    assert queue.protocol() == CHARTS[protocol]
    [claim] = [request for request in queue.requests if request.operation.startswith("claim")]
    assert claim.client_id == ROOT.client_id
    if protocol is CLAIMWORK:
        assert claim.body == {**NAME, "tasks": 1}
    elif protocol is DRAFT:
        assert set(claim.body) == {*NAME, "messageId", "receipt", "signature"}
    else:
        assert claim.body == NAME
    assert queue.messages() == []
    assert session.fields(Step.REPORT) == [{"task_id": task_id, "run_id": 0, "result": "completed"}]


@OF_AZURE
@pytest.mark.parametrize("text", [None, "bm9uc2Vuc2U="])
def test_only_a_deployed_worker_deletes_what_it_cannot_claim_and_both_claim_the_next(
    queue: ScriptedQueue, work: Prepare, protocol: Protocol, text: str | None
) -> None:
    if text:
        queue.message(text)
    else:
        queue.task(DONE)
        queue.script("claimTask", 409)
    queue.task(DONE)
    session = work(protocol=protocol)
    assert queue.operations().count("delete") == (2 if protocol is DEPLOYED else 0)
    assert len(queue.messages()) == (0 if protocol is DEPLOYED else 1)
    said = "the message names no task" if text else "claimTask: 409 Scripted: says 409"
    assert session.failures() == [said]


@OF_AZURE
@pytest.mark.parametrize("answers", [[503] * 6, [b"{}"], [b"[" * 100_000]])
def test_the_message_of_an_unanswered_claim_is_not_deleted(
    queue: ScriptedQueue, work: Prepare, protocol: Protocol, answers: list[Script]
) -> None:
    queue.task(DONE)
    queue.script("claimTask", *answers)
    queue.script("poll", 200, lambda: queue.task(DONE))
    session = work(protocol=protocol)
    assert len(queue.messages()) == 1
    assert len(session.failures()) == 1


def test_the_worker_runs_the_run_id_of_the_claim_not_of_the_message(
    queue: ScriptedQueue, work: Prepare, clock: FakeClock
) -> None:
    claim = {
        "status": {"taskId": queue.task(DONE)},
        "runId": 2,
        "takenUntil": (clock.now() + timedelta(hours=1)).isoformat(),
        "task": {"payload": DONE, "expires": ""},
        "credentials": {"clientId": ROOT.client_id, "accessToken": ROOT.access_token},
    }
    queue.script("claimTask", json.dumps(claim).encode())
    assert work().fields(Step.RUN)[0]["run_id"] == 2
    assert "/runs/2/" in queue.requests[-1].target


def test_queues_are_polled_in_order_and_from_the_first_again_after_each_message(
    queue: ScriptedQueue, prepare: Prepare, clock: FakeClock
) -> None:
    lowest = queue.task(DONE, priority="lowest")
    middle = queue.task(DONE, priority="medium")
    session = prepare(max_tasks=3)
    session.on(Step.CLAIM, lambda: len(session.fields(Step.CLAIM)) == 2 and queue.task(DONE))
    session.run()
    assert [fields["task_id"] for fields in session.fields(Step.RUN)][:2] == [middle, lowest]
    polled = [fields["queue"] for fields in session.fields(Step.POLL)]
    assert polled == [1, 2, 3, 4, *range(1, 8), 1]
    assert clock.pauses == []


def test_the_worker_pauses_only_at_the_end_of_the_list(
    queue: ScriptedQueue, work: Prepare, clock: FakeClock
) -> None:
    queue.script("poll", *[200] * 14, lambda: queue.task(DONE))
    work(poll_interval=timedelta(seconds=7))
    assert clock.pauses == [7, 7]
    assert len(queue.requests_for("poll")) == 15


def test_poll_urls_are_requested_again_five_minutes_before_they_expire(
    queue: ScriptedQueue, work: Prepare, clock: FakeClock
) -> None:
    early: list[Script] = [*[200] * 6, lambda: clock.advance(minutes=24.5)]
    queue.script("poll", *early, *[200] * 6, lambda: clock.advance(minutes=0.6), lambda: queue.task(DONE))
    work()
    polls = ["poll"] * 7
    assert queue.protocol()[:17] == ["pollTaskUrls", *polls, *polls, "pollTaskUrls", "poll"]


def test_poll_urls_that_azure_refuses_are_requested_again(queue: ScriptedQueue, work: Prepare) -> None:
    queue.script("poll", 403, b"not XML", *[200] * 4, 403, lambda: queue.task(DONE))
    session = work()
    assert session.failures()[0].startswith("poll: 403")
    assert queue.protocol()[:9] == ["pollTaskUrls", *["poll"] * 7, "pollTaskUrls"]


@pytest.mark.parametrize("operation", ["pollTaskUrls", "claimWork"])
@pytest.mark.parametrize("answers", [[503] * 6, [b"{}"], [b'{"tasks": [{}], "queues": [{}]}']])
def test_a_worker_goes_on_after_an_answer_that_is_missing_or_not_as_documented(
    queue: ScriptedQueue, work: Prepare, operation: str, answers: list[Script]
) -> None:
    is_claim_work = operation == "claimWork"
    queue.script(operation, *answers)
    queue.task(DONE)
    session = work(protocol=CLAIMWORK if is_claim_work else DRAFT)
    assert len(session.failures()) == 1
    assert len(session.fields(Step.REPORT)) == 1


def test_a_worker_that_the_queue_refuses_ends_after_its_running_tasks(
    queue: ScriptedQueue, prepare: Prepare, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    queue.task({"command": f"until [ -e {gate} ]; do sleep 0.02; done"})
    queue.script("claimWork", 200, 403)
    session = prepare(protocol=CLAIMWORK, capacity=2, max_tasks=2).start()
    wait_until(lambda: len(queue.requests_for("claimWork")) == 2)
    gate.touch()
    with pytest.raises(Refused, match="claimWork: 403"):
        session.end()
    assert queue.protocol() == ["claimWork", "claimWork", "reportCompleted"]


@OF_AZURE
def test_a_message_that_arrives_while_the_worker_stops_is_not_claimed(
    queue: ScriptedQueue, prepare: Prepare, protocol: Protocol
) -> None:
    queue.task(DONE)
    session = prepare(capacity=3, protocol=protocol)
    queue.script("poll", session.worker.stop)
    session.run()
    assert queue.protocol() == ["pollTaskUrls", "poll"]


def test_a_worker_that_stops_does_not_claim_the_retry_of_its_own_task(
    queue: ScriptedQueue, prepare: Prepare
) -> None:
    queue.task({"command": ["sleep", "1000"]}, retries=5)
    session = prepare(protocol=CLAIMWORK, capacity=2, max_tasks=2)
    reported = threading.Event()
    is_early = list[bool]()

    def stop_before_the_answer() -> None:
        session.wait_for(Step.RUN)
        session.worker.stop()
        session.wait_for(Step.FAILURE)  # the command was killed
        is_early.append(reported.wait(0.2))

    queue.script("claimWork", 200, stop_before_the_answer)
    queue.script("reportException", reported.set)
    session.run()
    assert queue.protocol() == ["claimWork", "claimWork", "reportException"]
    assert is_early == [False]


def test_as_many_tasks_as_the_capacity_run_at_once(
    queue: ScriptedQueue, work: Prepare, tmp_path: Path
) -> None:
    gate = f"touch {tmp_path}/$TASK_ID; until [ $(ls {tmp_path} | wc -l) = 3 ]; do sleep 0.02; done"
    for _ in range(3):
        queue.task({"command": gate})
    session = work(capacity=3, max_tasks=3)
    assert [fields["result"] for fields in session.fields(Step.REPORT)] == ["completed"] * 3


def test_a_run_that_is_claimed_by_two_messages_runs_once(
    queue: ScriptedQueue, prepare: Prepare, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    task_id = queue.task({"command": f"until [ -e {gate} ]; do sleep 0.02; done"})
    session = prepare(capacity=2, max_tasks=2, protocol=DEPLOYED).start()
    session.wait_for(Step.CLAIM)
    queue.message(base64.b64encode(json.dumps({"taskId": task_id, "runId": 0}).encode()).decode())
    session.wait_for(Step.CLAIM, times=2)
    other = queue.task(DONE)
    gate.touch()
    session.end()
    assert [fields["task_id"] for fields in session.fields(Step.RUN)] == [task_id, other]
    assert queue.messages() == []


@OF_AZURE
def test_no_step_contains_a_secret(queue: ScriptedQueue, work: Prepare, protocol: Protocol) -> None:
    queue.task(DONE)
    queue.task({"command": "exit 1", "env": {"KEY": "s3cret-env"}})
    queue.script("poll", 403, 500, 200)
    queue.script("claimTask", 409)
    queue.script("delete", 400)
    queue.script("upload", 403)
    queue.script("reportFailed", 409)
    steps = repr(work(protocol=protocol).steps)
    answers = b"".join(queue.answers).decode()
    names = 'PopReceipt>([^<]+)|MessageText>([^<]+)|sig(?:nature)?=([^&"]+)|accessToken":\\s*"([^"]+)'
    secrets = {secret for found in re.findall(names, answers) for secret in found if secret}
    assert len(secrets) > 10
    assert [secret for secret in (*secrets, "s3cret", "sig=", ROOT.access_token) if secret in steps] == []
