"""claimWork over HTTP: docs/explanation/http-contract.md#claims."""

import json
from datetime import timedelta
from typing import Any

from werkzeug.test import TestResponse

from tests.http.calls import (
    PROVISIONER,
    ROOT,
    WORKER,
    WORKER_TYPE,
    Credentials,
    Queue,
    succeeded,
)


def claim_work(
    queue: Queue, credentials: Credentials = ROOT, worker_type: str = WORKER_TYPE, **more: Any
) -> TestResponse:
    body = {**WORKER, **more}
    return queue.call("claimWork", body, credentials, provisionerId=PROVISIONER, workerType=worker_type)


def test_a_client_that_prefers_not_to_wait_is_answered_at_once() -> None:
    queue = Queue(claim_work_wait=timedelta(hours=1))
    target = f"/v1/claim-work/{PROVISIONER}/{WORKER_TYPE}"
    for prefer in ("wait=0", "respond-async, wait=0"):
        sent = queue.send("POST", target, json.dumps(WORKER).encode(), headers={"Prefer": prefer})
        assert succeeded(sent).get_json() == {"tasks": []}


def test_a_claim_is_as_that_of_claim_task(queue: Queue) -> None:
    first, second = queue.create(scopes=["a:scope"]), queue.create(scopes=["a:scope"])
    (by_work,) = succeeded(claim_work(queue)).get_json()["tasks"]
    by_task = succeeded(queue.claim(second)).get_json()
    assert by_work["status"]["taskId"] == first
    assert set(by_work) == set(by_task)
    assert by_work["task"] == succeeded(queue.call("task", taskId=first)).get_json()
    assert by_work["takenUntil"] == by_task["takenUntil"]


def test_a_pool_may_be_one_escaped_segment(queue: Queue) -> None:
    task_id = queue.create()
    route = f"/api/queue/v1/claim-work/{PROVISIONER}%2F{WORKER_TYPE}"
    answer = succeeded(queue.send("POST", route, json.dumps(WORKER).encode()))
    assert [claim["status"]["taskId"] for claim in answer.get_json()["tasks"]] == [task_id]
