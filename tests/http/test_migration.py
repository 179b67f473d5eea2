"""``GET /migration``: its scope, its parameters, and an answer with the calls that were made."""

import json
from typing import Any
from urllib.parse import quote

import jsonschema_rs
import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.authentication import Client
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
    temporary,
)

AT = "2018-03-04T05:06:07.890Z"
TESTED = Credentials("tested/client", "the-access-token-of-the-tested-client")
NOTHING = ["messageId", "receipt", "signature"]


def ask(queue: Queue, query: str = "", credentials: Credentials | None = ROOT, **more: Any) -> TestResponse:
    target = f"/migration{query}"
    signed = credentials and hawk(credentials, "GET", ROOT_URL + target, NOW)
    return queue.http.open(
        "/migration",
        base_url=ROOT_URL,
        query_string=query.removeprefix("?"),
        headers={"Authorization": signed} if signed else {},
        environ_overrides={"RAW_URI": target, "REQUEST_URI": target},
        **more,
    )


def answer(queue: Queue, query: str = "") -> Any:
    """The body, valid against the schema that the server publishes."""
    body = succeeded(ask(queue, query)).get_json()
    published = schema("/schemas/queue/v1/migration-response.json#")
    jsonschema_rs.validator_for(published, validate_formats=True).validate(body)
    return body


def worker_types(body: Any) -> list[str]:
    return [f"{pool['provisionerId']}/{pool['workerType']}" for pool in body["workerTypes"]]


def call(method: str, caller: str, missing: list[str] | None = None, count: int = 1) -> dict[str, Any]:
    return {
        "method": method,
        "caller": caller,
        "missing": missing or [],
        "count": count,
        "first": AT,
        "last": AT,
    }


def claim_whole(queue: Queue) -> None:
    task_id = queue.create()
    ((_, run_id, message_id, receipt, signature),) = queue.messages()
    succeeded(queue.claim(task_id, run_id, messageId=message_id, receipt=receipt, signature=signature))


def test_the_report_is_empty_without_calls(queue: Queue) -> None:
    assert answer(queue) == {
        "since": "2018-03-03T05:06:07.890Z",
        "until": AT,
        "notRecorded": 0,
        "workerTypes": [],
    }


def test_the_report_names_every_method_and_its_callers(queue: Queue) -> None:
    claim_whole(queue)
    queue.running()
    body = answer(queue)
    assert body["recordedSince"] == AT
    (pool,) = body["workerTypes"]
    calls = pool.pop("calls")
    for entry in (
        call("pollTaskUrls", "root"),
        call("claimTask", "group/alice"),
        call("claimTask", "group/alice", NOTHING),
    ):
        calls.remove(entry)
    assert calls == []
    assert pool == {
        "provisionerId": PROVISIONER,
        "workerType": WORKER_TYPE,
        "policy": "optional",
        "required": {
            "possible": False,
            "inTheWay": [f"group/alice called claimTask without messageId, receipt, signature: once at {AT}"],
            "refused": 1,
        },
        "claimWork": {
            "ready": False,
            "inTheWay": [
                f"root called pollTaskUrls: once at {AT}",
                f"group/alice called claimTask: 2 times, last at {AT}",
                "no worker called claimWork",
            ],
            "toBeMoved": ["group/alice", "root"],
        },
    }


def test_a_worker_type_with_only_whole_claims_can_be_required(queue: Queue) -> None:
    claim_whole(queue)
    (pool,) = answer(queue)["workerTypes"]
    assert pool["required"] == {"possible": True, "inTheWay": [], "refused": 0}


def test_a_worker_type_with_only_claim_work_is_ready(queue: Queue) -> None:
    queue.create()
    worker = {"workerGroup": "group", "workerId": "alice"}
    succeeded(queue.call("claimWork", worker, provisionerId=PROVISIONER, workerType=WORKER_TYPE))
    (pool,) = answer(queue)["workerTypes"]
    assert pool["claimWork"] == {"ready": True, "inTheWay": [], "toBeMoved": []}
    assert pool["calls"] == [call("claimWork", "group/alice")]


def test_claim_work_by_task_queue_id_is_a_method_of_its_own(queue: Queue) -> None:
    worker = {"workerGroup": "group", "workerId": "alice"}
    for pool in ("/", "%2F"):
        queue.create()
        route = f"/v1/claim-work/{PROVISIONER}{pool}{WORKER_TYPE}"
        succeeded(queue.send("POST", route, json.dumps(worker).encode()))
    (pool,) = answer(queue)["workerTypes"]
    methods = {"claimWork", "claimWork by taskQueueId"}
    assert {call["method"] for call in pool["calls"]} == methods
    assert pool["claimWork"]["ready"] is True


def test_a_worker_type_shows_its_policy_and_how_many_claims_it_refuses() -> None:
    queue = Queue(worker_types={f"{PROVISIONER}/{WORKER_TYPE}": "required"})
    refused(queue.claim(queue.create()), 400, "InputError")
    (pool,) = answer(queue)["workerTypes"]
    assert (pool["policy"], pool["required"]["refused"]) == ("required", 1)


