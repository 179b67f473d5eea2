"""Tests scriptworker's modules ``poll`` and ``task`` on a real queue. scriptworker's own tests use mocks."""

import pytest
from scriptworker.exceptions import ScriptWorkerException


def asked(legacy_queue, endpoint):
    """The status of each answer that this endpoint has given, in order."""
    return [request["status"] for request in legacy_queue.requests() if request["endpoint"] == endpoint]


def outcome(legacy_queue, task_id):
    """The state of each run; for an exception, its reason instead."""
    runs = legacy_queue.status(task_id)["runs"]
    return [run["reasonResolved"] if run["state"] == "exception" else run["state"] for run in runs]


def test_find_task_claims_and_deletes_the_message(legacy_queue, new_context, poll, report, create_task):
    task_id, context = create_task(), new_context()
    assert poll(context)["status"]["taskId"] == task_id
    assert asked(legacy_queue, "azure.delete") == [204]
    report(context, 0)
    assert outcome(legacy_queue, task_id) == ["completed"]
    assert poll(context) is None


def test_an_exit_code_of_three_is_a_malformed_payload(legacy_queue, new_context, poll, report, create_task):
    task_id, context = create_task(), new_context()
    poll(context)
    report(context, 3)
    assert outcome(legacy_queue, task_id) == ["malformed-payload"]


def test_a_claim_conflict_deletes_the_message_and_finds_no_task(legacy_queue, new_context, poll, create_task):
    create_task()
    with legacy_queue.fault("azure.receive", double=True, times=1):
        assert poll(new_context("one"))
        assert poll(new_context("two")) is None
    assert asked(legacy_queue, "claimTask") == [200, 409]
    assert asked(legacy_queue, "azure.delete")[-1] == 204


def test_the_task_of_a_dead_worker_is_found_again(legacy_queue, new_context, poll, report, create_task):
    task_id, dead, alive = create_task(), new_context("dead"), new_context("alive")
    poll(dead)
    legacy_queue.advance("21m")
    assert poll(alive)["runId"] == 1
    report(alive, 0)
    report(dead, 0)
    assert outcome(legacy_queue, task_id) == ["claim-expired", "completed"]
    assert asked(legacy_queue, "reportCompleted") == [200, 409]


def test_a_message_that_cannot_be_deleted_costs_no_claim(legacy_queue, new_context, poll, create_task):
    task_id = create_task()
    with legacy_queue.fault("azure.receive", stale=True, times=1):
        assert poll(new_context())["status"]["taskId"] == task_id
    assert asked(legacy_queue, "azure.delete")[0] in (400, 404)


def test_the_client_repeats_a_claim_that_is_answered_with_503(legacy_queue, new_context, poll, create_task):
    create_task()
    with legacy_queue.fault("claimTask", status=503, times=2):
        assert poll(new_context())
    assert asked(legacy_queue, "claimTask") == [503, 503, 200]


def test_expired_urls_end_the_loop_and_lose_no_message(legacy_queue, new_context, poll, create_task):
    task_id, context = create_task(), new_context()
    with legacy_queue.fault("pollTaskUrls", sas="expired", times=1), pytest.raises(ScriptWorkerException):
        poll(context)
    context.poll_task_urls = None  # as in a new process
    assert poll(context)["status"]["taskId"] == task_id
