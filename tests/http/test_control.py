"""``/control/v1``: who may control a server, and the clock."""

import json
from datetime import timedelta
from typing import Any

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.authentication import Client
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.http.control_endpoints import CONTROL_ENDPOINTS
from legacy_queue.http.endpoint import Endpoint
from tests.http.calls import (
    DECLARED,
    NOW,
    ROOT_URL,
    TASK_ID,
    Credentials,
    Queue,
    artifact_body,
    claimed,
    refused,
    succeeded,
    task_body,
)

BODIES = {  # of the endpoints that take a body
    "moveClock": {"freeze": True},
    "addFault": {"endpoint": "claimTask", "status": 503},
}
TESTED = Credentials("tested/client", "the-access-token-that-is-tested")


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True)


def clock(queue: Queue) -> Any:
    return succeeded(queue.send("GET", "/control/v1/clock")).get_json()


def move(queue: Queue, **body: Any) -> TestResponse:
    return queue.send("POST", "/control/v1/clock", json.dumps(body).encode())


def ask(queue: Queue, endpoint: Endpoint, credentials: Credentials | None) -> TestResponse:
    route = endpoint.route.replace("<faultId>", "00000000").replace("<", "").replace(">", "")
    body = json.dumps(BODIES[endpoint.name]).encode() if endpoint.input else b""
    return queue.send(endpoint.method, route, body, credentials=credentials)


@pytest.mark.parametrize("endpoint", CONTROL_ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_without_the_setting_an_endpoint_is_a_404_that_names_the_setting(endpoint: Endpoint) -> None:
    for credentials in (TESTED, None):
        refused(ask(Queue(), endpoint, credentials), 404, "ResourceNotFound", "--control")


@pytest.mark.parametrize("endpoint", CONTROL_ENDPOINTS, ids=lambda endpoint: endpoint.name)
def test_a_client_without_the_scope_is_refused(endpoint: Endpoint) -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, ("queue:*-task",)), control=True)
    refused(ask(queue, endpoint, TESTED), 403, "InsufficientScopes", "`queue:control`")
    refused(ask(queue, endpoint, None), 403, "InsufficientScopes", "without credentials")


def test_a_client_with_the_scope_reads_the_clock() -> None:
    queue = Queue(Client(TESTED.client_id, TESTED.access_token, ("queue:control",)), control=True)
    succeeded(queue.send("GET", "/control/v1/clock", credentials=TESTED))


def test_a_clock_that_was_not_moved_shows_the_real_time(queue: Queue) -> None:
    assert clock(queue) == {"now": format_time(NOW), "offset": 0, "frozen": False, "movable": True}
    queue.clock.advance(timedelta(minutes=1))
    assert clock(queue)["offset"] == 0


def test_a_clock_that_cannot_be_moved_says_why() -> None:
    queue = Queue(control=True, storage=Queue().server.storage)
    answer = clock(queue)
    assert not answer["movable"]
    assert "--storage memory" in answer["reason"]


def test_the_endpoints_have_a_reference_of_their_own(queue: Queue) -> None:
    reference = queue.send("GET", "/references/control/v1/api.json", credentials=None).get_json()
    assert reference["baseUrl"] == ROOT_URL
    entries = {entry["name"]: entry for entry in reference["entries"]}
    assert list(entries) == [endpoint.name for endpoint in CONTROL_ENDPOINTS]
    for entry in entries.values():
        assert entry["scopes"] == "queue:control"
        for ref in (entry[kind] for kind in ("input", "output") if kind in entry):
            succeeded(queue.send("GET", ref.removesuffix("#"), credentials=None))


def test_the_endpoints_are_not_in_the_reference_of_the_queue(queue: Queue) -> None:
    reference = queue.send("GET", "/references/queue/v1/api.json", credentials=None).get_json()
    assert {entry["name"] for entry in reference["entries"]} == set(DECLARED)


@pytest.mark.parametrize(
    ("advance", "seconds"),
    [("1500ms", 1.5), ("90s", 90), ("21m", 21 * 60), ("2h", 7200), ("5d", 5 * 86400), ("0s", 0)],
)
def test_an_advance_moves_the_clock_by_that_much(queue: Queue, advance: str, seconds: float) -> None:
    assert succeeded(move(queue, advance=advance)).get_json()["offset"] == seconds
    assert clock(queue)["now"] == format_time(NOW + timedelta(seconds=seconds))


def test_a_frozen_clock_stands_still_until_it_is_released(queue: Queue) -> None:
    assert succeeded(move(queue, freeze=True)).get_json()["frozen"]
    queue.clock.advance(timedelta(minutes=1))
    assert (clock(queue)["now"], clock(queue)["offset"]) == (format_time(NOW), -60)
    assert succeeded(move(queue, advance="90s")).get_json()["frozen"]
    assert not succeeded(move(queue, release=True)).get_json()["frozen"]
    queue.clock.advance(timedelta(minutes=1))
    assert (clock(queue)["now"], clock(queue)["offset"]) == (format_time(NOW + timedelta(seconds=150)), 30)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"advance": "21m", "freeze": True},
        {"freeze": False},
        {"advance": 21},
        {"set": "2030-01-01T00:00:00.000Z"},
    ],
)
def test_an_invalid_move_is_refused(queue: Queue, body: dict[str, Any]) -> None:
    refused(move(queue, **body), 400, "InputValidationError")
    assert clock(queue)["offset"] == 0


