"""defineTask, scheduleTask and rerunTask, as a scheduler of 2016 calls them."""

from typing import Any

import pytest

from tests.http.calls import GROUP_ID, ROOT, TASK_ID, Queue, play, refused, succeeded, task_body

OTHER_ID = "OtherAAAQ3GP5tDKTRPnTA"
CHANGING = ("defineTask", "scheduleTask", "rerunTask", "cancelTask")


def status(queue: Queue, name: str) -> Any:
    body = task_body() if name == "defineTask" else None
    return succeeded(queue.call(name, body, taskId=TASK_ID)).get_json()["status"]


def reasons(status: Any) -> list[str]:
    return [run["reasonCreated"] for run in status["runs"]]


def test_a_defined_task_is_not_offered_until_it_is_scheduled(queue: Queue) -> None:
    defined = status(queue, "defineTask")
    assert (defined["state"], defined["runs"], defined["retriesLeft"]) == ("unscheduled", [], 5)
    assert queue.messages() == []
    assert [event.exchange for event in queue.published()] == ["task-defined"]
    scheduled = status(queue, "scheduleTask")
    assert (scheduled["state"], reasons(scheduled)) == ("pending", ["scheduled"])
    assert [(task_id, run_id) for task_id, run_id, *_ in queue.messages()] == [(TASK_ID, 0)]
    succeeded(queue.claim(TASK_ID))


def test_a_defined_task_cannot_be_claimed(queue: Queue) -> None:
    queue.define(TASK_ID)
    refused(queue.claim(TASK_ID), 404, "ResourceNotFound", "no runs")


def test_a_defined_task_shows_that_it_depends_on_itself(queue: Queue) -> None:
    queue.create(OTHER_ID)
    queue.define(TASK_ID, dependencies=[OTHER_ID])
    assert set(queue.definition(TASK_ID)["dependencies"]) == {OTHER_ID, TASK_ID}


def test_a_task_created_to_depend_on_itself_is_the_same_as_a_defined_one(queue: Queue) -> None:
    body = task_body(dependencies=[TASK_ID])
    created = succeeded(queue.call("createTask", body, taskId=TASK_ID)).get_json()
    assert created["status"]["state"] == "unscheduled"
    assert status(queue, "defineTask") == created["status"]


def test_a_defined_task_is_not_scheduled_by_creating_it(queue: Queue) -> None:
    queue.define(TASK_ID)
    answer = queue.call("createTask", task_body(), taskId=TASK_ID)
    refused(answer, 409, "RequestConflict", TASK_ID, "dependencies")
    assert queue.state(TASK_ID) == "unscheduled"


def test_a_defined_task_may_have_99_other_dependencies(queue: Queue) -> None:
    many = [queue.create() for _ in range(100)]
    answer = queue.call("defineTask", task_body(dependencies=many), taskId=TASK_ID)
    refused(answer, 400, "InputError", "99")
    queue.define(TASK_ID, dependencies=many[:99])


def test_a_task_may_be_scheduled_before_its_dependencies_are_resolved(queue: Queue) -> None:
    queue.create(OTHER_ID)
    queue.create(TASK_ID, dependencies=[OTHER_ID])
    assert queue.state(TASK_ID) == "unscheduled"
    assert status(queue, "scheduleTask")["state"] == "pending"


def test_a_rerun_gives_a_resolved_task_another_run_and_its_retries(queue: Queue) -> None:
    queue.running(TASK_ID, retries=2)
    succeeded(queue.call("reportException", {"reason": "worker-shutdown"}, taskId=TASK_ID, runId=0))
    succeeded(queue.claim(TASK_ID, 1))
    succeeded(queue.call("reportFailed", taskId=TASK_ID, runId=1))
    rerun = status(queue, "rerunTask")
    assert (rerun["state"], rerun["retriesLeft"]) == ("pending", 2)
    assert reasons(rerun) == ["scheduled", "retry", "rerun"]
    assert (TASK_ID, 2) in [(task_id, run_id) for task_id, run_id, *_ in queue.messages()]
    succeeded(queue.claim(TASK_ID, 2))
    succeeded(queue.call("reportCompleted", taskId=TASK_ID, runId=2))


@pytest.mark.parametrize("state", ["unscheduled", "pending", "running"])
def test_a_rerun_does_not_change_a_task_that_is_not_resolved(queue: Queue, state: str) -> None:
    {"unscheduled": queue.define, "pending": queue.create, "running": queue.running}[state](TASK_ID)
    before = queue.call("status", taskId=TASK_ID).get_json()["status"]
    assert before["state"] == state
    assert status(queue, "rerunTask") == before
    assert queue.state(TASK_ID) == state


@pytest.mark.parametrize("state", ["pending", "running", "exception"])
def test_scheduling_does_not_change_a_task_that_was_scheduled(queue: Queue, state: str) -> None:
    {"pending": queue.create, "running": queue.running, "exception": queue.canceled}[state](TASK_ID)
    before = queue.call("status", taskId=TASK_ID).get_json()["status"]
    assert before["state"] == state
    assert status(queue, "scheduleTask") == before


@pytest.mark.parametrize("name", CHANGING)
def test_a_repeated_call_changes_nothing(queue: Queue, name: str) -> None:
    first = succeeded(play(queue, name)).get_json()
    again = queue.call(name, None if name != "defineTask" else defined(), taskId=TASK_ID)
    assert succeeded(again).get_json() == first
    assert queue.call("status", taskId=TASK_ID).get_json() == first


def defined() -> Any:
    return task_body(
        schedulerId="a-scheduler",
        taskGroupId=GROUP_ID,
        scopes=["some:scope:*", "another scope"],
        routes=["index.a.b", "tc-treeherder.v2"],
        priority="lowest",
        projectId="a/project",
    )


def test_a_task_has_at_most_fifty_runs(queue: Queue) -> None:
    queue.canceled(TASK_ID)
    for _ in range(49):
        status(queue, "rerunTask")
        status(queue, "cancelTask")
    refused(queue.call("rerunTask", taskId=TASK_ID), 409, "RequestConflict", TASK_ID, "50 runs")


def test_the_scopes_name_the_group_of_the_stored_task(queue: Queue) -> None:
    queue.canceled(TASK_ID, schedulerId="s", taskGroupId=OTHER_ID)
    for name in ("scheduleTask", "rerunTask", "cancelTask"):
        answer = queue.call(name, None, ROOT.narrowed(), taskId=TASK_ID)
        verb = name.removesuffix("Task")
        refused(answer, 403, "InsufficientScopes", f"`queue:{verb}-task:s/{OTHER_ID}/{TASK_ID}`")
