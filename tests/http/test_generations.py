"""The path says for which generation an answer is; a setting overrides it, and another decides for events.

That each answer and event has the shape of its generation is checked in every test, by ``tests/shapes.py``.
"""

import json

from legacy_queue.domain.ids import slugid
from tests.http.calls import OF_2018, TASK_ID, TODAY, Queue, refused, succeeded, task_body

LATER = {"taskQueueId", "projectId"}


def status(queue: Queue, prefix: str) -> set[str]:
    return set(succeeded(queue.call("status", taskId=TASK_ID, prefix=prefix)).get_json()["status"])


def test_the_path_says_for_which_generation_the_answer_is(queue: Queue) -> None:
    queue.create(TASK_ID, projectId="a-project")
    assert status(queue, TODAY) - status(queue, OF_2018) == LATER | {"priority"}
    old, new = (succeeded(queue.call("task", taskId=TASK_ID, prefix=prefix)) for prefix in (OF_2018, TODAY))
    assert set(new.get_json()) - set(old.get_json()) == LATER
    assert status(queue, "/" + OF_2018) == status(queue, OF_2018)


def test_a_task_of_today_may_have_more_than_a_hundred_dependencies(queue: Queue) -> None:
    required = [queue.create() for _ in range(101)]
    body, task_id = task_body(dependencies=required), slugid()
    refused(queue.call("createTask", body, taskId=task_id), 400, "InputError", "there are 101; 100 are")
    succeeded(queue.call("createTask", body, taskId=task_id, prefix=TODAY))
    assert queue.definition(task_id)["dependencies"] == required


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
