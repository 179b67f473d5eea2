"""The path says for which generation an answer is; a setting overrides it, and another decides for events.

Every test checks that each answer and event has the shape of its generation: ``tests/answer_shapes.py``.
"""

from typing import Any

import pytest

from legacy_queue.domain.ids import slugid
from tests.http.calls import (
    DECLARED,
    OF_2018,
    POOL,
    TASK_ID,
    TODAY,
    WORKER,
    Queue,
    artifact_body,
    refused,
    succeeded,
    task_body,
)

LATER = {"taskQueueId", "projectId"}
BOT = {**task_body()["metadata"], "owner": "a-bot"}
UNREADABLE = artifact_body("error", reason="file-not-readable-on-worker")
LENGTH: dict[str, Any] = {"contentLength": 12345}


def test_the_path_says_for_which_generation_the_answer_is(queue: Queue) -> None:
    queue.create(TASK_ID, projectId="a-project")

    def fields(name: str, prefix: str) -> set[str]:
        answer = queue.ask(name, taskId=TASK_ID, prefix=prefix)
        return {*answer.get("status", answer)}

    assert fields("status", TODAY) - fields("status", OF_2018) == LATER | {"priority"}
    assert fields("task", TODAY) - fields("task", OF_2018) == LATER
    assert fields("status", "/" + OF_2018) == fields("status", OF_2018)


def test_a_task_of_today_may_have_more_than_a_hundred_dependencies(queue: Queue) -> None:
    required = [queue.create() for _ in range(101)]
    body, task_id = task_body(dependencies=required), slugid()
    refused(
        queue.call("createTask", body, taskId=task_id),
        400,
        "InputError",
        "101 dependencies: expected at most 100",
    )
    succeeded(queue.call("createTask", body, taskId=task_id, prefix=TODAY))
    assert queue.definition(task_id)["dependencies"] == required


@pytest.mark.parametrize(
    ("call", "body", "accepting", "wrong"),
    [
        ("createTask", task_body(metadata=BOT), TODAY, 'body/metadata/owner is "a-bot"'),
        ("createTask", task_body(priority="normal"), OF_2018, 'body/priority is "normal"'),
        ("createArtifact", artifact_body("s3", **LENGTH), TODAY, "body/contentLength"),
        ("createArtifact", artifact_body("object", **LENGTH), TODAY, "body/contentLength"),
        ("createArtifact", UNREADABLE, TODAY, 'body/reason is "file-not-readable-on-worker"'),
        ("declareWorker", {}, OF_2018, '"expires" is a required property'),
    ],
)
def test_the_path_says_which_requests_are_accepted(
    queue: Queue, call: str, body: dict[str, Any], accepting: str, wrong: str
) -> None:
    if call == "createArtifact":
        queue.running(TASK_ID)
    params = {**POOL, **WORKER, "taskId": TASK_ID, "runId": 0, "name": "public/a"}
    refusing = OF_2018 if accepting == TODAY else TODAY
    schema = f"/schemas/queue/v1/{DECLARED[call].input}{'-of-today' if refusing == TODAY else ''}.json"
    refused(queue.call(call, body, prefix=refusing, **params), 400, "InputValidationError", wrong, schema)
    succeeded(queue.send("GET", schema, credentials=None))
    succeeded(queue.call(call, body, prefix=accepting, **params))


@pytest.mark.parametrize(("shape", "length"), [("by-path", 12345), ("2018", None)])
def test_todays_answers_have_the_length_of_an_artifact_unless_a_setting_is_for_old_readers(
    shape: str, length: int | None
) -> None:
    queue = Queue(answer_shape=shape)
    queue.running(TASK_ID)
    asked: dict[str, Any] = {"taskId": TASK_ID, "runId": 0, "name": "public/a"}
    queue.ask("createArtifact", artifact_body("s3", **LENGTH), prefix=TODAY, **asked)
    for prefix, answered in ((TODAY, length), (OF_2018, None)):
        (listed,) = queue.ask("listArtifacts", prefix=prefix, **asked)["artifacts"]
        assert listed.get("contentLength") == answered
    assert queue.ask("artifactInfo", prefix=TODAY, **asked)["contentLength"] == 12345


def test_todays_count_of_pending_tasks_takes_only_todays_names_of_task_queues(queue: Queue) -> None:
    answer = queue.send("GET", f"{TODAY}/pending/1%2F1", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "'1/1'", "as in today's queue")
    succeeded(queue.send("GET", f"{OF_2018}/pending/1%2F1", credentials=None))


@pytest.mark.parametrize(
    ("shape", "retried", "tags"),
    [("2018", [], None), ("today", ["task-exception"], {"tags": {"kind": "test"}})],
)
def test_a_setting_says_for_which_generation_the_events_are(
    shape: str, retried: list[str], tags: Any
) -> None:
    """Today's have the tags of the task, and are of each retried run."""
    queue = Queue(event_shape=shape)
    queue.running(TASK_ID, tags={"kind": "test"})
    succeeded(queue.call("reportException", {"reason": "worker-shutdown"}, taskId=TASK_ID, runId=0))
    events = queue.published()
    assert [event.exchange for event in events] == [
        "task-defined",
        "task-pending",
        "task-running",
        *retried,
        "task-pending",
    ]
    state = events[0].payload["status"]["state"], events[0].routing_key.split(".")[2]
    assert state == (("unscheduled", "_") if shape == "today" else ("pending", "0"))
    assert [event.payload.get("task") for event in events] == [tags] * len(events)


@pytest.mark.parametrize(("shape", "names"), [("2018", ["a", "o", "o"]), ("today", ["o"])])
def test_todays_events_of_artifacts_are_of_those_that_can_be_read(shape: str, names: list[str]) -> None:
    queue = Queue(event_shape=shape)
    queue.running(TASK_ID)
    succeeded(queue.artifact(TASK_ID, "a"))
    upload = {"uploadId": queue.uploaded_object(TASK_ID, "o")["uploadId"]}
    succeeded(queue.call("finishArtifact", upload, taskId=TASK_ID, runId=0, name="o"))
    created = [event.payload for event in queue.published() if event.exchange == "artifact-created"]
    assert [payload["artifact"]["name"] for payload in created] == names
