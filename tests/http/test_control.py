"""``/control/v1``: who may control a server, and the clock."""

import json
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from werkzeug.test import TestResponse

from legacy_queue.domain.times import format_time
from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.endpoints.control import CONTROL_ENDPOINTS
from tests.http.calls import NOW, ROOT, ROOT_URL, TESTED, Credentials, Queue, holding, refused, succeeded

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
