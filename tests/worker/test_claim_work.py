"""The loop of a worker that asks for claims in a long poll."""

from datetime import timedelta

import pytest

from legacy_queue.worker import Protocol, Refused, Step

from .conftest import FakeClock, Prepare
from .fake_queue import CLIENT_ID, FakeQueue

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
