"""The loop of a worker that asks for claims in a long poll."""

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.worker import Protocol, QueueRefused, Step

from .conftest import FakeClock, Prepare
from .stand_in import CLIENT_ID, StandIn

DONE = {"command": ["true"]}
CLAIMWORK = {"protocol": Protocol.CLAIMWORK}


def test_the_chart_step_by_step(stand_in: StandIn, work: Prepare) -> None:
    task_id = stand_in.work(DONE)
    session = work(**CLAIMWORK)
    assert stand_in.protocol() == ["claimWork", "reportCompleted"]
    assert session.names() == [Step.CLAIM, Step.RUN, Step.EXITED, Step.REPORT]
    assert session.fields(Step.CLAIM_WORK) == [{"tasks": 1, "claims": 1}]
    assert session.fields(Step.REPORT) == [{"task_id": task_id, "run_id": 0, "result": "completed"}]


def test_it_asks_by_its_name_for_as_many_tasks_as_it_has_room_for(stand_in: StandIn, work: Prepare) -> None:
    stand_in.work(DONE)
    work(**CLAIMWORK, capacity=3)
    [asked] = stand_in.asked("claimWork")
    assert asked.client_id == CLIENT_ID
    assert asked.target == "/v1/claim-work/provisioner/type"
    assert asked.body == {"workerGroup": "group", "workerId": "id", "tasks": 1}  # no more than max_tasks


@pytest.mark.parametrize(("capacity", "asked"), [(1, 1), (5, 5), (40, 32)])
def test_it_never_asks_for_more_than_32(
    stand_in: StandIn, prepare: Prepare, capacity: int, asked: int
) -> None:
    session = prepare(**CLAIMWORK, capacity=capacity).start()
    session.wait_for(Step.CLAIM_WORK)
    assert stand_in.asked("claimWork")[0].body["tasks"] == asked


def test_all_tasks_of_one_answer_run_at_once(stand_in: StandIn, work: Prepare, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    for _ in range(3):
        stand_in.work(
            {"command": f"touch {meeting}/$TASK_ID; until [ $(ls {meeting} | wc -l) = 3 ]; do :; done"}
        )
    session = work(**CLAIMWORK, capacity=3, max_tasks=3)
    assert [fields["result"] for fields in session.fields(Step.REPORT)] == ["completed"] * 3


def test_the_claims_newest_credentials_reclaim_upload_and_report(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    stand_in.work({"command": f"while [ ! -e {done} ]; do sleep 0.02; done"})
    session = prepare(**CLAIMWORK, max_tasks=1)
    session.on(Step.RUN, lambda: ahead(clock, timedelta(minutes=17, seconds=1)))
    session.on(Step.RECLAIM, done.touch)
    session.start().end()
    asked = [(request.operation, request.client_id) for request in stand_in.requests]
    assert asked == [
        ("claimWork", CLIENT_ID),
        ("createArtifact", "task-client/1"),
        ("reclaimTask", "task-client/1"),
        ("createArtifact", "task-client/2"),
        ("upload", None),
        ("createArtifact", "task-client/2"),
        ("reportCompleted", "task-client/2"),
    ]


def test_a_poll_that_the_queue_has_held_back_is_repeated_at_once(
    stand_in: StandIn, work: Prepare, clock: FakeClock
) -> None:
    def held_back() -> None:
        ahead(clock, timedelta(seconds=20))

    stand_in.script("claimWork", held_back, held_back, lambda: stand_in.work(DONE))
    work(**CLAIMWORK, poll_interval=timedelta(seconds=7))
    assert len(stand_in.asked("claimWork")) == 3
    assert pauses(clock) == []


def test_a_poll_that_was_answered_with_nothing_at_once_is_not_repeated_before_the_interval_is_over(
    stand_in: StandIn, work: Prepare, clock: FakeClock
) -> None:
    stand_in.script("claimWork", 200, lambda: stand_in.work(DONE))
    work(**CLAIMWORK, poll_interval=timedelta(seconds=7))
    [pause] = pauses(clock)
    assert 6 < pause <= 7


def test_a_queue_that_is_away_is_asked_again_with_growing_delays(
    stand_in: StandIn, work: Prepare, clock: FakeClock
) -> None:
    stand_in.work(DONE)
    stand_in.script("claimWork", *[503] * 7)
    session = work(**CLAIMWORK, poll_interval=timedelta(seconds=7), live_log=False)
    assert clock.waits[:7] == [0.5, 1, 2, 4, 8, 7, 0.5]
    [failed] = session.fields(Step.CLAIM_WORK_FAILED)
    assert failed["detail"] == "claimWork: answered 503"
    assert len(session.fields(Step.REPORT)) == 1


@pytest.mark.parametrize("answer", [b"", b"[]", {"tasks": None}, {"tasks": [{}]}])
def test_an_answer_that_makes_no_sense_is_told_and_asked_for_again(
    stand_in: StandIn, work: Prepare, answer: Any
) -> None:
    stand_in.script("claimWork", answer, lambda: stand_in.work(DONE))
    session = work(**CLAIMWORK)
    assert len(session.fields(Step.CLAIM_WORK_FAILED)) == 1
    assert len(session.fields(Step.REPORT)) == 1


def test_a_worker_that_the_queue_refuses_ends(stand_in: StandIn, prepare: Prepare) -> None:
    stand_in.script("claimWork", 403)
    session = prepare(**CLAIMWORK).start()
    with pytest.raises(QueueRefused, match="claimWork: 403"):
        session.end()
    assert stand_in.operations() == ["claimWork"]


def test_a_worker_that_stops_disconnects_from_the_queue(stand_in: StandIn, prepare: Prepare) -> None:
    asked, answer_at_last = threading.Event(), threading.Event()
    stand_in.script("claimWork", lambda: (asked.set(), answer_at_last.wait()))
    session = prepare(**CLAIMWORK).start()
    assert asked.wait(60)
    session.worker.stop()
    session.end()  # while the queue has not answered
    answer_at_last.set()
    assert session.steps == []


def test_what_the_queue_claims_for_a_worker_that_stops_is_given_back(
    stand_in: StandIn, prepare: Prepare
) -> None:
    for _ in range(2):
        stand_in.work(DONE)
    session = prepare(**CLAIMWORK, capacity=2)
    session.on(Step.CLAIM_WORK, session.worker.stop)
    session.start().end()
    assert [report.body for report in stand_in.asked("reportException")] == [
        {"reason": "worker-shutdown"}
    ] * 2
    assert not session.fields(Step.RUN)


def pauses(clock: FakeClock) -> list[float]:
    """The waits that are neither for a log to grow nor for a claim to end."""
    return [seconds for seconds in clock.waits if 0.2 < seconds < 100]


def ahead(clock: FakeClock, much: timedelta) -> None:
    clock.ahead += much
