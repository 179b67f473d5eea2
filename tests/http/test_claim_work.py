"""claimWork over HTTP: docs/explanation/http-contract.md#claims."""

import json
from datetime import timedelta

from tests.http.calls import PROVISIONER, WORKER, WORKER_TYPE, Queue, succeeded


def test_a_client_that_prefers_not_to_wait_is_answered_at_once() -> None:
    queue = Queue(claim_work_wait=timedelta(hours=1))
    target = f"/v1/claim-work/{PROVISIONER}/{WORKER_TYPE}"
    for prefer in ("wait=0", "respond-async, wait=0"):
        sent = queue.send("POST", target, json.dumps(WORKER).encode(), headers={"Prefer": prefer})
        assert succeeded(sent).get_json() == {"tasks": []}


def test_a_pool_may_be_one_escaped_segment(queue: Queue) -> None:
    task_id = queue.create()
    route = f"/api/queue/v1/claim-work/{PROVISIONER}%2F{WORKER_TYPE}"
    answer = succeeded(queue.send("POST", route, json.dumps(WORKER).encode()))
    assert [claim["status"]["taskId"] for claim in answer.get_json()["tasks"]] == [task_id]
