"""What the worker does without faults, and with a fault in each of its calls."""

import os
import subprocess
import sys


def asked(legacy_queue, endpoint):
    """The status of each answer that this endpoint has given, in order."""
    return [request["status"] for request in legacy_queue.requests() if request["endpoint"] == endpoint]


def outcome(legacy_queue, task_id):
    """The state of each run; for an exception, its reason instead."""
    runs = legacy_queue.status(task_id)["runs"]
    return [run["reasonResolved"] if run["state"] == "exception" else run["state"] for run in runs]


def test_a_task_is_completed_and_none_is_left(legacy_queue, new_worker, create_task, protocol):
    task_id = create_task("true")
    worker = new_worker()
    assert worker.run_next() == task_id
    assert worker.run_next() is None
    assert outcome(legacy_queue, task_id) == ["completed"]
    assert asked(legacy_queue, "azure.delete") == ([204] if protocol == "deployed" else [])


def test_a_command_that_fails_fails_the_task(legacy_queue, new_worker, create_task):
    task_id = create_task("false")
    new_worker().run_next()
    assert outcome(legacy_queue, task_id) == ["failed"]


def test_a_task_without_a_command_is_a_malformed_payload(legacy_queue, new_worker, create_task):
    task_id = create_task(image="debian")
    new_worker().run_next()
    assert outcome(legacy_queue, task_id) == ["malformed-payload"]


def test_of_two_workers_with_the_same_message_the_second_finds_no_task(legacy_queue, new_worker, create_task):
    task_id = create_task("true")
    with legacy_queue.fault("azure.receive", double=True, times=1):
        assert new_worker("one").claim_next()
        assert new_worker("two").claim_next() is None
    assert asked(legacy_queue, "claimTask") == [200, 409]
    assert outcome(legacy_queue, task_id) == ["running"]
    [message] = legacy_queue.messages("builds", provisioner_id="examples")
    assert message["runId"] == 1  # the duplicate is deleted; this one is for a claim that expires


def test_the_task_of_a_dead_worker_is_run_by_another(legacy_queue, new_worker, create_task):
    task_id = create_task("true")
    dead = new_worker("dead")
    claim = dead.claim_next()
    legacy_queue.advance("21m")
    assert new_worker("alive").run_next() == task_id
    dead.run(claim)  # it was only slow, so its report is refused
    assert outcome(legacy_queue, task_id) == ["claim-expired", "completed"]
    assert asked(legacy_queue, "reportCompleted") == [200, 409]


def test_a_stale_receipt_does_no_harm(legacy_queue, new_worker, create_task):
    task_id = create_task("true")
    with legacy_queue.fault("azure.receive", stale=True, times=1):
        assert new_worker().run_next() == task_id
    assert outcome(legacy_queue, task_id) == ["completed"]
    legacy_queue.advance("6m")  # now the message that was not deleted, or was hidden, is visible
    assert new_worker().run_next() is None


def test_a_claim_that_is_answered_with_503_is_repeated(legacy_queue, new_worker, create_task):
    task_id = create_task("true")
    with legacy_queue.fault("claimTask", status=503, times=2):
        assert new_worker().run_next() == task_id
    assert asked(legacy_queue, "claimTask") == [503, 503, 200]


def test_a_message_that_cannot_be_claimed_is_kept(legacy_queue, new_worker, create_task):
    task_id = create_task("true")
    with legacy_queue.fault("claimTask", status=503):
        assert new_worker().run_next() is None
    [message] = legacy_queue.messages("builds", provisioner_id="examples")
    assert (message["taskId"], message["dequeueCount"]) == (task_id, 1)
    assert message["visibleIn"] > 0
    legacy_queue.advance("6m")
    assert new_worker().run_next() == task_id


def test_new_urls_are_fetched_when_they_have_expired(legacy_queue, new_worker, create_task):
    task_id = create_task("true")
    with legacy_queue.fault("pollTaskUrls", sas="expired", times=1):
        assert new_worker().run_next() == task_id
    assert asked(legacy_queue, "pollTaskUrls") == [200, 200]
    assert asked(legacy_queue, "azure.receive")[0] == 403


def test_the_program_runs_a_task(legacy_queue, create_task, protocol):
    task_id = create_task("true")
    pool = ("examples", "builds", "examples", "program")
    command = [sys.executable, "-m", "legacy_worker", *pool, protocol]
    with subprocess.Popen(command, env=os.environ | legacy_queue.env) as program:
        try:
            legacy_queue.wait_for(task_id, "completed", timeout=60)
        finally:
            program.terminate()
