"""The path says for which generation an answer is; a setting overrides it, and another decides for events.

That each answer and event has the shape of its generation is checked in every test, by ``tests/shapes.py``.
"""

import json

import pytest

from legacy_queue.domain.generations import SINCE_2018
from legacy_queue.domain.ids import slugid
from tests import shapes
from tests.http.calls import OF_2018, POOL, TASK_ID, TODAY, Queue, refused, succeeded, task_body

LATER = {"taskQueueId", "projectId"}


def status(queue: Queue, prefix: str) -> set[str]:
    return set(succeeded(queue.call("status", taskId=TASK_ID, prefix=prefix)).get_json()["status"])


def test_the_path_says_for_which_generation_the_answer_is(queue: Queue) -> None:
    queue.create(TASK_ID, projectId="a-project")
    assert status(queue, TODAY) - status(queue, OF_2018) == LATER | {"priority"}
    old, new = (succeeded(queue.call("task", taskId=TASK_ID, prefix=prefix)) for prefix in (OF_2018, TODAY))
    assert set(new.get_json()) - set(old.get_json()) == LATER
    assert status(queue, "/" + OF_2018) == status(queue, OF_2018)


@pytest.mark.parametrize("shape", ["2018", "today"])
def test_a_setting_says_for_which_generation_all_answers_are(shape: str) -> None:
    queue = Queue(answer_shape=shape)
    queue.create(TASK_ID)
    wanted = {"today": LATER | {"priority"}, "2018": set()}[shape]
    for prefix in (OF_2018, TODAY):
        assert status(queue, prefix) & (LATER | {"priority"}) == wanted


def test_artifacts_that_only_todays_queue_has_are_references_for_readers_of_2018(queue: Queue) -> None:
    task_id = queue.running()
    for storage_type in ("link", "object"):
        succeeded(queue.artifact(task_id, f"public/{storage_type}", storage_type))
    for prefix, kinds in ((OF_2018, ["reference"] * 2), (TODAY, ["link", "object"])):
        answer = succeeded(queue.call("listArtifacts", taskId=task_id, runId=0, prefix=prefix))
        assert [artifact["storageType"] for artifact in answer.get_json()["artifacts"]] == kinds
    created = [event for event in queue.published() if event.exchange == "artifact-created"]
    assert [event.payload["artifact"]["storageType"] for event in created] == ["reference"] * 2


def test_a_task_of_today_may_have_more_than_a_hundred_dependencies(queue: Queue) -> None:
    required = [queue.create() for _ in range(101)]
    body, task_id = task_body(dependencies=required), slugid()
    refused(queue.call("createTask", body, taskId=task_id), 400, "InputError", "there are 101; 100 are")
    succeeded(queue.call("createTask", body, taskId=task_id, prefix=TODAY))
    assert queue.definition(task_id)["dependencies"] == required


def test_defining_a_task_counts_itself_among_its_dependencies(queue: Queue) -> None:
    required = [queue.create() for _ in range(100)]
    answer = queue.call("defineTask", task_body(dependencies=required), taskId=TASK_ID)
    refused(answer, 400, "InputError", "there are 101, with the task itself; 100 are accepted")
    queue.define(dependencies=required[1:])


@pytest.mark.parametrize("source", ["ssh://git@example.com/repository", "git@example.com:a/repository"])
def test_the_source_may_be_that_of_git(queue: Queue, source: str) -> None:
    queue.create(TASK_ID, metadata={**task_body()["metadata"], "source": source})
    assert queue.definition(TASK_ID)["metadata"]["source"] == source


def test_todays_count_of_pending_tasks_takes_only_todays_names_of_task_queues(queue: Queue) -> None:
    answer = queue.send("GET", f"{TODAY}/pending/1%2F1", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "'1/1'", "as in today's queue")
    succeeded(queue.send("GET", f"{OF_2018}/pending/1%2F1", credentials=None))


def test_todays_events_have_the_tags_of_the_task_and_tell_of_each_retried_run() -> None:
    for shape, retried in (("2018", []), ("today", ["task-exception"])):
        queue = Queue(event_shape=shape)
        queue.running(TASK_ID, tags={"kind": "test"})
        report = {"reason": "worker-shutdown"}
        succeeded(queue.call("reportException", report, taskId=TASK_ID, runId=0))
        events = [event for event in queue.published() if event.exchange.startswith("task-")]
        names = [event.exchange for event in events]
        assert names == ["task-defined", "task-pending", "task-running", *retried, "task-pending"]
        tags = {json.dumps(event.payload.get("task")) for event in events}
        assert tags == ({'{"tags": {"kind": "test"}}'} if shape == "today" else {"null"})


@pytest.mark.parametrize(("generation", "spoiled"), [("2018", "projectId"), ("today", "more")])
def test_an_answer_of_another_shape_would_fail_any_test(queue: Queue, generation: str, spoiled: str) -> None:
    queue.create(TASK_ID)
    prefix = {"2018": OF_2018, "today": TODAY}[generation]
    answer = succeeded(queue.call("status", taskId=TASK_ID, prefix=prefix)).get_json()
    assert shapes.fault(generation, "task-status-response", answer) is None
    answer["status"][spoiled] = "none"
    assert spoiled in (shapes.fault(generation, "task-status-response", answer) or "")


def test_an_answer_of_another_shape_is_seen(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SINCE_2018, "pending-tasks-response")
    queue.call("pendingTasks", **POOL)
    assert "pending-tasks-response is not of 2018" in shapes.faults()
