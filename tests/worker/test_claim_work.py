"""The loop of a worker that asks for claims."""

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from legacy_queue.worker import Protocol, Refused, Step

from .conftest import LONG, FakeClock, Prepare, wait_until
from .fake_queue import CLIENT_ID, FakeQueue, Script

DONE = {"command": ["true"]}
CLAIMWORK = {"protocol": Protocol.CLAIMWORK}


def test_the_steps_follow_the_chart_of_claim_work(fake_queue: FakeQueue, work: Prepare) -> None:
    task_id = fake_queue.work(DONE)
    session = work(**CLAIMWORK)
    assert fake_queue.protocol() == ["claimWork", "reportCompleted"]
    assert session.names() == [Step.CLAIM, Step.RUN, Step.REPORT]
    assert session.fields(Step.POLL) == [{"claims": 1}]
    assert session.fields(Step.REPORT) == [{"task_id": task_id, "run_id": 0, "result": "completed"}]


def test_the_worker_requests_one_task_in_its_own_name(fake_queue: FakeQueue, work: Prepare) -> None:
    for _ in range(2):
        fake_queue.work(DONE)
    work(**CLAIMWORK, max_tasks=2)
    first, second = fake_queue.requests_for("claimWork")
    assert first.client_id == second.client_id == CLIENT_ID
    assert first.target == "/v1/claim-work/provisioner/type"
    assert first.body == second.body == {"workerGroup": "group", "workerId": "id", "tasks": 1}


def test_the_worker_does_not_wait_in_a_long_poll(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.work(DONE)
    work(**CLAIMWORK)
    [request] = fake_queue.requests_for("claimWork")
    assert request.headers["Prefer"] == "wait=0"


def test_a_claim_work_answered_503_or_without_a_claim_is_repeated(
    fake_queue: FakeQueue, work: Prepare, clock: FakeClock
) -> None:
    fake_queue.script("claimWork", *[503] * 7, 200, lambda: fake_queue.work(DONE))
    session = work(**CLAIMWORK, poll_interval=timedelta(seconds=7))
    assert clock.pauses == [0.5, 1, 2, 4, 8, 7, 0.5, 7]
    assert session.failures() == ["claimWork: answered 503"]
    assert len(session.fields(Step.REPORT)) == 1


def test_a_worker_whose_claim_work_is_refused_ends(fake_queue: FakeQueue, prepare: Prepare) -> None:
    fake_queue.script("claimWork", 403)
    session = prepare(**CLAIMWORK).start()
    with pytest.raises(Refused, match="claimWork: 403"):
        session.end()
    assert fake_queue.operations() == ["claimWork"]


def test_a_worker_that_stops_reports_worker_shutdown_for_a_new_claim(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    fake_queue.work(DONE)
    session = prepare(**CLAIMWORK)
    fake_queue.script("claimWork", session.worker.stop)
    session.start().end()
    [report] = fake_queue.requests_for("reportException")
    assert report.body == {"reason": "worker-shutdown"}
    assert not session.fields(Step.RUN)


def test_a_task_is_claimed_at_most_once_while_the_worker_stops(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    task_id, reported = fake_queue.work(DONE), threading.Event()

    def offer_again() -> None:
        fake_queue.to_claim.append(task_id)
        reported.set()

    session = prepare(**CLAIMWORK, capacity=3)
    fake_queue.script("claimWork", session.worker.stop, *[lambda: reported.wait(LONG)] * 2)
    fake_queue.script("reportException", offer_again, offer_again, offer_again)
    session.start().end()
    assert fake_queue.protocol() == ["claimWork", "reportException"]


def test_a_worker_that_stops_does_not_claim_the_retry_of_its_own_task(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    fake_queue.work({"command": ["sleep", "1000"]})
    session, reported, is_early = prepare(**CLAIMWORK, capacity=2), threading.Event(), list[bool]()

    def stop_before_the_answer() -> None:
        session.wait_for(Step.RUN)
        session.worker.stop()
        session.wait_for(Step.FAILURE)  # the command was killed
        is_early.append(reported.wait(0.2))

    fake_queue.script("claimWork", 200, stop_before_the_answer)
    fake_queue.script("reportException", reported.set)
    session.start().end()
    assert fake_queue.protocol() == ["claimWork", "claimWork", "reportException"]
    assert is_early == [False]


def test_a_worker_that_the_queue_refuses_ends_after_its_running_tasks(
    fake_queue: FakeQueue, prepare: Prepare, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    fake_queue.work({"command": f"until [ -e {gate} ]; do sleep 0.02; done"})
    fake_queue.script("claimWork", 200, 403)
    session = prepare(**CLAIMWORK, capacity=2).start()
    assert wait_until(lambda: len(fake_queue.requests_for("claimWork")) == 2)
    session.wait_for(Step.RUN)
    gate.touch()
    with pytest.raises(Refused, match="claimWork: 403"):
        session.end()
    assert fake_queue.protocol() == ["claimWork", "claimWork", "reportCompleted"]


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"tasks": null}', b'{"tasks": [{}]}', b"[" * 100_000])
def test_an_answer_that_is_not_as_documented_is_a_failure_step_and_is_repeated(
    fake_queue: FakeQueue, work: Prepare, answer: Script
) -> None:
    fake_queue.script("claimWork", answer, lambda: fake_queue.work(DONE))
    session = work(**CLAIMWORK)
    assert session.failures() == ["claimWork: the answer is not as documented"]
    assert len(session.fields(Step.REPORT)) == 1
