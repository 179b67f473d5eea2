"""Clients of 2018 and of today get answers of different shapes. The path says which, unless a setting does.

Another setting decides on the shape of events.

``tests/answer_shapes.py`` checks the shape of each answer and event, in every test.
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


def test_the_path_decides_for_which_generation_the_answer_is(queue: Queue) -> None:
    queue.create(TASK_ID, projectId="a-project")

    def fields(name: str, prefix: str) -> set[str]:
        answer = queue.ask(name, taskId=TASK_ID, prefix=prefix)
        return {*answer.get("status", answer)}

    assert fields("status", TODAY) - fields("status", OF_2018) == LATER | {"priority"}
    assert fields("task", TODAY) - fields("task", OF_2018) == LATER
    assert fields("status", "/" + OF_2018) == fields("status", OF_2018)


def test_todays_clients_can_create_a_task_with_more_than_100_dependencies(queue: Queue) -> None:
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
        ("declareWorker", {}, OF_2018, "the property expires is missing"),
    ],
)
def test_the_path_decides_which_bodies_are_accepted(
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
def test_todays_lists_show_the_length_of_an_artifact_unless_a_setting_asks_for_the_shape_of_2018(
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


def test_todays_path_for_the_count_of_pending_tasks_accepts_only_todays_task_queue_ids(queue: Queue) -> None:
    answer = queue.send("GET", f"{TODAY}/pending/1%2F1", credentials=None)
    refused(answer, 400, "InvalidRequestArguments", "'1/1': today's clients must name", "lowercase")
    succeeded(queue.send("GET", f"{OF_2018}/pending/1%2F1", credentials=None))


@pytest.mark.parametrize(
    ("shape", "retried", "tags"),
    [("2018", [], None), ("today", ["task-exception"], {"tags": {"kind": "test"}})],
)
def test_a_setting_decides_for_which_generation_the_events_are(
    shape: str, retried: list[str], tags: Any
) -> None:
    """Today's events have the tags of the task, and each retried run has an event."""
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
def test_todays_artifact_events_are_published_only_for_artifacts_that_can_be_read(
    shape: str, names: list[str]
) -> None:
    queue = Queue(event_shape=shape)
    queue.running(TASK_ID)
    succeeded(queue.artifact(TASK_ID, "a"))
    upload = {"uploadId": queue.uploaded_object(TASK_ID, "o")["uploadId"]}
    succeeded(queue.call("finishArtifact", upload, taskId=TASK_ID, runId=0, name="o"))
    created = [event.payload for event in queue.published() if event.exchange == "artifact-created"]
    assert [payload["artifact"]["name"] for payload in created] == names
