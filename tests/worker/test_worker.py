"""The loop: what is polled, claimed and deleted, in both protocols."""

from datetime import timedelta
from typing import Any

import pytest

from legacy_queue.worker import Protocol, QueueRefused, Step

from .conftest import FakeClock, Prepare
from .stand_in import CLIENT_ID, StandIn

OF_AZURE = pytest.mark.parametrize("protocol", [Protocol.DRAFT, Protocol.DEPLOYED])
DRAFT, DEPLOYED = Protocol.DRAFT, Protocol.DEPLOYED
DONE = {"command": ["true"]}


def test_the_drafts_chart_step_by_step(stand_in: StandIn, work: Prepare) -> None:
    task_id = stand_in.task(DONE)
    session = work()
    assert stand_in.protocol() == ["pollTaskUrls", "poll", "claimTask", "reportCompleted"]
    assert session.names() == [
        Step.POLL_URLS, Step.CLAIM, Step.HELD, Step.RUN, Step.EXITED, Step.REPORT
    ]  # fmt: skip
    assert session.fields(Step.REPORT) == [{"task_id": task_id, "run_id": 0, "result": "completed"}]


def test_a_draft_claim_carries_the_message_its_receipt_and_its_signature(
    stand_in: StandIn, work: Prepare
) -> None:
    task_id = stand_in.task(DONE)
    [message] = stand_in.waiting[0]
    work()
    [claim] = stand_in.asked("claimTask")
    assert claim.client_id == CLIENT_ID
    assert claim.target == f"/v1/task/{task_id}/runs/0/claim"
    assert claim.body == {
        "workerGroup": "group",
        "workerId": "id",
        "messageId": message.message_id,
        "receipt": message.receipt,
        "signature": f"signature+of/{task_id}=",
    }


