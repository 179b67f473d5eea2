"""``/control/v1``: who may control a server, and the clock."""

import json
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from werkzeug.test import TestResponse

from legacy_queue.config.settings import Settings
from legacy_queue.domain.ids import slugid
from legacy_queue.domain.times import format_time, parse_time
from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.endpoints.control import CONTROL_ENDPOINTS
from tests.http.calls import (
    NOW,
    POOL,
    ROOT,
    ROOT_URL,
    TESTED,
    Credentials,
    Queue,
    hawk,
    holding,
    refused,
    succeeded,
    task_body,
)

BODIES = {  # of the endpoints that take a body
    "moveClock": {"freeze": True},
    "addFault": {"endpoint": "claimTask", "status": 503},
    "putMessage": {"kind": "poisoned"},
}


@pytest.fixture
def queue() -> Queue:
    return Queue(control=True)


def clock(queue: Queue) -> Any:
    return succeeded(queue.send("GET", "/control/v1/clock")).get_json()


def ask(queue: Queue, endpoint: Endpoint, credentials: Credentials | None) -> TestResponse:
    route = endpoint.route.replace("<faultId>", "00000000").replace("<", "").replace(">", "")
    body = json.dumps(BODIES[endpoint.name]).encode() if endpoint.input else b""
    return queue.send(endpoint.method, route, body, credentials=credentials)


def test_without_the_setting_an_endpoint_is_a_404_that_names_the_setting() -> None:
    queue = Queue()
    for endpoint, credentials in product(CONTROL_ENDPOINTS, (ROOT, None)):
        refused(ask(queue, endpoint, credentials), 404, "ResourceNotFound", "--control")


def test_a_client_without_the_scope_is_refused() -> None:
    queue = holding("queue:*-task", control=True)
    for endpoint in CONTROL_ENDPOINTS:
        refused(ask(queue, endpoint, TESTED), 403, "InsufficientScopes", "`queue:control`")
        refused(ask(queue, endpoint, None), 403, "InsufficientScopes", "without credentials")


def test_a_clock_that_was_not_moved_shows_the_real_time(queue: Queue) -> None:
    assert clock(queue) == {"now": format_time(NOW), "offset": 0, "frozen": False, "movable": True}
    queue.clock.advance(timedelta(minutes=1))
    assert clock(queue)["offset"] == 0


def test_a_clock_that_cannot_be_moved_says_why() -> None:
    queue = Queue(control=True, storage=Queue().server.storage)
    answer = clock(queue)
    assert not answer["movable"]
    assert "--storage embedded or --storage memory" in answer["reason"]


def test_the_endpoints_have_a_reference_of_their_own(queue: Queue) -> None:
    reference = queue.send("GET", "/references/control/v1/api.json", credentials=None).get_json()
    assert reference["baseUrl"] == ROOT_URL
    entries = {entry["name"]: entry for entry in reference["entries"]}
    assert list(entries) == [endpoint.name for endpoint in CONTROL_ENDPOINTS]
    for entry in entries.values():
        assert entry["scopes"] == "queue:control"
        for ref in (entry[kind] for kind in ("input", "output") if kind in entry):
            succeeded(queue.send("GET", ref.removesuffix("#"), credentials=None))


# --- what an advance of the clock changes, and what keeps the real time: docs/explanation/clock.md


HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def advance(queue: Queue, duration: timedelta) -> None:
    body = f'{{"advance": "{duration // timedelta(milliseconds=1)}ms"}}'.encode()
    succeeded(queue.send("POST", "/control/v1/clock", body))


def visible(queue: Queue) -> list[tuple[str, int]]:
    """The runs whose messages a poll receives now; the messages are invisible afterwards."""
    return [message.run for message in queue.messages()]


def test_messages_are_visible_again_after_an_advance(queue: Queue) -> None:
    task_id = queue.create()
    assert (visible(queue), visible(queue)) == ([(task_id, 0)], [])
    advance(queue, Settings().poll_visibility)
    assert visible(queue) == [(task_id, 0)]
    claim = succeeded(queue.claim(task_id)).get_json()
    advance(queue, parse_time(claim["takenUntil"]) - NOW)
    assert (task_id, 1) in visible(queue)


def test_created_and_deadline_are_checked_by_the_moved_clock(queue: Queue) -> None:
    advance(queue, HOUR)
    refused(queue.call("createTask", task_body(), taskId=slugid()), 400, "InputError", "created")
    succeeded(queue.call("createTask", task_body(NOW + HOUR), taskId=slugid()))
    late = {"deadline": format_time(NOW + 5 * DAY + HOUR)}
    succeeded(queue.call("createTask", task_body(NOW + HOUR, **late), taskId=slugid()))


def test_hawk_signatures_keep_the_real_time(queue: Queue) -> None:
    advance(queue, DAY)
    path = "/control/v1/clock"
    succeeded(queue.send("GET", path))  # signed at the real time
    signed = {"Authorization": hawk(ROOT, "GET", ROOT_URL + path, NOW + DAY)}
    refused(queue.send("GET", path, headers=signed), 401, "AuthenticationFailed")


def test_signed_urls_of_queues_keep_the_real_time(queue: Queue) -> None:
    advance(queue, DAY)
    assert parse_time(queue.ask("pollTaskUrls", **POOL)["expires"]) == NOW + Settings().sas_life
    target = queue.poll_target()
    advance(queue, DAY)
    assert queue.send("GET", target, credentials=None).status_code == 200
    queue.clock.advance(HOUR)
    assert queue.send("GET", target, credentials=None).status_code == 403


def test_signed_urls_of_artifacts_keep_the_real_time(queue: Queue) -> None:
    queue = Queue(control=True, claim_timeout=4 * DAY)
    late = format_time(NOW + 5 * DAY)
    task_id = queue.running(deadline=late)
    where: dict[str, Any] = {"taskId": task_id, "runId": 0, "name": "public/log"}
    for _ in range(2):
        answer = succeeded(
            queue.artifact(task_id, where["name"], expires=format_time(NOW + 5 * DAY))
        ).get_json()
        assert NOW < parse_time(answer["expires"]) <= NOW + HOUR
        succeeded(queue.upload(answer["putUrl"], b"content"))
        advance(queue, DAY)
    location = succeeded(queue.call("getArtifact", **where)).headers["location"].removeprefix(ROOT_URL)
    assert queue.send("GET", location, credentials=None).data == b"content"
    queue.clock.advance(DAY)
    assert queue.send("GET", location, credentials=None).status_code == 403
