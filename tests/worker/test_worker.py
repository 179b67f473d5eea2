"""The worker's loop: its polls, claims and deletes, in both protocols."""

from datetime import timedelta
from pathlib import Path

import pytest

from legacy_queue.worker import Protocol, Refused, Step

from .conftest import FakeClock, Prepare
from .fake_queue import CLIENT_ID, FakeQueue, Script

OF_AZURE = pytest.mark.parametrize("protocol", [Protocol.DRAFT, Protocol.DEPLOYED])
DRAFT, DEPLOYED = Protocol.DRAFT, Protocol.DEPLOYED
DONE = {"command": ["true"]}


def test_the_steps_follow_the_chart_of_the_draft(fake_queue: FakeQueue, work: Prepare) -> None:
    task_id = fake_queue.task(DONE)
    session = work()
    assert fake_queue.protocol() == ["pollTaskUrls", "poll", "claimTask", "reportCompleted"]
    assert session.names() == [Step.POLL_URLS, Step.CLAIM, Step.RUN, Step.REPORT]
    assert session.fields(Step.REPORT) == [{"task_id": task_id, "run_id": 0, "result": "completed"}]


def test_a_draft_claim_carries_the_message_its_receipt_and_its_signature(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    task_id = fake_queue.task(DONE)
    [message] = fake_queue.waiting[0]
    work()
    [claim] = fake_queue.requests_for("claimTask")
    assert claim.client_id == CLIENT_ID
    assert claim.target == f"/v1/task/{task_id}/runs/0/claim"
    assert claim.body == {
        "workerGroup": "group",
        "workerId": "id",
        "messageId": message.message_id,
        "receipt": message.receipt,
        "signature": f"signature+of/{task_id}=",
    }


def test_the_steps_follow_the_chart_of_the_deployed_protocol(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task(DONE)
    [message] = fake_queue.waiting[0]
    session = work(protocol=DEPLOYED)
    assert fake_queue.protocol() == ["pollTaskUrls", "poll", "claimTask", "delete", "reportCompleted"]
    assert session.names() == [Step.POLL_URLS, Step.CLAIM, Step.DELETED, Step.RUN, Step.REPORT]
    assert fake_queue.requests_for("claimTask")[0].body == {"workerGroup": "group", "workerId": "id"}
    assert fake_queue.deleted == [message.message_id]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
def test_the_deployed_worker_deletes_the_message_of_a_claim_that_is_refused(
    fake_queue: FakeQueue, work: Prepare, status: int
) -> None:
    refused, taken = fake_queue.task(DONE), fake_queue.task(DONE)
    first, second = fake_queue.waiting[0]
    fake_queue.script("claimTask", status)
    session = work(protocol=DEPLOYED)
    assert fake_queue.deleted == [first.message_id, second.message_id]
    said = f"claimTask: {status} Scripted: says {status}"
    named = {"message_id": first.message_id, "task_id": refused, "run_id": 0, "detail": said}
    assert session.fields(Step.FAILURE) == [named]
    assert session.fields(Step.RUN)[0]["task_id"] == taken


@OF_AZURE
def test_the_message_of_an_unanswered_claim_is_not_deleted(
    fake_queue: FakeQueue, work: Prepare, protocol: Protocol
) -> None:
    fake_queue.task(DONE)
    [message] = fake_queue.waiting[0]
    fake_queue.script("claimTask", *[503] * 6)
    fake_queue.script("poll", 200, 200, 200, lambda: fake_queue.task(DONE))
    session = work(protocol=protocol)
    assert message.message_id not in fake_queue.deleted
    assert session.failures() == ["claimTask: answered 503"]


@pytest.mark.parametrize("status", [200, 409])
def test_the_draft_worker_never_deletes_a_message(fake_queue: FakeQueue, work: Prepare, status: int) -> None:
    fake_queue.message("nonsense")
    fake_queue.task(DONE)
    fake_queue.script("claimTask", status)
    fake_queue.task(DONE)
    work()
    assert fake_queue.requests_for("delete") == []


def test_a_message_that_names_no_task_is_deleted_and_the_next_message_is_claimed(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    nonsense = fake_queue.message("bm9uc2Vuc2U=")
    fake_queue.task(DONE)
    session = work(protocol=DEPLOYED)
    assert fake_queue.deleted[0] == nonsense.message_id
    named = {"message_id": nonsense.message_id, "detail": "the message names no task"}
    assert session.fields(Step.FAILURE) == [named]


def test_a_refused_delete_is_a_failure_step_and_the_task_runs(fake_queue: FakeQueue, work: Prepare) -> None:
    task_id = fake_queue.task(DONE)
    [message] = fake_queue.waiting[0]
    fake_queue.script("delete", 400)
    session = work(protocol=DEPLOYED)
    named = {"message_id": message.message_id, "task_id": task_id, "run_id": 0, "detail": "delete: 400"}
    assert session.fields(Step.FAILURE) == [named]
    assert len(session.fields(Step.REPORT)) == 1


def test_the_worker_runs_the_run_id_of_the_claim_not_of_the_message(
    fake_queue: FakeQueue, work: Prepare
) -> None:
    task_id = fake_queue.task({"command": 'echo "$RUN_ID"'}, run_id=3)
    fake_queue.answered_run_id = 2
    work()
    assert fake_queue.log == "2\n"
    assert fake_queue.requests[-1].target == f"/v1/task/{task_id}/runs/2/completed"


def test_queues_are_polled_in_order_and_from_the_first_again_after_each_message(
    fake_queue: FakeQueue, prepare: Prepare
) -> None:
    lowest = fake_queue.task(DONE, queue=2)
    middle = fake_queue.task(DONE, queue=1)
    session = prepare(max_tasks=3)
    session.on(Step.CLAIM, lambda: len(session.fields(Step.CLAIM)) == 2 and fake_queue.task(DONE, queue=0))
    session.start().end()
    assert [fields["task_id"] for fields in session.fields(Step.RUN)][:2] == [middle, lowest]
    polled = [request.target.split("/")[2] for request in fake_queue.requests_for("poll")]
    assert polled == ["0", "1", "0", "1", "2", "0"]


def test_the_worker_pauses_only_at_the_end_of_the_list(
    fake_queue: FakeQueue, work: Prepare, clock: FakeClock
) -> None:
    fake_queue.script("poll", *[200] * 6, lambda: fake_queue.task(DONE, queue=0))
    work(poll_interval=timedelta(seconds=7))
    assert clock.pauses == [7, 7]
    assert len(fake_queue.requests_for("poll")) == 7


@pytest.mark.parametrize(("life", "margin"), [(30, 5), (6, 3)])
def test_poll_urls_are_requested_again_five_minutes_before_they_expire_or_half_way(
    fake_queue: FakeQueue, work: Prepare, clock: FakeClock, life: float, margin: float
) -> None:
    fake_queue.url_life = timedelta(minutes=life)

    def move(minutes: float) -> None:
        clock.ahead += timedelta(minutes=minutes)

    early: list[Script] = [200, 200, lambda: move(life - margin - 0.5)]
    fake_queue.script("poll", *early, 200, 200, lambda: move(0.6), lambda: fake_queue.task(DONE))
    work()
    polls = ["poll"] * 3
    assert fake_queue.protocol()[:9] == ["pollTaskUrls", *polls, *polls, "pollTaskUrls", "poll"]


def test_poll_urls_that_azure_refuses_are_requested_again(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.script("poll", 403, 403, 403, lambda: fake_queue.task(DONE))
    session = work()
    assert session.failures() == ["poll: 403"] * 3
    assert fake_queue.protocol()[:5] == ["pollTaskUrls", "poll", "poll", "poll", "pollTaskUrls"]


def test_a_failed_poll_is_followed_by_a_poll_of_the_next_queue(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.task(DONE, queue=1)
    fake_queue.script("poll", b"not XML")
    session = work()
    assert session.fields(Step.FAILURE)[0]["queue"] == 1
    assert fake_queue.protocol() == ["pollTaskUrls", "poll", "poll", "claimTask", "reportCompleted"]


def test_a_worker_continues_after_poll_urls_were_answered_503(fake_queue: FakeQueue, work: Prepare) -> None:
    fake_queue.script("pollTaskUrls", *[503] * 6)
    fake_queue.task(DONE)
    session = work()
    assert session.failures() == ["pollTaskUrls: answered 503"]
    assert len(session.fields(Step.REPORT)) == 1


def test_a_worker_that_the_queue_refuses_ends(fake_queue: FakeQueue, prepare: Prepare) -> None:
    fake_queue.script("pollTaskUrls", 403)
    session = prepare().start()
    with pytest.raises(Refused, match="pollTaskUrls: 403"):
        session.end()
    assert fake_queue.protocol() == ["pollTaskUrls"]


def test_nothing_is_polled_after_the_worker_stops(fake_queue: FakeQueue, prepare: Prepare) -> None:
    session = prepare()
    session.on(Step.POLL, session.worker.stop)
    session.start().end()
    assert fake_queue.protocol() == ["pollTaskUrls", "poll"]


def test_as_many_tasks_as_the_capacity_run_at_once(
    fake_queue: FakeQueue, work: Prepare, tmp_path: Path
) -> None:
    gate = f"touch {tmp_path}/$TASK_ID; until [ $(ls {tmp_path} | wc -l) = 3 ]; do sleep 0.02; done"
    for _ in range(3):
        fake_queue.task({"command": gate})
    session = work(capacity=3, max_tasks=3)
    assert [fields["result"] for fields in session.fields(Step.REPORT)] == ["completed"] * 3


@OF_AZURE
def test_a_second_message_of_a_running_run_is_not_claimed(
    fake_queue: FakeQueue, prepare: Prepare, tmp_path: Path, protocol: Protocol
) -> None:
    gate = tmp_path / "gate"
    task_id = fake_queue.task({"command": f"until [ -e {gate} ]; do sleep 0.02; done"})
    (message,) = fake_queue.waiting[0]
    double = fake_queue.message(message.text)
    session = prepare(capacity=2, max_tasks=2, protocol=protocol).start()
    assert session.wait_for(Step.FAILURE)["message_id"] == double.message_id
    other = fake_queue.task(DONE)
    gate.touch()
    session.end()
    claimed = [request.target.split("/")[3] for request in fake_queue.requests_for("claimTask")]
    assert claimed == [task_id, other]
    assert (double.message_id in fake_queue.deleted) is (protocol is DEPLOYED)


@OF_AZURE
def test_a_message_that_arrives_while_the_worker_stops_is_not_claimed(
    fake_queue: FakeQueue, prepare: Prepare, protocol: Protocol
) -> None:
    fake_queue.task(DONE)
    session = prepare(capacity=3, protocol=protocol)
    fake_queue.script("poll", session.worker.stop)
    session.start().end()
    assert fake_queue.protocol() == ["pollTaskUrls", "poll"]


def test_a_claim_that_is_lost_stops_no_other_task(
    fake_queue: FakeQueue, prepare: Prepare, clock: FakeClock, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    tasks = {fake_queue.task({"command": f"until [ -e {gate} ]; do sleep 0.02; done"}) for _ in range(2)}
    fake_queue.script("reclaimTask", 409)
    session = prepare(capacity=2, max_tasks=2)
    session.on(Step.CLAIM_LOST, gate.touch)
    session.start().wait_for(Step.RUN, times=2)
    clock.ahead += timedelta(minutes=18)
    session.end()
    [lost], [report] = session.fields(Step.CLAIM_LOST), session.fields(Step.REPORT)
    assert {lost["task_id"], report["task_id"]} == tasks
    assert report["result"] == "completed"


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("pollTaskUrls", b"{}"),
        ("pollTaskUrls", b'{"queues": [{"signedPollUrl": 1}], "expires": "2018"}'),
        ("claimTask", b"{}"),
        ("claimTask", (409, b"[]")),
        ("claimTask", (409, b'{"code": 1}')),
    ],
)
def test_an_answer_that_is_not_as_documented_is_a_failure_step_and_the_worker_goes_on(
    fake_queue: FakeQueue, work: Prepare, operation: str, answer: Script
) -> None:
    fake_queue.task(DONE)
    fake_queue.task(DONE)
    fake_queue.script(operation, answer)
    session = work()
    assert len(session.fields(Step.FAILURE)) == 1
    assert [fields["result"] for fields in session.fields(Step.REPORT)] == ["completed"]


@OF_AZURE
def test_no_step_contains_a_secret(fake_queue: FakeQueue, work: Prepare, protocol: Protocol) -> None:
    fake_queue.task(DONE)
    fake_queue.task({"command": "exit 1", "env": {"KEY": "s3cret-env"}})
    messages = list(fake_queue.waiting[0])
    fake_queue.script("poll", 403, 500, 200)
    fake_queue.script("claimTask", 409)
    fake_queue.script("delete", 400)
    fake_queue.script("reportFailed", 409)
    steps = repr(work(protocol=protocol).steps)
    secrets = [message.receipt for message in messages] + [message.text for message in messages]
    secrets += ["signature+of", "s3cret", "sig=", *fake_queue.credentials.values()]
    assert [secret for secret in secrets if secret in steps] == []