def test_the_deployed_chart_step_by_step(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task(DONE)
    [message] = stand_in.waiting[0]
    session = work(protocol=DEPLOYED)
    assert stand_in.protocol() == ["pollTaskUrls", "poll", "claimTask", "delete", "reportCompleted"]
    assert session.names() == [
        Step.POLL_URLS, Step.CLAIM, Step.DELETED, Step.RUN, Step.EXITED, Step.REPORT
    ]  # fmt: skip
    assert stand_in.asked("claimTask")[0].body == {"workerGroup": "group", "workerId": "id"}
    assert stand_in.deleted == [message.message_id]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
def test_the_deployed_worker_deletes_the_message_of_a_claim_that_is_refused(
    stand_in: StandIn, work: Prepare, status: int
) -> None:
    refused, taken = stand_in.task(DONE), stand_in.task(DONE)
    first, second = stand_in.waiting[0]
    stand_in.script("claimTask", status)
    session = work(protocol=DEPLOYED)
    assert stand_in.deleted == [first.message_id, second.message_id]
    assert session.fields(Step.CLAIM_REFUSED)[0]["task_id"] == refused
    assert session.fields(Step.RUN)[0]["task_id"] == taken


@OF_AZURE
def test_the_message_of_a_claim_that_got_no_answer_is_kept(
    stand_in: StandIn, work: Prepare, protocol: Protocol
) -> None:
    stand_in.task(DONE)
    [message] = stand_in.waiting[0]
    stand_in.script("claimTask", *[503] * 6, lambda: None)
    stand_in.script("poll", 200, 200, 200, lambda: stand_in.task(DONE))
    session = work(protocol=protocol)
    assert message.message_id not in stand_in.deleted
    assert len(session.fields(Step.CLAIM_UNAVAILABLE)) == 1


@pytest.mark.parametrize("status", [200, 409])
def test_the_draft_worker_never_deletes_a_message(stand_in: StandIn, work: Prepare, status: int) -> None:
    stand_in.message("nonsense")
    stand_in.task(DONE)
    stand_in.script("claimTask", status)
    stand_in.task(DONE)
    work()
    assert stand_in.asked("delete") == []


def test_a_message_that_names_no_task_is_deleted_and_the_next_one_is_claimed(
    stand_in: StandIn, work: Prepare
) -> None:
    nonsense = stand_in.message("bm9uc2Vuc2U=")
    stand_in.task(DONE)
    session = work(protocol=DEPLOYED)
    assert stand_in.deleted[0] == nonsense.message_id
    assert session.fields(Step.MESSAGE_UNREADABLE)[0]["message_id"] == nonsense.message_id


def test_a_message_that_cannot_be_deleted_is_told_and_its_task_runs(stand_in: StandIn, work: Prepare) -> None:
    stand_in.task(DONE)
    [message] = stand_in.waiting[0]
    stand_in.script("delete", 400)
    session = work(protocol=DEPLOYED)
    [failed] = session.fields(Step.DELETE_FAILED)
    assert failed["message_id"] == message.message_id
    assert "400 ScriptedError" in failed["detail"]
    assert len(session.fields(Step.REPORT)) == 1


@OF_AZURE
def test_a_message_dequeued_more_than_ten_times_alerts_the_operator_and_is_claimed(
    stand_in: StandIn, work: Prepare, protocol: Protocol
) -> None:
    stand_in.task(DONE, dequeue_count=10)
    stand_in.task(DONE, dequeue_count=11)
    [_, often] = stand_in.waiting[0]
    session = work(protocol=protocol, max_tasks=2)
    alert = {"message_id": often.message_id, "dequeue_count": 11}
    assert session.fields(Step.MESSAGE_DEQUEUED_OFTEN) == [alert]
    assert len(session.fields(Step.REPORT)) == 2


def test_the_run_of_the_claims_answer_is_run_not_that_of_the_message(
    stand_in: StandIn, work: Prepare
) -> None:
    task_id = stand_in.task({"command": 'echo "$RUN_ID"'}, run_id=3)
    stand_in.answered_run_id = 2
    assert work().output.read_text() == "2\n"
    assert stand_in.requests[-1].target == f"/v1/task/{task_id}/runs/2/completed"


def test_queues_are_polled_in_order_and_from_the_first_again_after_every_message(
    stand_in: StandIn, prepare: Prepare
) -> None:
    lowest = stand_in.task(DONE, queue=2)
    middle = stand_in.task(DONE, queue=1)
    session = prepare(max_tasks=3)
    session.on(Step.CLAIM, lambda: len(session.fields(Step.CLAIM)) == 2 and stand_in.task(DONE, queue=0))
    session.start().end()
    assert [fields["task_id"] for fields in session.fields(Step.RUN)][:2] == [middle, lowest]
    polled = [request.target.split("/")[2] for request in stand_in.asked("poll")]
    assert polled == ["0", "1", "0", "1", "2", "0"]


def test_the_worker_pauses_only_at_the_end_of_the_list(
    stand_in: StandIn, work: Prepare, clock: FakeClock
) -> None:
    stand_in.script("poll", *[200] * 6, lambda: stand_in.task(DONE, queue=0))
    work(poll_interval=timedelta(seconds=7))
    assert [seconds for seconds in clock.waits if seconds == 7] == [7, 7]
    assert len(stand_in.asked("poll")) == 7


def test_as_many_messages_are_asked_for_as_tasks_can_be_run_and_all_are_run_at_once(
    stand_in: StandIn, work: Prepare, tmp_path: Any
) -> None:
    gate = f"touch {tmp_path}/$TASK_ID; until [ $(ls {tmp_path} | grep -vc output) = 3 ]; do sleep 0.02; done"
    for _ in range(3):
        stand_in.task({"command": gate})
    session = work(capacity=3, max_tasks=3)
    assert stand_in.asked("poll")[0].target.endswith("&numofmessages=3")
    assert [fields["result"] for fields in session.fields(Step.REPORT)] == ["completed"] * 3


@pytest.mark.parametrize(
    ("changes", "asked"),
    [({"capacity": 40}, 32), ({"capacity": 40, "max_tasks": 5}, 5), ({"capacity": 1, "max_tasks": 5}, 1)],
)
def test_no_more_than_32_nor_than_may_still_be_run_are_asked_for(
    stand_in: StandIn, prepare: Prepare, changes: dict[str, int], asked: int
) -> None:
    session = prepare(**changes).start()
    session.wait_for(Step.POLL)
    assert stand_in.asked("poll")[0].target.endswith(f"&numofmessages={asked}")


def test_a_full_worker_does_not_poll(stand_in: StandIn, prepare: Prepare, tmp_path: Any) -> None:
    gate = tmp_path / "gate"
    for _ in range(2):
        stand_in.task({"command": f"until [ -e {gate} ]; do sleep 0.02; done"})
    session = prepare(capacity=2, max_tasks=3)
    polls: list[int] = []
    session.start().wait_for(Step.RUN, times=2)
    polls.append(len(stand_in.asked("poll")))
    stand_in.task(DONE)
    gate.touch()
    session.end()
    assert polls == [1]
    assert len(session.fields(Step.REPORT)) == 3


def test_a_second_message_of_a_run_that_runs_here_starts_it_no_second_time(
    stand_in: StandIn, prepare: Prepare, tmp_path: Any
) -> None:
    gate = tmp_path / "gate"
    task_id = stand_in.task({"command": f"until [ -e {gate} ]; do sleep 0.02; done"})
    double = stand_in.message_for(task_id)
    session = prepare(capacity=2, max_tasks=2, protocol=DEPLOYED)
    session.on(Step.ALREADY_RUNNING, gate.touch, lambda: stand_in.task(DONE))
    session.start().end()
    assert [fields["task_id"] for fields in session.fields(Step.RUN)].count(task_id) == 1
    assert double.message_id in stand_in.deleted


def test_poll_urls_are_asked_for_again_before_they_expire(
    stand_in: StandIn, prepare: Prepare, clock: FakeClock
) -> None:
    session = prepare().start()
    session.wait_for(Step.POLL, times=4)
    assert len(stand_in.asked("pollTaskUrls")) == 1
    clock.ahead += timedelta(minutes=26)
    session.wait_for(Step.POLL_URLS, times=2)


def test_poll_urls_that_azure_refuses_are_asked_for_again(stand_in: StandIn, work: Prepare) -> None:
    stand_in.script("poll", 403, 403, 403, lambda: stand_in.task(DONE))
    session = work()
    assert len(session.fields(Step.POLL_FAILED)) == 3
    assert stand_in.protocol()[:5] == ["pollTaskUrls", "poll", "poll", "poll", "pollTaskUrls"]


def test_a_queue_that_cannot_be_polled_does_not_keep_the_worker_from_the_next(
    stand_in: StandIn, work: Prepare
) -> None:
    stand_in.task(DONE, queue=1)
    stand_in.script("poll", b"not XML")
    session = work()
    assert session.fields(Step.POLL_FAILED)[0]["queue"] == 1
    assert len(session.fields(Step.REPORT)) == 1


def test_a_worker_outlives_a_queue_that_is_away(stand_in: StandIn, work: Prepare) -> None:
    stand_in.script("pollTaskUrls", *[503] * 6)
    stand_in.task(DONE)
    session = work()
    assert session.names()[:2] == [Step.POLL_URLS_FAILED, Step.POLL_URLS]


def test_a_worker_that_the_queue_refuses_ends(stand_in: StandIn, prepare: Prepare) -> None:
    stand_in.script("pollTaskUrls", 403)
    session = prepare().start()
    with pytest.raises(QueueRefused, match="pollTaskUrls: 403"):
        session.end()
    assert stand_in.protocol() == ["pollTaskUrls"]


def test_no_message_is_claimed_once_the_worker_stops(stand_in: StandIn, prepare: Prepare) -> None:
    stand_in.task(DONE)
    session = prepare()
    session.on(Step.POLL, session.worker.stop)
    session.start().end()
    assert stand_in.protocol() == ["pollTaskUrls", "poll"]


@OF_AZURE
def test_no_step_tells_a_secret(stand_in: StandIn, work: Prepare, protocol: Protocol) -> None:
    stand_in.task(DONE)
    stand_in.task({"command": "exit 1", "env": {"KEY": "s3cret-env"}})
    messages = list(stand_in.waiting[0])
    stand_in.script("poll", 403, 500, 200)
    stand_in.script("claimTask", 409)
    stand_in.script("delete", 400)
    stand_in.script("reportFailed", 409)
    told = repr(work(protocol=protocol).steps)
    secrets = [message.receipt for message in messages] + [message.text for message in messages]
    secrets += ["signature+of", "s3cret", "sig=", *stand_in.credentials.values()]
    assert [secret for secret in secrets if secret in told] == []
