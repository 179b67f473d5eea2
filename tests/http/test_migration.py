"""``GET /migration``: who may ask, what for, and that the answer is what was called."""

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
    return [f"{one['provisionerId']}/{one['workerType']}" for one in body["workerTypes"]]


def call(method: str, caller: str, missing: list[str] | None = None, count: int = 1) -> dict[str, Any]:
    return {"method": method, "caller": caller, "missing": missing or [], "count": count, "last": AT}


def claim_whole(queue: Queue) -> None:
    task_id = queue.create()
    ((_, run_id, message_id, receipt, signature),) = queue.messages()
    succeeded(queue.claim(task_id, run_id, messageId=message_id, receipt=receipt, signature=signature))


def test_where_nothing_was_called_there_is_nothing_to_tell(queue: Queue) -> None:
    assert answer(queue) == {
        "since": "2018-03-03T05:06:07.890Z",
        "until": AT,
        "notRecorded": 0,
        "workerTypes": [],
    }


def test_every_way_of_calling_is_told_with_who_did(queue: Queue) -> None:
    claim_whole(queue)
    queue.running()
    body = answer(queue)
    assert body["recordedSince"] == AT
    (told,) = body["workerTypes"]
    calls = told.pop("calls")
    for one in (
        call("pollTaskUrls", "root"),
        call("claimTask", "group/alice"),
        call("claimTask", "group/alice", NOTHING),
    ):
        calls.remove(one)
    assert calls == []
    assert told == {
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
                "nobody called claimWork",
            ],
            "toBeMoved": ["group/alice", "root"],
        },
    }


def test_a_worker_type_that_presents_its_messages_can_be_required_to(queue: Queue) -> None:
    claim_whole(queue)
    (told,) = answer(queue)["workerTypes"]
    assert told["required"] == {"possible": True, "inTheWay": [], "refused": 0}


def test_a_worker_type_that_calls_claim_work_alone_is_ready(queue: Queue) -> None:
    queue.create()
    worker = {"workerGroup": "group", "workerId": "alice"}
    pool = {"provisionerId": PROVISIONER, "workerType": WORKER_TYPE}
    succeeded(queue.call("claimWork", worker, **pool))
    (told,) = answer(queue)["workerTypes"]
    assert told["claimWork"] == {"ready": True, "inTheWay": [], "toBeMoved": []}
    assert told["calls"] == [call("claimWork", "group/alice")]


def test_claims_of_todays_clients_are_told_from_those_of_2018(queue: Queue) -> None:
    worker = {"workerGroup": "group", "workerId": "alice"}
    for pool in ("/", "%2F"):
        queue.create()
        route = f"/v1/claim-work/{PROVISIONER}{pool}{WORKER_TYPE}"
        succeeded(queue.send("POST", route, json.dumps(worker).encode()))
    (told,) = answer(queue)["workerTypes"]
    methods = {"claimWork", "claimWork by taskQueueId"}
    assert {one["method"] for one in told["calls"]} == methods
    assert told["claimWork"]["ready"] is True


def test_the_policy_in_force_is_told_and_whom_it_refuses() -> None:
    queue = Queue(worker_types={f"{PROVISIONER}/{WORKER_TYPE}": "required"})
    refused(queue.claim(queue.create()), 400, "InputError")
    (told,) = answer(queue)["workerTypes"]
    assert (told["policy"], told["required"]["refused"]) == ("required", 1)


@pytest.mark.parametrize("missing", NOTHING)
def test_an_empty_field_is_one_that_is_left_out(queue: Queue, missing: str) -> None:
    """As a Go client sends it."""
    task_id = queue.create()
    ((_, _, *message),) = queue.messages()
    proof = dict(zip(NOTHING, message, strict=True)) | {missing: ""}
    succeeded(queue.claim(task_id, **proof))
    (told,) = answer(queue)["workerTypes"]
    assert call("claimTask", "group/alice", [missing]) in told["calls"]


def test_who_claims_with_the_credentials_of_a_task_is_told_without_the_task(queue: Queue) -> None:
    scopes = ["queue:poll-task-urls:*"]
    name = "task-client/VLdaX5vAQ0iW8JIr3sGQZw/0/on/group/alice/until/1520140000"
    pool = {"provisionerId": PROVISIONER, "workerType": WORKER_TYPE}
    succeeded(queue.call("pollTaskUrls", None, temporary(ROOT, scopes, name), **pool))
    assert [one["calls"] for one in answer(queue)["workerTypes"]] == [
        [call("pollTaskUrls", "task-client/*/on/group/alice")]
    ]