@pytest.mark.parametrize("advance", ["-21m", "1.5h", "1w", ""])
def test_an_invalid_duration_is_refused_with_an_example_of_a_valid_one(queue: Queue, advance: str) -> None:
    refused(move(queue, advance=advance), 400, "InputError", f"advance: {advance!r} is no duration: 1500ms")
    assert clock(queue)["offset"] == 0


@pytest.mark.parametrize("advance", ["36501d", "3153600000001ms", "99999999d"])
def test_a_move_that_is_too_far_is_refused_with_the_limit(queue: Queue, advance: str) -> None:
    refused(move(queue, advance=advance), 400, "InputError", "36500d")


def test_a_year_may_be_given_in_milliseconds(queue: Queue) -> None:
    assert succeeded(move(queue, advance="31536000001ms")).get_json()["offset"] == 31536000.001


def test_a_clock_is_moved_only_with_memory_storage() -> None:
    queue = Queue(control=True, storage=Queue().server.storage)
    for body in ({"advance": "21m"}, {"freeze": True}, {"release": True}):
        refused(move(queue, **body), 409, "RequestConflict", "--storage memory")


def test_an_advance_expires_a_claim_but_not_its_credentials(queue: Queue) -> None:
    task_id = queue.create()
    credentials = claimed(succeeded(queue.claim(task_id)))
    succeeded(move(queue, advance="21m"))
    runs = queue.call("status", taskId=task_id).get_json()["status"]["runs"]
    assert [(run["state"], run.get("reasonResolved")) for run in runs] == [
        ("exception", "claim-expired"),
        ("pending", None),
    ]
    assert runs[0]["resolved"] == runs[0]["takenUntil"]
    refused(
        queue.call("reclaimTask", credentials=credentials, taskId=task_id, runId=0), 409, "RequestConflict"
    )


def test_signed_urls_of_a_moved_clock_are_valid(queue: Queue) -> None:
    succeeded(move(queue, advance="300d"))
    now = parse_time(clock(queue)["now"])
    succeeded(queue.call("createTask", task_body(now), taskId=TASK_ID))
    assert [task_id for task_id, *_ in queue.messages()] == [TASK_ID]
    credentials = claimed(succeeded(queue.claim(TASK_ID)))
    body = artifact_body("s3", now)
    created = queue.call("createArtifact", body, credentials, taskId=TASK_ID, runId=0, name="public/a")
    put_url, expires = (succeeded(created).get_json()[name] for name in ("putUrl", "expires"))
    assert NOW < parse_time(expires) < NOW + timedelta(days=1)
    succeeded(queue.upload(put_url, b"content"))
    answer = queue.call("getArtifact", credentials=None, taskId=TASK_ID, runId=0, name="public/a")
    target = answer.headers["location"].removeprefix(ROOT_URL)
    assert queue.send("GET", target, credentials=None).data == b"content"


def tasks(queue: Queue, query: str = "") -> Any:
    return succeeded(queue.send("GET", f"/control/v1/tasks{query}")).get_json()


def test_unresolved_tasks_are_listed_with_their_status(queue: Queue) -> None:
    open_tasks = [queue.create(), queue.define(), queue.running()]
    queue.canceled()
    listed = tasks(queue)["tasks"]
    assert [status["taskId"] for status in listed] == sorted(open_tasks)
    assert {status["taskId"]: status["state"] for status in listed} == dict(
        zip(open_tasks, ("pending", "unscheduled", "running"), strict=True)
    )


def test_all_tasks_are_listed_on_request(queue: Queue) -> None:
    every_task = sorted([queue.create(), queue.canceled(), queue.running()])
    assert [status["taskId"] for status in tasks(queue, "?state=all")["tasks"]] == every_task


def test_tasks_are_listed_in_pages(queue: Queue) -> None:
    expected, listed, query = sorted(queue.create() for _ in range(5)), [], "?limit=2"
    while query:
        page = tasks(queue, query)
        assert len(page["tasks"]) <= 2
        listed += [status["taskId"] for status in page["tasks"]]
        token = page.get("continuationToken")
        query = f"?limit=2&continuationToken={token}" if token else ""
    assert listed == expected


def test_a_list_of_tasks_in_an_unsupported_state_is_refused(queue: Queue) -> None:
    refused(
        queue.send("GET", "/control/v1/tasks?state=pending"), 400, "InvalidRequestArguments", "unresolved"
    )
