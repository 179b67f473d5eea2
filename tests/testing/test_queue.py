"""The methods of LegacyQueue, on the fixture that users have."""

import sys
import threading
from datetime import timedelta

import pytest
import requests

from legacy_queue.testing import FaultNeverFired, LegacyQueue, RequestFailed
from legacy_queue.testing.claimed_run import Protocol, Resolution

PROTOCOLS: list[Protocol] = ["claimWork", "draft", "deployed"]


def test_a_dead_worker_is_replaced(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task(worker_type="builds")
    run = legacy_queue.claim(worker_type="builds")
    assert run
    assert (run.task_id, run.run_id) == (task_id, 0)
    legacy_queue.advance("21m")
    assert legacy_queue.status(task_id)["runs"][0]["reasonResolved"] == "claim-expired"
    legacy_queue.wait_for(task_id, "pending", timeout=5)


def test_each_test_begins_with_an_empty_queue(legacy_queue: LegacyQueue) -> None:
    assert legacy_queue.requests() == legacy_queue.events() == legacy_queue.messages("builds") == []
    assert not legacy_queue.create_task(worker_type="builds").startswith("-")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_task_is_claimed_reclaimed_and_reported_with_each_protocol(
    legacy_queue: LegacyQueue, protocol: Protocol
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
    legacy_queue.report(later, "completed")
    [reported] = legacy_queue.status(task_id)["runs"]
    assert (reported["state"], reported["workerGroup"], reported["workerId"]) == ("completed", "g", "w")
    assert legacy_queue.messages("builds") == []


@pytest.mark.parametrize(
    ("resolution", "reason", "state"),
    [("failed", None, "failed"), ("exception", "worker-shutdown", "pending")],
)
def test_a_run_is_reported(
    legacy_queue: LegacyQueue, resolution: Resolution, reason: str | None, state: str
) -> None:
    legacy_queue.create_task(task_queue_id="p/w")
    run = legacy_queue.claim(task_queue_id="p/w")
    assert run
    assert legacy_queue.report(run, resolution, reason=reason)["state"] == state


def test_a_stale_message_does_not_delay_a_claim(legacy_queue: LegacyQueue) -> None:
    legacy_queue._http.call("POST", f"/v1/task/{legacy_queue.create_task()}/cancel", {})  # noqa: SLF001 - no method cancels
    assert len(legacy_queue.messages()) == 1
    assert legacy_queue.claim() is None
    assert legacy_queue.messages() == []


def test_a_run_creates_an_artifact_with_its_content(legacy_queue: LegacyQueue) -> None:
    legacy_queue.create_task()
    run = legacy_queue.claim()
    assert run
    run.create_artifact("public/a b.txt", b"content", "text/plain")
    url = f"{legacy_queue.base_url}/task/{run.task_id}/runs/0/artifacts/public/a%20b.txt"
    answer = requests.get(url, timeout=30)
    assert (answer.content, answer.headers["content-type"]) == (b"content", "text/plain")


def test_a_refusal_has_the_status_the_code_and_the_message_of_the_queue(legacy_queue: LegacyQueue) -> None:
    with pytest.raises(RequestFailed, match="retries") as refused:
        legacy_queue.create_task(retries=1000)
    assert (refused.value.status, refused.value.code) == (400, "InputValidationError")


def test_an_unknown_state_protocol_or_resolution_is_refused_at_once(
    legacy_queue: LegacyQueue,
) -> None:
    task_id = legacy_queue.create_task()
    with pytest.raises(ValueError, match="state is 'done': one of unscheduled, pending, running, completed"):
        legacy_queue.wait_for(task_id, "done")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="protocol is 'azure': one of claimWork, draft, deployed is"):
        legacy_queue.claim(protocol="azure")  # type: ignore[arg-type]
    run = legacy_queue.claim()
    assert run
    with pytest.raises(ValueError, match="resolution is 'done': one of completed, failed, exception is"):
        run.report("done")  # type: ignore[arg-type]


def test_a_wait_ends_with_the_event(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task()
    run = legacy_queue.claim()
    assert run
    reporting = threading.Timer(0.1, run.report, ["completed"])
    reporting.start()
    assert legacy_queue.wait_for(task_id, "completed", timeout=60)["state"] == "completed"
    reporting.join()
    assert legacy_queue.wait_for(task_id, "completed", timeout=0)["state"] == "completed"


def test_waits_may_follow_each_other_without_a_pause(legacy_queue: LegacyQueue) -> None:
    for _ in range(60):  # of streams of events, a client may have 50 open
        assert legacy_queue.wait_for(legacy_queue.create_task(), "pending")


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


def test_a_wait_ends_with_a_reset(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task()
    resetting = threading.Timer(0.1, legacy_queue.reset)
    resetting.start()
    with pytest.raises(TimeoutError, match="not running before the queue was reset"):
        legacy_queue.wait_for(task_id, "running", timeout=60)
    resetting.join()


def test_wait_for_event_finds_an_event_before_and_during_the_wait(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task(routes=["a.b"])
    first = legacy_queue.wait_for_event("task-pending", "route.a.b")
    assert first["payload"]["status"]["taskId"] == task_id
    creating = threading.Timer(0.1, legacy_queue.create_task)
    creating.start()
    assert legacy_queue.wait_for_event("task-pending", after=first, timeout=60)["routes"] == []
    creating.join()


def test_events_are_in_order_and_can_be_filtered(legacy_queue: LegacyQueue) -> None:
    task_ids = [legacy_queue.create_task(), legacy_queue.create_task()]
    names = [event["exchange"].rpartition("/")[2] for event in legacy_queue.events()]
    assert names == ["task-defined", "task-pending"] * 2
    [event] = legacy_queue.events("task-pending", f"primary.{task_ids[1]}.#")
    assert event["payload"]["status"]["taskId"] == task_ids[1]


def test_listing_messages_dequeues_none(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task(worker_type="builds", priority="high")
    for _ in range(2):
        [message] = legacy_queue.messages("builds")
        assert (message["taskId"], message["runId"], message["priority"]) == (task_id, 0, "high")
        assert (message["visibleIn"], message["dequeueCount"]) == (0, 0)


def test_requests_on_signed_urls_are_listed(legacy_queue: LegacyQueue) -> None:
    legacy_queue.create_task()
    legacy_queue.claim(protocol="deployed")
    seen = [(request["endpoint"], request["status"]) for request in legacy_queue.requests()]
    assert seen[1:] == [
        ("pollTaskUrls", 200),
        *[("azure.receive", 200)] * seen.count(("azure.receive", 200)),
        ("claimTask", 200),
        ("azure.delete", 204),
    ]
    assert legacy_queue.requests(limit=1)[0]["endpoint"] == "azure.delete"


def test_the_test_controls_the_time(legacy_queue: LegacyQueue) -> None:
    frozen = legacy_queue.freeze()
    assert legacy_queue.now() == frozen
    assert legacy_queue.advance("90s") == frozen + timedelta(seconds=90)
    assert legacy_queue.advance(1.5) == legacy_queue.now() == frozen + timedelta(seconds=91.5)
    assert legacy_queue.advance(timedelta(days=30)) == frozen + timedelta(days=30, seconds=91.5)
    assert legacy_queue.release() >= frozen + timedelta(days=30)


def test_a_fault_happens_within_its_context(legacy_queue: LegacyQueue) -> None:
    task_id = legacy_queue.create_task()
    with legacy_queue.fault("claimTask", status=503, task=task_id) as fault:
        with pytest.raises(RequestFailed) as failed:
            legacy_queue.claim(protocol="draft")
        assert (failed.value.status, fault.fired) == (503, 1)
    legacy_queue.create_task()
    assert legacy_queue.claim(protocol="draft")


@pytest.mark.parametrize(("status", "left"), [(503, 1), (409, 0)])
def test_the_deployed_protocol_deletes_the_message_of_a_refused_claim(
    legacy_queue: LegacyQueue, status: int, left: int
) -> None:
    legacy_queue.create_task()
    with legacy_queue.fault("claimTask", status=status), pytest.raises(RequestFailed):
        legacy_queue.claim(protocol="deployed")
    assert len(legacy_queue.messages()) == left


def test_a_refusal_of_an_azure_queue_has_its_code(legacy_queue: LegacyQueue) -> None:
    legacy_queue.fault("azure.receive", status=503)
    with pytest.raises(RequestFailed) as failed:
        legacy_queue.claim(protocol="draft")
    assert (failed.value.status, failed.value.code) == (503, "ServerBusy")


def test_a_fault_closes_the_connection_after_the_change(legacy_queue: LegacyQueue) -> None:
    legacy_queue.fault("claimWork", drop="after", delay=timedelta(milliseconds=1), times=1)
    task_id = legacy_queue.create_task()
    with pytest.raises(requests.ConnectionError):
        legacy_queue.claim()
    assert legacy_queue.status(task_id)["state"] == "running"


def test_a_missing_answer_shows_no_signature(legacy_queue: LegacyQueue) -> None:
    with (
        legacy_queue.fault("azure.receive", drop="before"),
        pytest.raises(
            requests.ConnectionError, match=r"^GET /azure/.*/messages: there is no answer"
        ) as failed,
    ):
        legacy_queue.claim(protocol="draft")
    shown = str(failed.getrepr(style="long", showlocals=True, funcargs=True))
    assert "sig=" not in shown
    assert "urllib3" not in shown


def test_a_fault_that_never_fired_causes_a_warning(legacy_queue: LegacyQueue) -> None:
    with (
        pytest.warns(FaultNeverFired, match="endpoint='claimTask', status=503"),
        legacy_queue.fault("claimTask", status=503),
    ):
        pass
    legacy_queue.fault("azure.receive", lose=True)
    with pytest.warns(FaultNeverFired, match=r"azure\.receive"):
        legacy_queue.reset()
    legacy_queue.fault("claimTask", status=503).remove()


def test_a_fault_that_a_reset_has_removed_is_over(legacy_queue: LegacyQueue) -> None:
    legacy_queue.create_task()
    with legacy_queue.fault("claimWork", status=503) as fault:
        with pytest.raises(RequestFailed):
            legacy_queue.claim()
        legacy_queue.reset()
        assert fault.fired == 1
    assert fault.remove() == 1
    with pytest.warns(FaultNeverFired) as warned, legacy_queue.fault("claimWork", status=503):
        legacy_queue.reset()
    assert len(warned) == 1


def test_a_fault_of_an_unknown_endpoint_is_refused(legacy_queue: LegacyQueue) -> None:
    with pytest.raises(RequestFailed, match="claimTask"):
        legacy_queue.fault("claimTsk", status=503)


def test_a_reset_empties_everything(legacy_queue: LegacyQueue) -> None:
    before = legacy_queue.advance("1h")
    task_id = legacy_queue.create_task()
    legacy_queue.reset()
    assert legacy_queue.now() < before
    with pytest.raises(RequestFailed, match="404"):
        legacy_queue.status(task_id)
    assert legacy_queue.events() == legacy_queue.messages() == []


def test_the_environment_and_a_client_reach_the_queue(legacy_queue: LegacyQueue) -> None:
    from tests.clients.python import taskcluster

    assert taskcluster
    assert legacy_queue.client(maxRetries=0).ping()["alive"]
    task_id = legacy_queue.create_task()
    assert legacy_queue.client().cancelTask(task_id)["status"]["state"] == "exception"
    assert legacy_queue.env == {
        "TASKCLUSTER_ROOT_URL": legacy_queue.root_url,
        "TASKCLUSTER_CLIENT_ID": legacy_queue.credentials["clientId"],
        "TASKCLUSTER_ACCESS_TOKEN": legacy_queue.credentials["accessToken"],
    }


def test_entering_a_running_server_is_refused(legacy_queue: LegacyQueue) -> None:
    with pytest.raises(RuntimeError, match="running already"), legacy_queue:
        pass
    assert legacy_queue.events() == []


def test_a_client_without_its_package_is_refused_with_the_command_that_installs_it(
    legacy_queue: LegacyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "taskcluster", None)
    with pytest.raises(ImportError, match="pip install taskcluster"):
        legacy_queue.client()


def test_the_traceback_of_a_refusal_ends_in_the_test(legacy_queue: LegacyQueue) -> None:
    with pytest.raises(RequestFailed) as refused:
        legacy_queue.status("no-task")
    assert [str(entry.path) for entry in refused.traceback.filter(refused)] == [__file__]


@pytest.mark.legacy_queue(storage="azurite")
def test_azurite_storage_does_all_but_move_the_clock(legacy_queue: LegacyQueue) -> None:
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
    assert legacy_queue.messages("builds") == legacy_queue.events() == []
