"""The loop of a worker that asks for claims in a long poll."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Protocol, QueueRefused, Step

from .conftest import FakeClock, Prepare
from .fake_queue import CLIENT_ID, FakeQueue

DONE = {"command": ["true"]}
CLAIMWORK = {"protocol": Protocol.CLAIMWORK}


def test_the_steps_follow_the_chart_of_claim_work(fake_queue: FakeQueue, work: Prepare) -> None:
    task_id = fake_queue.work(DONE)
    session = work(**CLAIMWORK)
    assert fake_queue.protocol() == ["claimWork", "reportCompleted"]
    assert session.names() == [Step.CLAIM, Step.RUN, Step.EXITED, Step.REPORT]
    assert session.fields(Step.CLAIM_WORK) == [{"tasks": 1, "claims": 1}]
    assert session.fields(Step.REPORT) == [{"task_id": task_id, "run_id": 0, "result": "completed"}]


def test_the_worker_requests_no_more_than_max_tasks_in_its_own_name(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    fake_queue.work(DONE)
    work(**CLAIMWORK, capacity=3)
    [request] = fake_queue.requests_for("claimWork")
    assert request.client_id == CLIENT_ID
    assert request.target == "/v1/claim-work/provisioner/type"
    assert request.body == {"workerGroup": "group", "workerId": "id", "tasks": 1}  # no more than max_tasks


@pytest.mark.parametrize(("capacity", "tasks"), [(1, 1), (5, 5), (40, 32)])
def test_the_worker_requests_as_many_tasks_as_its_capacity_up_to_32(
    fake_queue: FakeQueue, prepare: Prepare, capacity: int, tasks: int
) -> None:
    session = prepare(**CLAIMWORK, capacity=capacity).start()
    session.wait_for(Step.CLAIM_WORK)
    assert fake_queue.requests_for("claimWork")[0].body["tasks"] == tasks


def test_all_tasks_of_one_answer_run_at_once(fake_queue: FakeQueue, work: Prepare, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    for _ in range(3):
        fake_queue.work(
            {"command": f"touch {meeting}/$TASK_ID; until [ $(ls {meeting} | wc -l) = 3 ]; do :; done"}
        )
    session = work(**CLAIMWORK, capacity=3, max_tasks=3)
    assert [fields["result"] for fields in session.fields(Step.REPORT)] == ["completed"] * 3


def test_the_claims_newest_credentials_reclaim_upload_and_report(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    fake_queue.work({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    session = prepare(**CLAIMWORK, max_tasks=1)
    session.on(Step.RUN, lambda: ahead(clock, timedelta(minutes=17, seconds=1)))
    session.on(Step.RECLAIM, done.touch)
    session.start().end()
    requests = [(request.operation, request.client_id) for request in fake_queue.requests]
    assert requests == [
        ("claimWork", CLIENT_ID),
        ("createArtifact", "task-client/1"),
        ("reclaimTask", "task-client/1"),
        ("createArtifact", "task-client/2"),
        ("upload", None),
        ("createArtifact", "task-client/2"),
        ("reportCompleted", "task-client/2"),
    ]


def test_a_long_poll_that_took_the_poll_interval_is_repeated_at_once(
    fake_queue: FakeQueue, work: Prepare, clock: FakeClock
) -> None:
    def take_20_s() -> None:
        ahead(clock, timedelta(seconds=20))

    fake_queue.script("claimWork", take_20_s, take_20_s, lambda: fake_queue.work(DONE))
    work(**CLAIMWORK, poll_interval=timedelta(seconds=7))
    assert len(fake_queue.requests_for("claimWork")) == 3
    assert pauses(clock) == []


def test_an_empty_answer_that_came_at_once_is_followed_by_the_rest_of_the_poll_interval(
    fake_queue: FakeQueue, work: Prepare, clock: FakeClock
) -> None:
    fake_queue.script("claimWork", 200, lambda: fake_queue.work(DONE))
    work(**CLAIMWORK, poll_interval=timedelta(seconds=7))
    [pause] = pauses(clock)
    assert 6 < pause <= 7


def test_a_claim_work_answered_503_is_repeated_with_growing_delays(
    fake_queue: FakeQueue, work: Prepare, clock: FakeClock
) -> None:
    fake_queue.work(DONE)
    fake_queue.script("claimWork", *[503] * 7)
    session = work(**CLAIMWORK, poll_interval=timedelta(seconds=7), live_log=False)
    assert clock.waits[:7] == [0.5, 1, 2, 4, 8, 7, 0.5]
    [failed] = session.fields(Step.CLAIM_WORK_FAILED)
    assert failed["detail"] == "claimWork: answered 503"
    assert len(session.fields(Step.REPORT)) == 1


@pytest.mark.parametrize("answer", [b"", b"[]", {"tasks": None}, {"tasks": [{}]}])
def test_an_answer_that_is_not_understood_is_a_failure_step_and_is_repeated(
    fake_queue: FakeQueue, work: Prepare, answer: Any
) -> None:
    fake_queue.script("claimWork", answer, lambda: fake_queue.work(DONE))
    session = work(**CLAIMWORK)
    assert len(session.fields(Step.CLAIM_WORK_FAILED)) == 1
    assert len(session.fields(Step.REPORT)) == 1


def test_a_worker_whose_claim_work_is_refused_ends(fake_queue: FakeQueue, prepare: Prepare) -> None:
    fake_queue.script("claimWork", 403)
    session = prepare(**CLAIMWORK).start()
    with pytest.raises(QueueRefused, match="claimWork: 403"):
        session.end()
    assert fake_queue.operations() == ["claimWork"]


def test_a_worker_that_stops_disconnects_from_the_queue(fake_queue: FakeQueue, prepare: Prepare) -> None:
    is_requested, may_answer = threading.Event(), threading.Event()

    def wait() -> None:
        is_requested.set()
        may_answer.wait()

    fake_queue.script("claimWork", wait)
    session = prepare(**CLAIMWORK).start()
    assert is_requested.wait(60)
    session.worker.stop()
    session.end()  # while the queue has not answered
    may_answer.set()
    assert session.steps == []


def test_a_worker_that_stops_reports_worker_shutdown_for_each_new_claim(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    for _ in range(2):
        fake_queue.work(DONE)
    session = prepare(**CLAIMWORK, capacity=2)
    session.on(Step.CLAIM_WORK, session.worker.stop)
    session.start().end()
    assert [report.body for report in fake_queue.requests_for("reportException")] == [
        {"reason": "worker-shutdown"}
    ] * 2
    assert not session.fields(Step.RUN)


def pauses(clock: FakeClock) -> list[float]:
    """The waits that are neither for a log to grow nor for a claim to end."""
    return [seconds for seconds in clock.waits if 0.2 < seconds < 100]


def ahead(clock: FakeClock, much: timedelta) -> None:
    clock.ahead += much