@pytest.mark.parametrize("missing", NOTHING)
def test_an_empty_field_counts_as_missing(queue: Queue, missing: str) -> None:
    """As a Go client sends it."""
    task_id = queue.create()
    ((_, _, *message),) = queue.messages()
    proof: dict[str, Any] = dict(zip(NOTHING, message, strict=True)) | {missing: ""}
    succeeded(queue.claim(task_id, **proof))
    (pool,) = answer(queue)["workerTypes"]
    assert call("claimTask", "group/alice", [missing]) in pool["calls"]


def test_a_caller_with_the_credentials_of_a_task_is_named_without_the_task(queue: Queue) -> None:
    scopes = ["queue:poll-task-urls:*"]
    name = "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/alice/until/1520140000"
    succeeded(
        queue.call(
            "pollTaskUrls",
            None,
            temporary(ROOT, scopes, name),
            provisionerId=PROVISIONER,
            workerType=WORKER_TYPE,
        )
    )
    assert [pool["calls"] for pool in answer(queue)["workerTypes"]] == [
        [call("pollTaskUrls", "task-client/*/on/group/alice")]
    ]


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


def test_no_secret_is_in_the_answer(queue: Queue) -> None:
    task_id = queue.create()
    ((_, _, *message),) = queue.messages()
    proof: dict[str, Any] = dict(zip(NOTHING, message, strict=True))
    succeeded(queue.claim(task_id, **proof))
    text = ask(queue).get_data(as_text=True)
    assert [secret for secret in (*queue.secrets, *message) if secret in text] == []


@pytest.mark.parametrize(
    ("since", "begins"),
    [
        ("1h", "2018-03-04T04:06:07.890Z"),
        ("60m", "2018-03-04T04:06:07.890Z"),
        ("90m", "2018-03-04T03:36:07.890Z"),
        ("1h30m", "2018-03-04T03:36:07.890Z"),
        ("2d", "2018-03-02T05:06:07.890Z"),
        ("10d", "2018-02-22T05:06:07.890Z"),
        ("14400m", "2018-02-22T05:06:07.890Z"),
    ],
)
def test_the_report_begins_as_long_ago_as_requested(queue: Queue, since: str, begins: str) -> None:
    assert answer(queue, f"?since={since}")["since"] == begins


@pytest.mark.parametrize(
    "since",
    ["59m", "14401m", "11d", "241h", "0h", "1", "h", "-2h", "1.5h", "2H", "1w", "24h ", "", "1" * 21],
)
def test_a_since_out_of_range_or_malformed_is_refused(queue: Queue, since: str) -> None:
    answered = ask(queue, f"?since={quote(since)}")
    refused(answered, 400, "InvalidRequestArguments", "since is", "1h to 10d", "like 90m")


def test_the_report_is_limited_to_the_requested_worker_types(queue: Queue) -> None:
    for provisioner_id, worker_type in (("a", "x"), ("a", "y"), ("b", "x")):
        succeeded(queue.call("pollTaskUrls", provisionerId=provisioner_id, workerType=worker_type))
    for query, expected in {
        "": ["a/x", "a/y", "b/x"],
        "?provisionerId=a": ["a/x", "a/y"],
        "?workerType=x": ["a/x", "b/x"],
        "?provisionerId=a&workerType=y&since=1h": ["a/y"],
        "?provisionerId=b&workerType=y": [],
    }.items():
        assert worker_types(answer(queue, query)) == expected


@pytest.mark.parametrize(
    ("query", "mentioned"),
    [
        ("?provisionerId=a%2Fb", "provisionerId is 'a/b'"),
        ("?workerType=", "workerType is ''"),
        ("?workergroup=a", "migration takes no query parameter 'workergroup'"),
        ("?since=1h&since=2h", "since is given 2 times"),
    ],
)
def test_a_malformed_query_is_refused(queue: Queue, query: str, mentioned: str) -> None:
    refused(ask(queue, query), 400, "InvalidRequestArguments", mentioned)


@pytest.mark.parametrize("held", ["queue:migration-x", "queue:poll-task-urls:*"])
def test_a_client_without_the_scope_is_refused(held: str) -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, (held,)))
    for query in ("", "?since=x"):
        refused(ask(queue, query, TESTED), 403, "InsufficientScopes", "tested/client", "`queue:migration`")


def test_a_client_with_the_scope_is_answered() -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, ("queue:migration",)))
    succeeded(ask(queue, credentials=TESTED))


def test_a_caller_without_valid_credentials_is_refused(queue: Queue) -> None:
    refused(ask(queue, credentials=None), 403, "InsufficientScopes", "without credentials")
    refused(ask(queue, credentials=Credentials("root", "x" * 30)), 401, "AuthenticationFailed")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_not_found(queue: Queue, method: str) -> None:
    refused(ask(queue, method=method), 404, "ResourceNotFound", "/migration")


def test_the_endpoint_is_not_part_of_the_api_reference(queue: Queue) -> None:
    refused(queue.send("GET", "/v1/migration"), 404, "ResourceNotFound")
    reference = queue.send("GET", "/references/queue/v1/api.json", credentials=None).get_json()
    assert "migration" not in {entry["name"] for entry in reference["entries"]}
