"""defineTask, scheduleTask and rerunTask, as a scheduler of 2016 calls them."""

from typing import Any

from tests.http.calls import GROUP_ID, ROOT, TASK_ID, Queue, refused, succeeded, task_body

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


def test_a_defined_task_shows_that_it_depends_on_itself(queue: Queue) -> None:
    queue.create(OTHER_ID)
    queue.define(TASK_ID, dependencies=[OTHER_ID])
    assert set(queue.definition(TASK_ID)["dependencies"]) == {OTHER_ID, TASK_ID}


def test_a_rerun_starts_a_task_that_was_never_scheduled(queue: Queue) -> None:
    """As by the original queue, api.js:1053 of 84a800f5, and by today's."""
    queue.define(TASK_ID)
    rerun = status(queue, "rerunTask")
    assert (rerun["state"], rerun["retriesLeft"], reasons(rerun)) == ("pending", 5, ["rerun"])
    assert status(queue, "rerunTask") == status(queue, "scheduleTask") == rerun
    assert [event.exchange for event in queue.published()][:2] == ["task-defined", "task-pending"]
    succeeded(queue.claim(TASK_ID))


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


def defined() -> Any:
    return task_body(
        schedulerId="a-scheduler",
        taskGroupId=GROUP_ID,
        scopes=["some:scope:*", "another scope"],
        routes=["index.a.b", "tc-treeherder.v2"],
        priority="lowest",
        projectId="a/project",
    )


def test_the_scopes_name_the_group_of_the_stored_task(queue: Queue) -> None:
    queue.canceled(TASK_ID, schedulerId="s", taskGroupId=OTHER_ID)
    for name in ("scheduleTask", "rerunTask", "cancelTask"):
        answer = queue.call(name, None, ROOT.narrowed(), taskId=TASK_ID)
        verb = name.removesuffix("Task")
        refused(answer, 403, "InsufficientScopes", f"`queue:{verb}-task:s/{OTHER_ID}/{TASK_ID}`")
