"""``GET /migration``: its scope, its parameters, and an answer with the calls that were made."""

from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.ids import slugid
from tests.http.calls import (
    NOW,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    WORKER_TYPE,
    Credentials,
    Queue,
    hawk,
    refused,
    schema,
    succeeded,
)

AT = "2018-03-04T05:06:07.890Z"
TESTED = Credentials("tested/client", "the-access-token-of-the-tested-client")


def ask(queue: Queue, query: str = "") -> TestResponse:
    target = f"/migration{query}"
    return queue.http.open(
        "/migration",
        base_url=ROOT_URL,
        query_string=query.removeprefix("?"),
        headers={"Authorization": hawk(ROOT, "GET", ROOT_URL + target, NOW)},
        environ_overrides={"RAW_URI": target, "REQUEST_URI": target},
    )


def answer(queue: Queue, query: str = "") -> Any:
    """The body, valid against the schema that the server publishes."""
    body = succeeded(ask(queue, query)).get_json()
    published = schema("/schemas/queue/v1/migration-response.json#")
    jsonschema_rs.validator_for(published, validate_formats=True).validate(body)
    return body


def call(method: str, caller: str, missing: list[str] | None = None, count: int = 1) -> dict[str, Any]:
    return {
        "method": method,
        "caller": caller,
        "missing": missing or [],
        "count": count,
        "first": AT,
        "last": AT,
    }


def test_the_report_counts_the_reads_that_only_the_anonymous_role_allows() -> None:
    scopes = "queue:status:*", "queue:migration"
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, scopes))
    task_id = queue.create()
    for credentials in (TESTED, TESTED, None, ROOT):
        for name in ("task", "status"):
            succeeded(queue.call(name, None, credentials, taskId=task_id))
    refused(queue.call("task", None, TESTED, taskId=slugid()), 404, "ResourceNotFound")
    report = answer(queue)
    assert report["reads"] == [
        call("status", "", ["queue:status:<taskId>"]),
        call("task", "", ["queue:get-task:<taskId>"]),
        call("task", TESTED.client_id, ["queue:get-task:<taskId>"], 2),
    ]
    assert report["workerTypes"] == []
    assert answer(queue, f"?provisionerId={PROVISIONER}")["reads"] == []


def test_without_the_anonymous_role_a_read_names_the_scope_that_is_missing() -> None:
    queue = Queue(anonymous_scopes=())
    lacking = f"`queue:status:{queue.create('VLdaX5vAQ0iW8JIr3sGQZw')}`"
    refused(
        queue.call("status", None, None, taskId="VLdaX5vAQ0iW8JIr3sGQZw"), 403, "InsufficientScopes", lacking
    )
    assert answer(queue)["reads"] == []


@pytest.mark.parametrize("name", ["pollTaskUrls", "claimTask"])
def test_a_call_without_its_scopes_is_not_counted(name: str) -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, ("queue:migration",)))
    task_id = queue.create()
    params: dict[str, Any] = {
        "provisionerId": PROVISIONER,
        "workerType": WORKER_TYPE,
        "taskId": task_id,
        "runId": 0,
    }
    body = {"workerGroup": "group", "workerId": "alice"} if name == "claimTask" else None
    for credentials in (TESTED, None):
        refused(queue.call(name, body, credentials, **params), 403, "InsufficientScopes")
    assert answer(queue)["workerTypes"] == []


@pytest.mark.parametrize(
    "since",
    ["59m", "14401m", "11d", "241h", "0h", "1", "h", "-2h", "1.5h", "2H", "1w", "24h ", "", "1" * 21],
)
def test_a_since_out_of_range_or_malformed_is_refused(queue: Queue, since: str) -> None:
    answered = ask(queue, f"?since={quote(since)}")
    refused(answered, 400, "InvalidRequestArguments", "since is", "1h to 10d", "like 90m")
