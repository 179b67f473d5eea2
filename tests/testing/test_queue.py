"""The methods of LegacyQueue, called through the fixture that users get."""

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import requests

import tests.clients.python  # noqa: F401  the import makes the client of 2017 run on this Python
from legacy_queue.credentials import ANONYMOUS
from legacy_queue.domain.ids import slugid
from legacy_queue.queue_client import QueueClient
from legacy_queue.testing import FaultNeverFired, LegacyQueue, RequestFailed
from legacy_queue.testing.claimed_run import ClaimProtocol
from legacy_queue.testing.summary import summarize
from tests.cli.command_runner import answering
from tests.rabbitmq import RabbitMQ

pytestmark = pytest.mark.processes

PROTOCOLS: list[ClaimProtocol] = ["claimwork", "draft", "deployed"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_task_is_claimed_reclaimed_and_reported_with_each_protocol(
    legacy_queue: LegacyQueue, protocol: ClaimProtocol
) -> None:
    assert legacy_queue.claim("builds", protocol=protocol) is None
    task_id = legacy_queue.create_task(worker_type="builds", payload={"a": 1})
    run = legacy_queue.claim("builds", protocol=protocol, worker_group="g", worker_id="w")
    assert run
    assert run.task == legacy_queue.task(task_id)
    assert legacy_queue.claim("builds", protocol=protocol) is None
    legacy_queue.advance(timedelta(minutes=10))
    later = run.reclaim()
    assert later.taken_until - run.taken_until >= timedelta(minutes=10)
    later.create_artifact("public/a b.txt", b"content", "text/plain")
    url = f"{legacy_queue.base_url}/task/{task_id}/runs/0/artifacts/public/a%20b.txt"
    answer = requests.get(url, timeout=30)
    assert (answer.content, answer.headers["content-type"]) == (b"content", "text/plain")
    legacy_queue.report(later, "completed")
    [reported] = legacy_queue.status(task_id)["runs"]
    assert (reported["state"], reported["workerGroup"], reported["workerId"]) == ("completed", "g", "w")
    assert legacy_queue.messages("builds") == []


def test_waiting_for_a_state_that_cannot_come_fails_immediately_and_shows_the_history(
    legacy_queue: LegacyQueue,
) -> None:
    task_id = legacy_queue.create_task()
    run = legacy_queue.claim()
    assert run
    run.report("exception", "malformed-payload")
    with pytest.raises(AssertionError, match="is not completed") as failed:
        legacy_queue.wait_for(task_id, "completed", timeout=600)
    assert "run 0 ended as exception (malformed-payload)" in str(failed.value)
    assert "reportException of run 0" in legacy_queue.summary()


def test_a_wait_that_times_out_shows_runs_messages_and_requests(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task(worker_type="builds")
    with pytest.raises(TimeoutError) as over:
        legacy_queue.wait_for(task_id, "running", timeout=0.2)
    said = str(over.value)
    assert f"{task_id} test-provisioner/builds pending: run 0 pending" in said
    assert f"test-provisioner/builds {task_id}/0 lowest, visible, dequeue count 0" in said
    assert "createTask      200" in said
    for _ in range(11):
        legacy_queue.create_task(worker_type="builds")
    assert "test-provisioner/builds 2 more" in legacy_queue.summary()
    with pytest.raises(TimeoutError, match=r"no event task-running(.|\n)*createTask"):
        legacy_queue.wait_for_event("task-running", f"primary.{task_id}.#", timeout=0.2)


def test_a_summary_waits_only_once_for_a_server_that_does_not_answer() -> None:
    process: Any = SimpleNamespace(check=lambda: None, warnings=list)
    with answering((0, "")) as url:
        first, *more = summarize(QueueClient(f"{url}/v1", ANONYMOUS), (), process, 1).splitlines()
    assert first.startswith(f"the rest cannot be read: the server at {url} does not answer GET /")
    assert more == ["warnings of the server: none"]


def test_wait_for_event_finds_an_event_before_and_during_the_wait(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task(routes=["a.b"])
    first = legacy_queue.wait_for_event("task-pending", "route.a.b")
    assert first["payload"]["status"]["taskId"] == task_id
    creating = threading.Timer(0.1, legacy_queue.create_task)
    creating.start()
    assert legacy_queue.wait_for_event("task-pending", after=first, timeout=60)["routes"] == []
    creating.join()


def test_with_a_broker_events_can_still_be_listed_and_waited_for(rabbitmq: RabbitMQ) -> None:
    with LegacyQueue(amqp_url=rabbitmq.url, project=f"kit-{slugid()}") as queue:
        task_id = queue.create_task()
        creating = threading.Timer(0.1, queue.cancel, [task_id])
        creating.start()
        queue.wait_for(task_id, "exception", timeout=60)
        creating.join()
        names = [event["exchange"].rpartition("/")[2] for event in queue.events()]
        assert names[:3] == ["task-defined", "task-pending", "task-exception"]


@pytest.mark.parametrize(("status", "left"), [(503, 1), (409, 0)])
def test_with_the_deployed_protocol_a_refused_claim_deletes_its_message(
    legacy_queue: LegacyQueue, status: int, left: int
) -> None:
    legacy_queue.create_task()
    with legacy_queue.fault("claimTask", status=status), pytest.raises(RequestFailed):
        legacy_queue.claim(protocol="deployed")
    assert len(legacy_queue.messages()) == left


def test_a_fault_that_never_fired_causes_a_warning(legacy_queue: LegacyQueue) -> None:
    with (
        pytest.warns(FaultNeverFired, match="endpoint='claimTask', status=503"),
        legacy_queue.fault("claimTask", status=503),
    ):
        pass
    legacy_queue.fault("claimTask", status=503).remove()


def test_wait_for_with_skip_expires_the_tests_own_claims_and_follows_dependencies(
    legacy_queue: LegacyQueue,
) -> None:
    first = legacy_queue.create_task(retries=1)
    second = legacy_queue.create_task(dependencies=[first], requires="all-resolved", worker_type="second")
    for _ in range(2):
        run = legacy_queue.claim()
        assert run
        if run.run_id == 0:
            legacy_queue.wait_for(first, "pending", skip=True)
    begun = legacy_queue.now()
    legacy_queue.wait_for(second, "pending", skip=True)
    assert timedelta(minutes=19) < legacy_queue.now() - begun < timedelta(minutes=21)
    assert legacy_queue.status(first)["runs"][1].get("reasonResolved") == "claim-expired"


def test_wait_for_with_skip_does_not_move_the_clock_while_a_worker_has_the_task(
    legacy_queue: LegacyQueue,
) -> None:
    task_id = legacy_queue.create_task()
    worker = legacy_queue.client()
    work = {"workerGroup": "another", "workerId": "worker", "tasks": 1}
    worker.claimWork("test-provisioner", "test-worker-type", work)
    begun = legacy_queue.now()
    with pytest.raises(TimeoutError):
        legacy_queue.wait_for(task_id, "pending", timeout=0.2, skip=True)
    waiting = legacy_queue.create_task()
    with pytest.raises(TimeoutError):
        legacy_queue.wait_for(waiting, "exception", timeout=0.2, skip=True)
    assert legacy_queue.now() - begun < timedelta(minutes=1)


@pytest.mark.legacy_queue(storage="azurite")
def test_with_azurite_storage_everything_works_except_moving_the_clock(legacy_queue: LegacyQueue) -> None:
    for protocol in PROTOCOLS:
        task_id = legacy_queue.create_task(worker_type="builds")
        for _ in range(2):
            [message] = legacy_queue.messages("builds")
            assert (message["taskId"], message["dequeueCount"]) == (task_id, 0)
        run = legacy_queue.claim("builds", protocol=protocol)
        assert run
        assert run.report("completed")["state"] == "completed"
    assert {"azure.receive", "azure.delete"} < {request["endpoint"] for request in legacy_queue.requests()}
    with pytest.raises(RequestFailed, match=r"409 RequestConflict .*--storage memory"):
        legacy_queue.advance("1s")
    legacy_queue.create_task(worker_type="builds")
    legacy_queue.reset()
    assert (legacy_queue.messages("builds"), legacy_queue.events()) == ([], [])
