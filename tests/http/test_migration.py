"""``GET /migration``: its scope, its parameters, and an answer with the calls that were made."""

from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.times import format_time
from tests.http.calls import (
    NOW,
    PROVISIONER,
    ROOT,
    ROOT_URL,
    TASK_ID,
    TESTED,
    Queue,
    hawk,
    holding,
    refused,
    scene,
    schema,
    succeeded,
)


def ask(queue: Queue, query: str = "") -> TestResponse:
    target = f"/migration{query}"
    return queue.http.open(
        "/migration",
        base_url=ROOT_URL,
        query_string=query.removeprefix("?"),
        headers={"Authorization": hawk(ROOT, "GET", ROOT_URL + target, NOW)},
        environ_overrides={"RAW_URI": target, "REQUEST_URI": target},
    )


def report(queue: Queue, query: str = "") -> Any:
    """The body, valid against the schema that the server publishes."""
    body = succeeded(ask(queue, query)).get_json()
    published = schema("/schemas/queue/v1/migration-response.json#")
    jsonschema_rs.validator_for(published, validate_formats=True).validate(body)
    return body


def test_the_report_counts_the_reads_that_only_the_anonymous_role_allows() -> None:
    queue = holding("queue:status:*", "queue:migration")
    task_id = queue.create()
    for credentials in (TESTED, TESTED, None, ROOT):
        for name in ("task", "status"):
            succeeded(queue.call(name, None, credentials, taskId=task_id))
    refused(queue.call("task", None, TESTED, taskId=TASK_ID), 404, "ResourceNotFound")
    status, get = ["queue:status:<taskId>"], ["queue:get-task:<taskId>"]
    counted = [("status", "", status, 1), ("task", "", get, 1), ("task", TESTED.client_id, get, 2)]
    times = dict.fromkeys(("first", "last"), format_time(NOW))
    assert report(queue)["reads"] == [
        {"method": method, "caller": caller, "missing": missing, "count": count, **times}
        for method, caller, missing, count in counted
    ]
    assert report(queue)["workerTypes"] == []
    assert report(queue, f"?provisionerId={PROVISIONER}")["reads"] == []


@pytest.mark.parametrize("name", ["pollTaskUrls", "claimTask"])
def test_a_call_without_its_scopes_is_not_counted(name: str) -> None:
    queue, example = holding("queue:migration"), scene(name)
    queue.create(TASK_ID)
    for credentials in (TESTED, None):
        answer = queue.call(name, example.body, credentials, **example.params)
        refused(answer, 403, "InsufficientScopes")
    assert report(queue)["workerTypes"] == []


def test_a_since_out_of_range_or_malformed_is_refused(queue: Queue) -> None:
    for since in (
        "59m",
        "14401m",
        "11d",
        "241h",
        "0h",
        "1",
        "h",
        "-2h",
        "1.5h",
        "2H",
        "1w",
        "24h ",
        "",
        "1" * 21,
    ):
        answered = ask(queue, f"?since={quote(since)}")
        refused(answered, 400, "InvalidRequestArguments", "since is", "1h to 10d", "like 90m")