@pytest.mark.parametrize("name", ["pollTaskUrls", "claimTask"])
def test_a_call_that_was_not_allowed_is_not_told(name: str) -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, ("queue:migration",)))
    task_id = queue.create()
    params = {"provisionerId": PROVISIONER, "workerType": WORKER_TYPE, "taskId": task_id, "runId": 0}
    body = {"workerGroup": "group", "workerId": "alice"} if name == "claimTask" else None
    for credentials in (TESTED, None):
        refused(queue.call(name, body, credentials, **params), 403, "InsufficientScopes")
    assert answer(queue)["workerTypes"] == []


def test_no_secret_is_in_the_answer(queue: Queue) -> None:
    task_id = queue.create()
    ((_, _, *message),) = queue.messages()
    succeeded(queue.claim(task_id, **dict(zip(NOTHING, message, strict=True))))
    text = ask(queue).get_data(as_text=True)
    assert [secret for secret in (*queue.secrets, *message) if secret in text] == []


@pytest.mark.parametrize(
    ("since", "begins"),
    [
        ("1h", "2018-03-04T04:06:07.890Z"),
        ("60m", "2018-03-04T04:06:07.890Z"),
        ("90m", "2018-03-04T03:36:07.890Z"),
        ("2d", "2018-03-02T05:06:07.890Z"),
        ("10d", "2018-02-22T05:06:07.890Z"),
        ("14400m", "2018-02-22T05:06:07.890Z"),
    ],
)
def test_the_time_begins_as_long_ago_as_is_asked_for(queue: Queue, since: str, begins: str) -> None:
    assert answer(queue, f"?since={since}")["since"] == begins


@pytest.mark.parametrize(
    "since",
    ["59m", "14401m", "11d", "241h", "0h", "01h", "1", "h", "-2h", "1.5h", "2H", "1w", "3600s", "24h ", ""],
)
def test_another_time_is_refused_with_what_would_be_accepted(queue: Queue, since: str) -> None:
    answered = ask(queue, f"?since={quote(since)}")
    refused(answered, 400, "InvalidRequestArguments", f"since is {since!r}", "1h to 10d", "like 90m")


@pytest.mark.parametrize("since", ["1" * 21, "\u0661h", "1h\n"])
def test_what_cannot_be_a_time_at_all_is_refused(queue: Queue, since: str) -> None:
    refused(ask(queue, f"?since={quote(since)}"), 400, "InvalidRequestArguments", "since is")


def test_those_worker_types_are_told_that_are_asked_for(queue: Queue) -> None:
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
def test_a_query_that_means_nothing_is_refused(queue: Queue, query: str, mentioned: str) -> None:
    refused(ask(queue, query), 400, "InvalidRequestArguments", mentioned)


@pytest.mark.parametrize("held", ["queue:migration", "queue:*", "*"])
def test_a_client_with_the_scope_is_answered(held: str) -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, (held,)))
    succeeded(ask(queue, credentials=TESTED))


@pytest.mark.parametrize(
    "held", ["queue:migration-x", "queue:migratio", "queue:migration/*", "queue:poll-task-urls:*"]
)
def test_a_client_without_the_scope_is_refused(held: str) -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, (held,)))
    for query in ("", "?since=x"):
        refused(ask(queue, query, TESTED), 403, "InsufficientScopes", "tested/client", "`queue:migration`")


def test_a_stranger_is_refused(queue: Queue) -> None:
    refused(ask(queue, credentials=None), 403, "InsufficientScopes", "without credentials")
    refused(ask(queue, credentials=Credentials("root", "x" * 30)), 401, "AuthenticationFailed")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_else_can_be_done_to_it(queue: Queue, method: str) -> None:
    refused(ask(queue, method=method), 404, "ResourceNotFound", "/migration")


def test_it_is_beside_the_api(queue: Queue) -> None:
    refused(queue.send("GET", "/v1/migration"), 404, "ResourceNotFound")
    reference = queue.send("GET", "/references/queue/v1/api.json", credentials=None).get_json()
    assert "migration" not in {entry["name"] for entry in reference["entries"]}
